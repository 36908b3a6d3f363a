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

bool has_array(const Fields& fields, Names names) {
  const Json* value = fields.find(names);
  return value != nullptr && value->is_array();
}

bool has_instances(const Fields& fields) {
  return fields.has({"instruction"}) && has_array(fields, {"instances"});
}

bool has_answer(const Fields& fields) { return fields.has(kAnswer) || fields.has({"answers"}); }

Record read_prompt(Fields& fields) {
  const Json* prompt = fields.find({"prompt"});
  const Json* completion = fields.find(kCompletion);
  const Json turns = prompt == nullptr ? Json() : list_of(*prompt);
  if (turns.is_null() || completion == nullptr) {
    std::string text = fields.text({"prompt"});
    return PromptRecord{std::move(text), fields.text(kCompletion)};
  }
  const Json answer = list_of(*completion);
  require(answer.is_array(), ErrorKind::data, "'prompt' is a list of messages and '{}' is not",
          *kCompletion.begin());
  ChatRecord chat;
  add_messages(turns, false, chat);
  add_messages(answer, true, chat);
  fields.take({"prompt"});
  fields.take(kCompletion);
  chat.tools = read_tools(fields);
  return chat;
}

// SQuAD writes {"text": ["…", …], "answer_start": […]}: several annotators, who should agree.
std::string answer_text(Fields& fields) {
  if (fields.has(kAnswer)) return fields.text(kAnswer);
  const Json* answers = fields.take({"answers"});
  const Json* texts = answers;
  if (texts != nullptr && texts->is_object()) texts = texts->contains("text") ? &(*texts)["text"] : nullptr;
  const bool list = texts != nullptr && texts->is_array() && !texts->empty() &&
                    std::ranges::all_of(*texts, [](const Json& text) { return text.is_string(); });
  require(list, ErrorKind::data, "no 'output', and 'answers' has no text; the fields are {}", fields.list());
  require(std::ranges::all_of(*texts, [&](const Json& text) { return text == (*texts)[0]; }), ErrorKind::data,
          "'answers' has different texts, expected one to train on; write it into a field of its own");
  if (answers->is_object() && answers->contains("answer_start")) fields.add_unused("answers.answer_start");
  return (*texts)[0].get<std::string>();
}

std::vector<std::pair<std::string, std::string>> read_history(Fields& fields) {
  std::vector<std::pair<std::string, std::string>> out;
  const Json* value = fields.take({"history"});
  if (value == nullptr || is_empty_value(*value)) return out;
  const Json history = list_of(*value);
  require(history.is_array(), ErrorKind::data, "'history' is not a list");
  for (const Json& turn : history) {
    const bool pair = turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
    require(pair, ErrorKind::data, "'history' is not a list of [question, answer] pairs");
    out.emplace_back(turn[0].get<std::string>(), turn[1].get<std::string>());
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
      out.input += (out.input.empty() ? "" : "\n") + text;
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
  for (const Json& instance : *fields.take({"instances"})) {
    Fields parts(instance);
    AlpacaRecord sample = task;
    sample.input = parts.optional_text({"input"});
    sample.output = parts.text({"output"});
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
  if (is_pretraining(chat)) return TextRecord{chat.messages[0]["content"].get<std::string>()};
  return chat;
}

std::vector<Record> read_samples(Fields& fields, DataFormat format) {
  switch (format) {
    case DataFormat::messages:
    case DataFormat::sharegpt:
      return {read_chat(fields)};
    case DataFormat::alpaca:
      if (has_instances(fields)) return read_instances(fields);
      return {read_alpaca(fields)};
    case DataFormat::prompt_completion:
      return {read_prompt(fields)};
    case DataFormat::text:
      // ms-swift writes texts to pre-train on as responses to nothing.
      if (!fields.has(kPlainText) && fields.has({"response"})) return {TextRecord{fields.text({"response"})}};
      return {TextRecord{fields.text(kPlainText)}};
    case DataFormat::tokens:
      return {read_tokens(fields)};
    case DataFormat::automatic:
      break;
  }
  return read_samples(fields, detect_format(fields));
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
