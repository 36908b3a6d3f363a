// One record of a data file: recognised, checked, and converted to one of four shapes. Every problem is an
// Error(data) whose message is the reason; the caller adds file and line. Internal to dataset/: holds JSON by
// value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "zeno/data/dataset/cache.h"
#include "zeno/data/dataset/fields.h"
#include "zeno/data/dataset/options.h"
#include "zeno/data/parse_json.h"

namespace zeno::data {

// Messages as a chat template expects them: objects with role and content.
struct ChatRecord {
  Json messages = Json::array();
  Json tools;                  // null: none
  std::vector<uint8_t> train;  // one per assistant message: is it trained?
};
struct PromptRecord {
  std::string prompt, completion;
};
// Instruction, input and answer; becomes a chat, or a prompt in a plain layout if there is no template.
struct AlpacaRecord {
  std::string system, instruction, input, output;
  std::vector<std::pair<std::string, std::string>> history;  // earlier questions and answers
};
struct TextRecord {
  std::string text;
};
struct TokenRecord {
  Sample sample;
  bool marked = false;  // the record says what is trained
};
using Record = std::variant<ChatRecord, PromptRecord, AlpacaRecord, TextRecord, TokenRecord>;

// What people call the text that comes before a conversation.
constexpr Names kSystemNames{"system", "system_prompt", "system_message", "meta_instruction"};

// The format of a record by its fields. Error(data): an unknown format, or one that no objective supports
// yet.
DataFormat detect_format(const Fields& fields);
// The samples of a record: one, but for tasks with several instances. Texts are moved out of the record.
std::vector<Record> read_record(Fields& fields, DataFormat format);

ChatRecord chat_of(AlpacaRecord&& record);
PromptRecord plain_layout_of(AlpacaRecord&& record);

// Parts of detect_format and read_record (refusals.cpp): preferences, images, sound, video and prompts
// without an answer are refused by name.
void refuse_unsupported(const Fields& fields);
void refuse_media_in(const Record& record);
std::string unknown_format_text(const Fields& fields);

// record_tokens.cpp
TokenRecord read_tokens(Fields& fields);

// Conversations (record_chat.cpp): messages with role and content, turns with from and value, pairs of
// {human, assistant}, or texts of which every other is the assistant's.
bool looks_like_message(const Json& value);
bool has_conversation(const Fields& fields);
// How its turns are written: messages or sharegpt.
DataFormat conversation_format(const Fields& fields);
ChatRecord read_conversation(Fields& fields);
Json read_tools(Fields& fields);  // null: none
// Appends checked messages; `train` is the default of assistant messages without a flag of their own.
void add_messages(Json&& list, bool train, ChatRecord& out);
// A list itself, or the list that a text holds as JSON, which is put into `parsed`; null: the value is
// neither.
const Json* find_list(const Json& value, Json& parsed);
// The same list, moved out of the value; null: the value is neither, and as it was.
Json take_list(Json& value);

// record_turns.cpp: one turn of a conversation as messages, appended to `out`.
void add_turn(Json&& turn, Fields& fields, Json& out);
// MOSS writes {"turn_1": {"Human": …, "MOSS": …}, …}.
Json messages_of_moss(Json& turns);

}  // namespace zeno::data
