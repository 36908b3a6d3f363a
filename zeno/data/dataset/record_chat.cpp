#include <array>
#include <string_view>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

constexpr Names kConversation{"messages", "conversations", "conversation", "dialogue",
                              "dialog",   "turns",         "items"};

// Text parts are joined; anything else in a list of parts cannot be trained on.
std::string joined_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    require(part.is_object(), ErrorKind::data, "a message has a part that is not a text");
    const auto type = part.find("type");
    const bool typed = type != part.end() && type->is_string();
    const bool is_text = !typed || *type == "text" || *type == "input_text" || *type == "output_text";
    require(is_text, ErrorKind::data,
            "a message has a part of type '{}', which is not a text; only text is supported, leave such "
            "records out",
            typed ? shortened(type->get<std::string>(), 40) : "");
    const auto content = part.contains("text") ? part.find("text") : part.find("value");
    require(content != part.end() && content->is_string(), ErrorKind::data,
            "a message has a part that is not a text");
    text += content->get_ref<const std::string&>();
  }
  return text;
}

// OpenAI writes arguments as a JSON text; templates print them themselves.
void unpack_arguments(Json& calls) {
  require(calls.is_array(), ErrorKind::data, "'tool_calls' is not a list");
  for (Json& call : calls) {
    require(call.is_object(), ErrorKind::data, "'tool_calls' has an entry that is not an object");
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("arguments") || !function["arguments"].is_string()) {
      continue;
    }
    try {
      Json arguments = parse_json(function["arguments"].get_ref<const std::string&>());
      if (arguments.is_object()) function["arguments"] = std::move(arguments);
    } catch (const Error&) {  // stays the text that it is
    }
  }
}

// What OpenAI wrote before there were tool calls.
void rename_function_call(Json& message) {
  if (message.contains("function_call") && message["function_call"].is_object() &&
      !message.contains("tool_calls")) {
    message["tool_calls"] =
        Json::array({{{"type", "function"}, {"function", std::move(message["function_call"])}}});
    message.erase("function_call");
  }
  if (message["role"] == "function") message["role"] = "tool";
}

// The message's own flag for whether it is trained; the keys are not for the template.
bool take_flag(Json& message, bool otherwise) {
  bool train = otherwise;
  for (const char* key : {"weight", "train", "training", "loss", "loss_weight", "output_with_loss"}) {
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
      require(found->is_null(), ErrorKind::data, "'{}' of a message is not true, false, 0 or 1", key);
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
  require(content->is_string(), ErrorKind::data, "'content' of a message is not a text");
}

// The list of turns, and under which name; null: there is none.
Json* find_turns(const Fields& fields) {
  Json* value = fields.find(kConversation);
  if (value != nullptr) return value;
  value = fields.find({"chat"});
  if (value != nullptr && value->is_object() && value->contains("turn_1")) return value;
  // UltraChat: texts of which every other is the assistant's.
  value = fields.find({"data"});
  const bool texts = value != nullptr && value->is_array() && !value->empty() && (*value)[0].is_string();
  return texts ? value : nullptr;
}

}  // namespace

const Json* find_list(const Json& value, Json& parsed) {
  if (value.is_array()) return &value;
  if (!value.is_string()) return nullptr;
  const std::string& text = value.get_ref<const std::string&>();
  const size_t from = text.find_first_not_of(" \t\r\n");
  if (from == std::string::npos || text[from] != '[') return nullptr;
  try {
    parsed = parse_json(text);
    return &parsed;
  } catch (const Error&) {
    return nullptr;
  }
}

Json take_list(Json& value) {
  if (value.is_array()) return std::exchange(value, nullptr);
  Json parsed;
  if (find_list(value, parsed) != nullptr) value = nullptr;
  return parsed;
}

bool looks_like_message(const Json& value) {
  if (!value.is_object()) return false;
  const auto is_text = [&](const char* key) { return value.contains(key) && value[key].is_string(); };
  return (is_text("role") && (value.contains("content") || value.contains("tool_calls"))) ||
         (is_text("from") && value.contains("value"));
}

bool has_conversation(const Fields& fields) {
  const Json* turns = find_turns(fields);
  Json parsed;
  return turns != nullptr && (turns->is_object() || find_list(*turns, parsed) != nullptr);
}

DataFormat conversation_format(const Fields& fields) {
  Json parsed;
  const Json* turns = find_list(*find_turns(fields), parsed);
  const bool named = fields.has({"messages"});
  if (turns == nullptr || turns->empty()) return named ? DataFormat::messages : DataFormat::sharegpt;
  const bool by_role = (*turns)[0].is_object() && (*turns)[0].contains("role");
  return by_role ? DataFormat::messages : DataFormat::sharegpt;
}

// Tools are a list of JSON schemas, or the text of one.
Json read_tools(Fields& fields) {
  Json* found = fields.take({"tools", "functions"});
  if (found == nullptr || is_empty_value(*found)) return nullptr;
  Json tools = take_list(*found);
  require(tools.is_array(), ErrorKind::data, "'tools' is not a list");
  return tools.empty() ? Json(nullptr) : tools;
}

void add_messages(Json&& list, bool train, ChatRecord& out) {
  for (Json& item : list) {
    require(item.is_object(), ErrorKind::data, "a message is not an object");
    Json message = std::move(item);
    const auto role = message.find("role");
    require(role != message.end() && role->is_string(), ErrorKind::data, "a message has no 'role'");
    rename_function_call(message);
    const bool assistant = message["role"] == "assistant";
    const bool learn = take_flag(message, train);
    if (message.contains("tool_calls") && !message["tool_calls"].is_null()) {
      unpack_arguments(message["tool_calls"]);
    }
    check_content(message);
    if (assistant) out.train.push_back(learn);
    out.messages.push_back(std::move(message));
  }
}

ChatRecord read_conversation(Fields& fields) {
  Json* found = find_turns(fields);
  require(found != nullptr, ErrorKind::data, "no 'messages' and no 'conversations'; the fields are {}",
          fields.list());
  fields.take(kConversation);
  if (found == fields.find({"chat"})) fields.take({"chat"});
  if (found == fields.find({"data"})) fields.take({"data"});
  Json messages = Json::array();
  if (found->is_object()) {
    messages = messages_of_moss(*found);
  } else {
    Json turns = take_list(*found);
    require(turns.is_array(), ErrorKind::data, "the conversation is neither a list nor the JSON of one");
    bool user = true;
    for (Json& turn : turns) {
      if (turn.is_string()) {
        messages.push_back({{"role", user ? "user" : "assistant"}, {"content", std::move(turn)}});
        user = !user;
      } else {
        add_turn(std::move(turn), fields, messages);
      }
    }
  }
  require(!messages.empty(), ErrorKind::data, "no messages");
  // A system message of the conversation's own has the say; another one beside it is told as not used.
  const std::string* system = fields.find_text(kSystemNames);
  const bool own = messages[0]["role"] == "system";
  if (system != nullptr && (!own || messages[0]["content"] == *system)) {
    Json message{{"role", "system"}, {"content", fields.text(kSystemNames)}};
    if (!own && message["content"] != "") messages.insert(messages.begin(), std::move(message));
  }
  ChatRecord chat;
  add_messages(std::move(messages), true, chat);
  chat.tools = read_tools(fields);
  return chat;
}

}  // namespace zeno::data
