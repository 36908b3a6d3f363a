// What `zeno generate` is asked: plain texts, or conversations that the model's chat template turns into
// text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/data/chat/chat_template.h"
#include "zeno/data/tokenizer.h"

namespace zeno::cli {

struct Prompt {
  std::string text;                 // as the user gave it
  nlohmann::ordered_json messages;  // a conversation; null: the text is continued as it is
};

// One prompt per line: plain text, or JSON objects with "prompt" or "messages". A bad line is an Error(data)
// that names it.
std::vector<Prompt> read_prompts(const Path& file);

// Puts a system message (unless empty) and the text as the user's turn.
nlohmann::ordered_json conversation(const std::string& system, const std::string& text);

// Turns prompts into tokens as the folder's tokenizer and chat template say.
class PromptEncoder {
 public:
  // `choice` of the template as ChatTemplate::open takes it; it is opened when a conversation comes. `extra`
  // are further variables for it, a JSON object; `date` is its date, YYYY-MM-DD; empty: today.
  PromptEncoder(Path folder, std::string choice, std::string extra = "", const std::string& date = "");

  const data::Tokenizer& tokenizer() const { return tokenizer_; }
  std::vector<int32_t> encode(const Prompt& prompt);

 private:
  Path folder_;
  std::string choice_, extra_;
  int64_t now_;
  data::Tokenizer tokenizer_;
  std::optional<data::ChatTemplate> template_;
};

}  // namespace zeno::cli
