#include "zeno/data/dataset/record.h"

#include <algorithm>
#include <array>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::data {
namespace {

constexpr Names kCompletion{"completion", "response", "output"};
constexpr Names kTokens{"input_ids", "tokens"};
// What is asked. The first of these that a record has is the instruction; the others of it, and the context,
// are the input below it.
constexpr Names kRequest{"instruction", "question", "query",   "problem", "inputs",
                         "input",       "context",  "passage", "document"};
constexpr Names kAsked{"instruction", "question", "query", "problem", "inputs", "input"};
// A worked solution says more than the answer that it ends in.
constexpr Names kAnswer{"output",  "response", "completion",         "solution",
                        "targets", "target",   "generated_solution", "answer"};
constexpr Names kPlainText{"text", "content"};
constexpr size_t kMaxInstanceBytes = size_t(64) << 20;  // of all samples of a task together

bool has_array(const Fields& fields, Names names) {
  const Json* value = fields.find(names);
  return value != nullptr && value->is_array();
}

bool has_instances(const Fields& fields) {
  return fields.has({"instruction"}) && has_array(fields, {"instances"});
}

bool has_answer(const Fields& fields) { return fields.has(kAnswer) || fields.has({"answers"}); }

Record read_prompt(Fields& fields) {
  Json* prompt = fields.take({"prompt"});
  Json* completion = fields.take(kCompletion);
  Json turns = prompt == nullptr || completion == nullptr ? Json() : take_list(*prompt);
  if (turns.is_null()) {
    std::string text = fields.text({"prompt"});
    return PromptRecord{std::move(text), fields.text(kCompletion)};
  }
  Json answer = take_list(*completion);
  require(answer.is_array(), ErrorKind::data, "'prompt' is a list of messages and '{}' is not",
          *kCompletion.begin());
  ChatRecord chat;
  add_messages(std::move(turns), false, chat);
  add_messages(std::move(answer), true, chat);
  chat.tools = read_tools(fields);
  return chat;
}

// SQuAD writes {"text": ["…", …], "answer_start": […]}: several annotators, who should agree.
std::string answer_text(Fields& fields) {
  if (fields.has(kAnswer)) return fields.text(kAnswer);
  Json* answers = fields.take({"answers"});
  Json* texts = answers;
  if (texts != nullptr && texts->is_object()) texts = texts->contains("text") ? &(*texts)["text"] : nullptr;
  const bool list = texts != nullptr && texts->is_array() && !texts->empty() &&
                    std::ranges::all_of(*texts, [](const Json& text) { return text.is_string(); });
  require(list, ErrorKind::data, "no 'output', and 'answers' has no text; the fields are {}", fields.list());
  require(std::ranges::all_of(*texts, [&](const Json& text) { return text == (*texts)[0]; }), ErrorKind::data,
          "'answers' has different texts, expected one to train on; write it into a field of its own");
  if (answers->is_object() && answers->contains("answer_start")) fields.add_unused("answers.answer_start");
  return std::move((*texts)[0].get_ref<std::string&>());
}

std::vector<std::pair<std::string, std::string>> read_history(Fields& fields) {
  std::vector<std::pair<std::string, std::string>> out;
  Json* value = fields.take({"history"});
  if (value == nullptr || is_empty_value(*value)) return out;
  Json history = take_list(*value);
  require(history.is_array(), ErrorKind::data, "'history' is not a list");
  for (Json& turn : history) {
    const bool pair = turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
    require(pair, ErrorKind::data, "'history' is not a list of [question, answer] pairs");
    out.emplace_back(std::move(turn[0].get_ref<std::string&>()), std::move(turn[1].get_ref<std::string&>()));
  }
  return out;
}

AlpacaRecord read_alpaca(Fields& fields) {
  AlpacaRecord out;
  out.system = fields.optional_text(kSystemNames);
  bool first = true;
  for (const char* name : kRequest) {
    if (!fields.has({name})) continue;
    std::string text = fields.text({name});
    if (std::exchange(first, false)) {
      out.instruction = std::move(text);
    } else if (!text.empty()) {
      if (!out.input.empty()) out.input += '\n';
      out.input += text;
    }
  }
  require(!first, ErrorKind::data, "no 'instruction'; the fields are {}", fields.list());
  out.output = answer_text(fields);
  out.history = read_history(fields);
  return out;
}

// self-instruct: one task with several inputs and outputs.
std::vector<Record> read_instances(Fields& fields) {
  const AlpacaRecord task{
      .system = {}, .instruction = fields.text({"instruction"}), .input = {}, .output = {}, .history = {}};
  std::vector<Record> out;
  size_t bytes = 0;  // each sample has the instruction
  for (Json& instance : *fields.take({"instances"})) {
    Fields parts(instance);
    AlpacaRecord sample = task;
    sample.input = parts.optional_text({"input"});
    sample.output = parts.text({"output"});
    bytes += sample.instruction.size() + sample.input.size() + sample.output.size();
    require(bytes <= kMaxInstanceBytes, ErrorKind::data,
            "the instruction and its 'instances' make samples of more than {} bytes; split the record",
            kMaxInstanceBytes);
    for (const std::string& name : parts.unused()) fields.add_unused("instances." + name);
    out.push_back(std::move(sample));
  }
  return out;
}

// xtuner marks a text as one turn of the role pretrain.
bool is_pretraining(const ChatRecord& chat) {
  return chat.messages.size() == 1 && chat.messages[0]["role"] == "pretrain";
}

Record read_chat(Fields& fields) {
  ChatRecord chat = read_conversation(fields);
  if (is_pretraining(chat)) return TextRecord{std::move(chat.messages[0]["content"].get_ref<std::string&>())};
  return chat;
}

Record read_sample(Fields& fields, DataFormat format) {
  switch (format) {
    case DataFormat::messages:
    case DataFormat::sharegpt:
      return read_chat(fields);
    case DataFormat::alpaca:
      return read_alpaca(fields);
    case DataFormat::prompt_completion:
      return read_prompt(fields);
    case DataFormat::text:
      // ms-swift writes texts to pre-train on as responses to nothing.
      if (!fields.has(kPlainText) && fields.has({"response"})) return TextRecord{fields.text({"response"})};
      return TextRecord{fields.text(kPlainText)};
    case DataFormat::tokens:
      return read_tokens(fields);
    case DataFormat::automatic:
      break;
  }
  fail(ErrorKind::internal, "[data] the format of a record is not known");
}

std::vector<Record> read_samples(Fields& fields, DataFormat format) {
  if (format == DataFormat::automatic) format = detect_format(fields);
  if (format == DataFormat::alpaca && has_instances(fields)) return read_instances(fields);
  std::vector<Record> out;
  out.push_back(read_sample(fields, format));
  return out;
}

}  // namespace

DataFormat detect_format(const Fields& fields) {
  refuse_unsupported(fields);
  // What --columns names is what is meant, whatever else a record has.
  if (fields.maps({"prompt", "completion"})) return DataFormat::prompt_completion;
  if (fields.maps({"instruction", "output", "input"})) return DataFormat::alpaca;
  if (fields.maps({"text"})) return DataFormat::text;
  if (fields.maps({"input_ids"})) return DataFormat::tokens;
  if (has_conversation(fields)) return conversation_format(fields);
  if (has_array(fields, kTokens)) return DataFormat::tokens;
  const bool asked = fields.has(kAsked) && has_answer(fields);
  if (fields.has({"instruction"}) && (asked || has_instances(fields))) return DataFormat::alpaca;
  if (fields.has({"prompt"}) && fields.has(kCompletion)) return DataFormat::prompt_completion;
  if (asked) return DataFormat::alpaca;
  if (fields.has({"text"})) return DataFormat::text;
  const bool alone = !fields.has(kAsked) && !fields.has({"prompt"});
  if (alone && (fields.find_text(kPlainText) != nullptr || fields.find_text({"response"}) != nullptr)) {
    return DataFormat::text;
  }
  fail(ErrorKind::data, "{}", unknown_format_text(fields));
}

std::vector<Record> read_record(Fields& fields, DataFormat format) {
  refuse_unsupported(fields);
  std::vector<Record> samples = read_samples(fields, format);
  for (const Record& sample : samples) refuse_media_in(sample);
  return samples;
}

PromptRecord plain_layout_of(AlpacaRecord&& record) {
  std::string prompt = std::move(record.system);
  if (!prompt.empty()) prompt += "\n\n";
  const auto add = [&](std::string_view header, const std::string& text) {
    prompt += header;
    prompt += text;
    prompt += "\n\n";
  };
  for (const auto& [question, answer] : record.history) {
    add("### Instruction:\n", question);
    add("### Response:\n", answer);
  }
  add("### Instruction:\n", record.instruction);
  if (!record.input.empty()) add("### Input:\n", record.input);
  prompt += "### Response:\n";
  return {std::move(prompt), std::move(record.output)};
}

ChatRecord chat_of(AlpacaRecord&& record) {
  ChatRecord chat;
  const auto add = [&](const char* role, std::string&& content) {
    chat.messages.push_back({{"role", role}, {"content", std::move(content)}});
  };
  if (!record.system.empty()) add("system", std::move(record.system));
  for (auto& [question, answer] : record.history) {
    add("user", std::move(question));
    add("assistant", std::move(answer));
  }
  std::string request = std::move(record.instruction);
  if (!record.input.empty()) request += '\n';
  request += record.input;
  add("user", std::move(request));
  add("assistant", std::move(record.output));
  chat.train.assign(record.history.size() + 1, 1);
  return chat;
}

}  // namespace zeno::data
