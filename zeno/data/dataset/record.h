// One record of a data file: found out what it is, checked, and brought into one of four shapes. Everything
// wrong with it is an Error(data) whose message is the reason; the caller adds file and line. Internal to
// dataset/: holds JSON by value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "zeno/data/dataset/cache.h"
#include "zeno/data/dataset/options.h"

namespace zeno::data {

using Json = nlohmann::ordered_json;

// Messages as a chat template expects them: objects with role and content.
struct ChatRecord {
  Json messages = Json::array();
  Json tools;                  // null: none
  std::vector<uint8_t> train;  // one per assistant message: is it to be learned?
};
struct PromptRecord {
  std::string prompt, completion;
};
// Instruction, input and answer; becomes a chat, or a prompt in a plain layout where there is no template.
struct AlpacaRecord {
  std::string system, instruction, input, output;
  std::vector<std::pair<std::string, std::string>> history;  // earlier questions and answers
};
struct TextRecord {
  std::string text;
};
struct TokenRecord {
  Sample sample;
  bool marked = false;  // the record said what is learned
};
using Record = std::variant<ChatRecord, PromptRecord, AlpacaRecord, TextRecord, TokenRecord>;

Json parse_json(std::string_view text);
// What the keys of a record say it is.
DataFormat detect_format(const Json& record);
Record read_record(const Json& record, DataFormat format);

ChatRecord chat_of(const AlpacaRecord& record);
PromptRecord plain_layout_of(const AlpacaRecord& record);

// Parts of read_record: chats as `messages` or `conversations`, with role/content or from/value.
ChatRecord read_messages(const Json& record);
ChatRecord read_sharegpt(const Json& record);
// Appends checked messages; `train` is the default of assistant messages without a flag of their own.
Json read_tools(const Json& record);  // null: none
void add_messages(const Json& list, bool train, ChatRecord& out);

}  // namespace zeno::data
