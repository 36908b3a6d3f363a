#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kSpeakers{{
    {"human", "user"},          {"user", "user"},           {"prompter", "user"},
    {"gpt", "assistant"},       {"assistant", "assistant"}, {"chatgpt", "assistant"},
    {"chatbot", "assistant"},   {"bot", "assistant"},       {"bing", "assistant"},
    {"bard", "assistant"},      {"model", "assistant"},     {"function_call", "assistant"},
    {"tool_call", "assistant"}, {"system", "system"},       {"developer", "system"},
    {"tool", "tool"},           {"observation", "tool"},    {"function_response", "tool"},
    {"tool_response", "tool"},  {"function", "tool"},
}};

constexpr Names kUserPart{"human", "user", "input", "question", "query", "prompt", "instruction"};
constexpr Names kAssistantPart{"assistant", "gpt", "bot", "output", "answer", "response", "completion"};

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

// Empty: not known.
std::string_view role_of(std::string_view speaker) {
  for (const auto& [name, role] : kSpeakers) {
    if (name == speaker) return role;
  }
  return {};
}

// A call written as text: {"name": …, "arguments": …}, or a list of them.
Json calls_of(const std::string& value) {
  Json calls;
  try {
    calls = parse_json(value);
  } catch (const Error&) {  // is found to be no call below
  }
  if (calls.is_object()) calls = Json::array({std::move(calls)});
  require(calls.is_array() && !calls.empty(), ErrorKind::data,
          "the value of a function_call is not a JSON object with name and arguments");
  Json out = Json::array();
  for (Json& call : calls) {
    require(call.is_object() && call.contains("name"), ErrorKind::data, "a function_call has no 'name'");
    out.push_back({{"type", "function"}, {"function", std::move(call)}});
  }
  return out;
}

// Moves the first of several keys to `to`. False: there is none.
bool rename_key(Json& message, std::initializer_list<const char*> keys, const char* to) {
  for (const char* key : keys) {
    if (!message.contains(key)) continue;
    if (std::string_view(key) == to) return true;
    Json value = std::move(message[key]);
    message.erase(key);
    message[to] = std::move(value);
    return true;
  }
  return false;
}

Json message_of(Json&& message) {
  const bool by_role = message.contains("role");
  const bool filled = message.contains("tool_calls") || message.contains("function_call");
  rename_key(message, {"role", "from", "speaker"}, "role");
  require(message["role"].is_string(), ErrorKind::data, "a turn has no 'from'");
  const bool said = rename_key(message, {"content", "value", "text"}, "content");
  require(by_role || (said && !message["content"].is_null()) || filled, ErrorKind::data,
          "a turn has no text in 'value'");
  const std::string speaker = lowered(message["role"].get<std::string>());
  const std::string_view role = role_of(speaker);
  // Templates may know roles that we do not.
  require(by_role || !role.empty(), ErrorKind::data,
          "unknown speaker '{}'; expected human, gpt, system, tool, function_call or observation",
          shortened(speaker, 40));
  const bool keep = by_role && (speaker == "developer" || role.empty());
  if (!keep) message["role"] = role;
  if (speaker == "function_call" || speaker == "tool_call") {
    require(message["content"].is_string(), ErrorKind::data, "the value of a function_call is not a text");
    message["tool_calls"] = calls_of(message["content"].get<std::string>());
    message["content"] = "";
  }
  return std::move(message);
}

// {"human": …, "assistant": …}, with a "system" at times.
void add_pair(Json& turn, Fields& fields, Json& out) {
  Fields parts(turn);
  if (std::string system = parts.optional_text({"system"}); !system.empty()) {
    out.push_back({{"role", "system"}, {"content", std::move(system)}});
  }
  const bool asked = parts.has(kUserPart), answered = parts.has(kAssistantPart);
  require(asked || answered, ErrorKind::data, "a message has no 'role'; its fields are {}", parts.list());
  if (asked) out.push_back({{"role", "user"}, {"content", parts.text(kUserPart)}});
  if (answered) {
    Json message{{"role", "assistant"}, {"content", parts.text(kAssistantPart)}};
    if (Json* flag = parts.take({"output_with_loss"})) message["train"] = std::move(*flag);
    out.push_back(std::move(message));
  }
  for (const std::string& name : parts.unused()) fields.add_unused("conversation." + name);
}

// "<|Human|>: Hi<eoh>\n" → "Hi"
std::string between_marks(const std::string& text, std::string_view end) {
  const size_t colon = text.starts_with("<|") ? text.find("|>:") : std::string::npos;
  size_t from = colon == std::string::npos ? 0 : colon + 3;
  if (from < text.size() && text[from] == ' ') ++from;
  const size_t to = text.rfind(end);
  return text.substr(from, to == std::string::npos || to < from ? std::string::npos : to - from);
}

std::string moss_text(const Json& turn, const char* key, std::string_view end) {
  const auto found = turn.find(key);
  require(found != turn.end() && found->is_string(), ErrorKind::data, "a turn has no '{}'", key);
  return between_marks(found->get_ref<const std::string&>(), end);
}

}  // namespace

void add_turn(Json&& turn, Fields& fields, Json& out) {
  require(turn.is_object(), ErrorKind::data, "a turn is not an object");
  const bool named = turn.contains("role") || turn.contains("from") || turn.contains("speaker");
  if (named) {
    out.push_back(message_of(std::move(turn)));
  } else {
    add_pair(turn, fields, out);
  }
}

Json messages_of_moss(Json& turns) {
  Json out = Json::array();
  for (size_t i = 1; i <= turns.size(); ++i) {
    const auto turn = turns.find(fmt::format("turn_{}", i));
    require(turn != turns.end() && turn->is_object(), ErrorKind::data, "'chat' has no 'turn_{}'", i);
    for (const auto& [key, end] : {std::pair("Inner Thoughts", "<eot>"), std::pair("Commands", "<eoc>"),
                                   std::pair("Tool Responses", "<eor>")}) {
      if (!turn->contains(key)) continue;
      const std::string text = moss_text(*turn, key, end);
      require(text.empty() || text == "None", ErrorKind::data,
              "'{}' of turn_{} has text: chats do not support MOSS plugin calls; write them as 'tool_calls' "
              "of messages, or leave such records out",
              key, i);
    }
    out.push_back({{"role", "user"}, {"content", moss_text(*turn, "Human", "<eoh>")}});
    out.push_back({{"role", "assistant"}, {"content", moss_text(*turn, "MOSS", "<eom>")}});
    *turn = nullptr;
  }
  return out;
}

}  // namespace zeno::data
