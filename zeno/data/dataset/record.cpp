#include "zeno/data/dataset/record.h"

#include <algorithm>
#include <limits>

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

bool has_array(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_array();
}

bool has_any(const Json& record, std::initializer_list<const char*> keys) {
  return std::ranges::any_of(keys, [&](const char* key) { return record.contains(key); });
}

std::string keys_of(const Json& record) {
  std::string out;
  for (const auto& [key, value] : record.items()) {
    if (out.size() > 100) return out + ", …";
    out += (out.empty() ? "" : ", ") + key;
  }
  return out.empty() ? "none" : out;
}

// The first of several names of the same thing.
const Json* find_any(const Json& record, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const auto found = record.find(key); found != record.end()) return &*found;
  }
  return nullptr;
}

std::string text_field(const Json& record, std::initializer_list<const char*> keys) {
  const Json* value = find_any(record, keys);
  require(value != nullptr, ErrorKind::data, "no '{}'", *keys.begin());
  require(value->is_string(), ErrorKind::data, "'{}' is no text", *keys.begin());
  return value->get<std::string>();
}

std::string optional_text(const Json& record, const char* key) {
  const auto found = record.find(key);
  if (found == record.end() || found->is_null()) return "";
  require(found->is_string(), ErrorKind::data, "'{}' is no text", key);
  return found->get<std::string>();
}

constexpr std::initializer_list<const char*> kCompletion{"completion", "response"};

Record read_prompt(const Json& record) {
  const Json* prompt = find_any(record, {"prompt"});
  const Json* completion = find_any(record, kCompletion);
  if (prompt == nullptr || completion == nullptr || !prompt->is_array()) {
    return PromptRecord{text_field(record, {"prompt"}), text_field(record, kCompletion)};
  }
  require(completion->is_array(), ErrorKind::data, "'prompt' is a list of messages and 'completion' is not");
  ChatRecord chat;
  add_messages(*prompt, false, chat);
  add_messages(*completion, true, chat);
  chat.tools = read_tools(record);
  return chat;
}

AlpacaRecord read_alpaca(const Json& record) {
  AlpacaRecord out{.system = optional_text(record, "system"),
                   .instruction = text_field(record, {"instruction"}),
                   .input = optional_text(record, "input"),
                   .output = text_field(record, {"output", "response"}),
                   .history = {}};
  const auto history = record.find("history");
  if (history == record.end() || history->is_null()) return out;
  require(history->is_array(), ErrorKind::data, "'history' is no list");
  for (const Json& turn : *history) {
    const bool pair = turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
    require(pair, ErrorKind::data, "'history' is no list of [question, answer] pairs");
    out.history.emplace_back(turn[0].get<std::string>(), turn[1].get<std::string>());
  }
  return out;
}

// An integer list as long as the ids; `name` for messages.
std::vector<int64_t> integers(const Json& list, const char* name) {
  require(list.is_array(), ErrorKind::data, "'{}' is no list", name);
  std::vector<int64_t> out;
  out.reserve(list.size());
  for (const Json& value : list) {
    const bool whole = value.is_number_integer() || value.is_boolean();
    require(whole, ErrorKind::data, "'{}' has an entry that is no integer", name);
    out.push_back(value.is_boolean() ? int64_t(value.get<bool>()) : value.get<int64_t>());
  }
  return out;
}

std::vector<int64_t> column(const Json& list, const char* name, size_t length) {
  std::vector<int64_t> out = integers(list, name);
  require(out.size() == length, ErrorKind::data, "'{}' has {} entries for {} tokens", name, out.size(),
          length);
  return out;
}

TokenRecord read_tokens(const Json& record) {
  constexpr int64_t kIgnored = -100;  // the label of tokens without loss, as everywhere
  const Json* list = find_any(record, {"input_ids", "tokens"});
  require(list != nullptr, ErrorKind::data, "no 'input_ids'");
  const std::vector<int64_t> ids = integers(*list, "input_ids");
  std::vector<int64_t> learned(ids.size(), 1), seen(ids.size(), 1);
  TokenRecord out;
  if (const Json* labels = find_any(record, {"labels"})) {
    const std::vector<int64_t> wanted = column(*labels, "labels", ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      learned[i] = wanted[i] != kIgnored;
      require(!learned[i] || wanted[i] == ids[i], ErrorKind::data,
              "'labels' has {} at token {}, expected {} or -100", wanted[i], i, ids[i]);
    }
    out.marked = true;
  } else if (const Json* mask =
                 find_any(record, {"mask", "loss_mask", "completion_mask", "assistant_masks"})) {
    learned = column(*mask, "mask", ids.size());
    out.marked = true;
  }
  if (const Json* mask = find_any(record, {"attention_mask"})) {
    seen = column(*mask, "attention_mask", ids.size());  // 0: padding
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (seen[i] == 0) continue;
    require(ids[i] >= 0 && ids[i] <= std::numeric_limits<int32_t>::max(), ErrorKind::data,
            "token {} has id {}", i, ids[i]);
    out.sample.ids.push_back(int32_t(ids[i]));
    out.sample.learned.push_back(learned[i] != 0);
  }
  return out;
}

}  // namespace

Json parse_json(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    fail(ErrorKind::data, "not JSON at byte {}", error.byte);
  } catch (const nlohmann::json::out_of_range&) {
    fail(ErrorKind::data, "has a number that is too large, expected less than 1.8e308");
  }
}

DataFormat detect_format(const Json& record) {
  require(record.is_object(), ErrorKind::data, "not a JSON object");
  if (has_array(record, "messages")) return DataFormat::messages;
  for (const char* key : {"conversations", "conversation"}) {
    if (!has_array(record, key)) continue;
    const Json& list = record[key];
    const bool by_role = !list.empty() && list[0].is_object() && list[0].contains("role");
    return by_role ? DataFormat::messages : DataFormat::sharegpt;
  }
  if (has_array(record, "input_ids") || has_array(record, "tokens")) return DataFormat::tokens;
  if (record.contains("prompt") && has_any(record, kCompletion)) return DataFormat::prompt_completion;
  if (record.contains("instruction") && has_any(record, {"output", "response"})) return DataFormat::alpaca;
  if (record.contains("text")) return DataFormat::text;
  fail(ErrorKind::data,
       "unknown format: got keys {}; expected messages, conversations, prompt and completion, instruction "
       "and output, text, or input_ids",
       keys_of(record));
}

Record read_record(const Json& record, DataFormat format) {
  require(record.is_object(), ErrorKind::data, "not a JSON object");
  switch (format) {
    case DataFormat::messages:
      return read_messages(record);
    case DataFormat::sharegpt:
      return read_sharegpt(record);
    case DataFormat::alpaca:
      return read_alpaca(record);
    case DataFormat::prompt_completion:
      return read_prompt(record);
    case DataFormat::text:
      return TextRecord{text_field(record, {"text"})};
    case DataFormat::tokens:
      return read_tokens(record);
    case DataFormat::automatic:
      break;
  }
  return read_record(record, detect_format(record));
}

PromptRecord plain_layout_of(const AlpacaRecord& record) {
  std::string prompt = record.system.empty() ? "" : record.system + "\n\n";
  for (const auto& [question, answer] : record.history) {
    prompt += "### Instruction:\n" + question + "\n\n### Response:\n" + answer + "\n\n";
  }
  prompt += "### Instruction:\n" + record.instruction + "\n\n";
  if (!record.input.empty()) prompt += "### Input:\n" + record.input + "\n\n";
  return {prompt + "### Response:\n", record.output};
}

ChatRecord chat_of(const AlpacaRecord& record) {
  ChatRecord chat;
  const auto add = [&](const char* role, const std::string& content) {
    chat.messages.push_back({{"role", role}, {"content", content}});
  };
  if (!record.system.empty()) add("system", record.system);
  for (const auto& [question, answer] : record.history) {
    add("user", question);
    add("assistant", answer);
  }
  add("user", record.instruction + (record.input.empty() ? "" : "\n" + record.input));
  add("assistant", record.output);
  chat.train.assign(record.history.size() + 1, 1);
  return chat;
}

}  // namespace zeno::data
