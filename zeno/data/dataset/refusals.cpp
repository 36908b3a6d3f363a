// What records must not be trained on as if a part of them were not there: preferences, images, sound and
// video, answers to choose from. Each is refused by the name of its field, with what to do.
#include <algorithm>
#include <array>
#include <variant>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

constexpr Names kMedia{"image",       "images",      "image_path", "image_paths", "image_url",
                       "image_urls",  "img",         "video",      "videos",      "video_path",
                       "video_paths", "video_url",   "video_urls", "audio",       "audios",
                       "audio_path",  "audio_paths", "audio_url",  "audio_urls",  "pixel_values"};
constexpr Names kAnswers{"completion", "response",      "output",      "answer",
                         "messages",   "conversations", "conversation"};
constexpr Names kQuestions{"prompt", "question", "query", "instruction", "problem", "input"};

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return out;
}

// "chosen", "rejected_response", "response_rejected", …: names with one of these words in them.
bool is_preference(std::string_view name) {
  const std::string words = fmt::format("_{}_", lower(name));
  return words.find("_chosen_") != std::string::npos || words.find("_rejected_") != std::string::npos;
}

// true, false, 0, 1 or a text of these: good or bad rather than a kind.
bool is_verdict(const Json& value) {
  if (value.is_boolean()) return true;
  if (value.is_number()) return value == 0 || value == 1;
  if (!value.is_string()) return false;
  const std::string text = lower(value.get<std::string>());
  return text == "true" || text == "false" || text == "0" || text == "1";
}

void refuse_media_fields(const Fields& fields) {
  fields.for_each([](std::string_view key, const Json& value) {
    const bool media = std::ranges::any_of(kMedia, [&](const char* name) { return lower(key) == name; });
    require(!media || is_empty_value(value), ErrorKind::data,
            "field '{}': images, sound and video are not supported, and the text alone means something else; "
            "use records without them, or remove the field if the text makes sense on its own",
            key);
  });
}

void refuse_preferences(const Fields& fields) {
  fields.for_each([](std::string_view key, const Json& value) {
    require(!is_preference(key) || is_empty_value(value), ErrorKind::data,
            "field '{}': training on preference records (chosen and rejected answers) is not supported; to "
            "train on the good answer only, give --columns, such as completion=chosen or messages=chosen",
            key);
  });
  for (const char* name : {"label", "kto_tag"}) {
    const Json* label = fields.find({name});
    require(label == nullptr || !is_verdict(*label) || !fields.has(kAnswers), ErrorKind::data,
            "field '{}' says whether an answer is good: training on preference records is not supported; "
            "remove the bad answers and the field",
            name);
  }
}

// A <img>path</img> in the text, as Qwen's tools write it; HTML has no such pair.
bool has_inline_image(std::string_view text) {
  const size_t begin = text.find("<img>");
  return begin != std::string_view::npos && text.find("</img>", begin) != std::string_view::npos;
}

void refuse_inline_image(std::string_view text) {
  require(!has_inline_image(text), ErrorKind::data,
          "a text has an image in <img>…</img>: images are not supported; leave such records out");
}

}  // namespace

void refuse_unsupported(const Fields& fields) {
  refuse_media_fields(fields);
  const Json* prompt = fields.find({"prompt"});
  const bool tree = (fields.has({"message_id"}) && fields.has({"parent_id"})) ||
                    (prompt != nullptr && prompt->is_object() && prompt->contains("replies"));
  require(!tree, ErrorKind::data,
          "the record is a message of a tree (as in OASST), which holds many conversations; write each path "
          "to train on as one record with 'messages'");
  if (fields.mapped()) return;  // --columns names the answer to train on
  refuse_preferences(fields);
  for (const char* name : {"choices", "options"}) {
    const Json* value = fields.find({name});
    require(value == nullptr || !value->is_structured() || value->empty() || !fields.has({"question"}),
            ErrorKind::data,
            "field '{}': a multiple-choice question can be asked in many ways; write question and choices "
            "into one text and give its field with --columns",
            name);
  }
}

void refuse_media_in(const Record& record) {
  if (const auto* chat = std::get_if<ChatRecord>(&record)) {
    for (const Json& message : chat->messages) {
      if (message["content"].is_string())
        refuse_inline_image(message["content"].get_ref<const std::string&>());
    }
  } else if (const auto* alpaca = std::get_if<AlpacaRecord>(&record)) {
    refuse_inline_image(alpaca->instruction);
    refuse_inline_image(alpaca->input);
    for (const auto& [question, answer] : alpaca->history) refuse_inline_image(question);
  } else if (const auto* prompt = std::get_if<PromptRecord>(&record)) {
    refuse_inline_image(prompt->prompt);
  }
}

std::string unknown_format_text(const Fields& fields) {
  if (fields.find_text({"messages", "conversations", "conversation"}) != nullptr) {
    return "the messages are a text that is not a JSON list; write them as JSON (in Python json.dumps, not "
           "str)";
  }
  std::string records;  // a field that holds what should be the file
  fields.for_each([&](std::string_view key, const Json& value) {
    if (value.is_array() && !value.empty() && value[0].is_object()) records = key;
  });
  for (const char* name : kQuestions) {
    if (!fields.has({name})) continue;
    return fmt::format(
        "only a prompt ('{}') and no answer to train on: training with rewards (GRPO) is not supported; the "
        "fields are {}; if one of them is the answer give --columns {}=FIELD",
        name, fields.list(), std::string_view(name) == "prompt" ? "completion" : "output");
  }
  if (!records.empty()) {
    return fmt::format(
        "unknown format: got keys {}; if '{}' holds the records, write only these, as an array or one per "
        "line",
        fields.list(), shortened(records, 40));
  }
  return fmt::format(
      "unknown format: got keys {}; expected messages, conversations, instruction and output, question and "
      "answer, prompt and completion, text, or input_ids; name other columns with --columns "
      "instruction=FIELD,output=FIELD",
      fields.list());
}

}  // namespace zeno::data
