#include <array>
#include <string_view>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

// Text parts are joined; anything else in a list of parts cannot be learned from.
std::string joined_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    const bool good = part.is_object() && part.contains("text") && part["text"].is_string() &&
                      (!part.contains("type") || part["type"] == "text");
    require(good, ErrorKind::data, "a message has a part that is no text");
    text += part["text"].get<std::string>();
  }
  return text;
}

// OpenAI writes arguments as a JSON text; templates print them themselves.
void unpack_arguments(Json& calls) {
  require(calls.is_array(), ErrorKind::data, "'tool_calls' is no list");
  for (Json& call : calls) {
    require(call.is_object(), ErrorKind::data, "'tool_calls' has an entry that is no object");
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("arguments") || !function["arguments"].is_string()) {
      continue;
    }
    Json arguments = Json::parse(function["arguments"].get<std::string>(), nullptr, false);
    if (arguments.is_object()) function["arguments"] = std::move(arguments);
  }
}

// The message's own word on whether it is learned; the keys are not for the template.
bool take_flag(Json& message, bool otherwise) {
  bool train = otherwise;
  for (const char* key : {"weight", "train", "training"}) {
    const auto found = message.find(key);
    if (found == message.end()) continue;
    if (found->is_boolean()) {
      train = found->get<bool>();
    } else if (found->is_number()) {
      const double weight = found->get<double>();
      require(weight == 0 || weight == 1, ErrorKind::data, "'{}' of a message is {}, expected 0 or 1", key,
              weight);
      train = weight == 1;
    } else {
      require(found->is_null(), ErrorKind::data, "'{}' of a message is neither true, false, 0 nor 1", key);
    }
    message.erase(found);
  }
  return train;
}

void check_content(Json& message) {
  const auto content = message.find("content");
  const bool none = content == message.end() || content->is_null();
  if (none) {
    const bool calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
    require(calls || message.contains("reasoning_content"), ErrorKind::data, "a message has no 'content'");
    if (content == message.end()) message["content"] = "";
    return;
  }
  if (content->is_array()) *content = joined_parts(*content);
  require(content->is_string(), ErrorKind::data, "'content' of a message is no text");
}

const Json& conversation_of(const Json& record) {
  for (const char* key : {"messages", "conversations", "conversation"}) {
    const auto found = record.find(key);
    if (found == record.end()) continue;
    require(found->is_array(), ErrorKind::data, "'{}' is no list", key);
    return *found;
  }
  fail(ErrorKind::data, "no 'messages' and no 'conversations'");
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kSpeakers{{
    {"human", "user"},
    {"user", "user"},
    {"prompter", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"function_call", "assistant"},
    {"tool_call", "assistant"},
    {"system", "system"},
    {"developer", "system"},
    {"tool", "tool"},
    {"observation", "tool"},
    {"function_response", "tool"},
    {"tool_response", "tool"},
}};

std::string_view role_of(std::string_view speaker) {
  for (const auto& [name, role] : kSpeakers) {
    if (name == speaker) return role;
  }
  fail(ErrorKind::data,
       "unknown speaker '{}'; expected human, gpt, system, tool, function_call or observation",
       speaker.substr(0, 40));
}

// A call written as text: {"name": …, "arguments": …}, or a list of them.
Json calls_of(const std::string& value) {
  Json calls = Json::parse(value, nullptr, false);
  if (calls.is_object()) calls = Json::array({std::move(calls)});
  require(calls.is_array() && !calls.empty(), ErrorKind::data,
          "the value of a function_call is no JSON object with name and arguments");
  Json out = Json::array();
  for (const Json& call : calls) {
    require(call.is_object() && call.contains("name"), ErrorKind::data, "a function_call has no 'name'");
    out.push_back({{"type", "function"}, {"function", call}});
  }
  unpack_arguments(out);
  return out;
}

Json message_of(const Json& turn) {
  require(turn.is_object(), ErrorKind::data, "a turn is no object");
  const auto from = turn.find("from"), value = turn.find("value");
  require(from != turn.end() && from->is_string(), ErrorKind::data, "a turn has no 'from'");
  require(value != turn.end() && value->is_string(), ErrorKind::data, "a turn has no text in 'value'");
  const std::string speaker = from->get<std::string>();
  Json message{{"role", role_of(speaker)}};
  if (speaker == "function_call" || speaker == "tool_call") {
    message["content"] = "";
    message["tool_calls"] = calls_of(value->get<std::string>());
  } else {
    message["content"] = *value;
  }
  for (const char* key : {"weight", "train", "training"}) {
    if (turn.contains(key)) message[key] = turn[key];
  }
  return message;
}

}  // namespace

// Tools are a list of JSON schemas, or the text of one.
Json read_tools(const Json& record) {
  const auto found = record.find("tools");
  if (found == record.end() || found->is_null() || *found == "") return nullptr;
  Json tools = *found;
  if (tools.is_string()) tools = Json::parse(tools.get<std::string>(), nullptr, false);
  require(tools.is_array(), ErrorKind::data, "'tools' is no list");
  return tools.empty() ? Json(nullptr) : tools;
}

void add_messages(const Json& list, bool train, ChatRecord& out) {
  for (const Json& item : list) {
    require(item.is_object(), ErrorKind::data, "a message is no object");
    Json message = item;
    const auto role = message.find("role");
    require(role != message.end() && role->is_string(), ErrorKind::data, "a message has no 'role'");
    const bool assistant = *role == "assistant";
    const bool learn = take_flag(message, train);
    if (message.contains("tool_calls") && !message["tool_calls"].is_null()) {
      unpack_arguments(message["tool_calls"]);
    }
    check_content(message);
    if (assistant) out.train.push_back(learn);
    out.messages.push_back(std::move(message));
  }
}

ChatRecord read_messages(const Json& record) {
  ChatRecord chat;
  add_messages(conversation_of(record), true, chat);
  require(!chat.messages.empty(), ErrorKind::data, "no messages");
  chat.tools = read_tools(record);
  return chat;
}

ChatRecord read_sharegpt(const Json& record) {
  ChatRecord chat;
  Json messages = Json::array();
  const auto system = record.find("system");
  if (system != record.end() && system->is_string() && *system != "") {
    messages.push_back({{"role", "system"}, {"content", *system}});
  }
  for (const Json& turn : conversation_of(record)) messages.push_back(message_of(turn));
  require(!messages.empty(), ErrorKind::data, "no turns");
  add_messages(messages, true, chat);
  chat.tools = read_tools(record);
  return chat;
}

}  // namespace zeno::data
