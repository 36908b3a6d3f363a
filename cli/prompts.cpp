#include "cli/prompts.h"

#include <ctime>
#include <sstream>

#include "zeno/base/error.h"
#include "zeno/data/chat/chat_date.h"
#include "zeno/data/chat/special_guard.h"
#include "zeno/data/parse_json.h"

namespace zeno::cli {
namespace {

using data::Json;

// More than any context holds, in whatever language; tokens take many times their bytes while they are made.
constexpr size_t kMaxPromptBytes = size_t(16) << 20;
constexpr uint64_t kMaxFileBytes = uint64_t(128) << 20;

void check_length(const std::string& text) {
  require(text.size() <= kMaxPromptBytes, ErrorKind::data,
          "[generate] got a prompt of {} bytes, expected at most {}; shorten it", text.size(),
          kMaxPromptBytes);
}

Json parse_object(const std::string& line, const std::string& where) {
  try {
    return data::parse_json(line);
  } catch (const Error& error) {
    fail(ErrorKind::data, "[generate] {}: {}", where, error.what());
  }
}

Prompt parse_line(const std::string& line, const std::string& where) {
  if (!line.starts_with('{')) return {line, nullptr};
  const Json json = parse_object(line, where);
  if (json.contains("messages") && json["messages"].is_array()) return {{}, json["messages"]};
  require(json.contains("prompt") && json["prompt"].is_string(), ErrorKind::data,
          "[generate] {}: has neither \"prompt\" (a text) nor \"messages\" (a list)", where);
  return {json["prompt"], nullptr};
}

}  // namespace

std::vector<Prompt> read_prompts(const Path& file) {
  require(file_exists(file), ErrorKind::data, "[generate] {}: no such file; check the path", file.string());
  std::istringstream lines(read_file(file, kMaxFileBytes));
  std::vector<Prompt> prompts;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) prompts.push_back(parse_line(line, fmt::format("{}:{}", file.string(), number)));
  }
  require(!prompts.empty(), ErrorKind::data, "[generate] {}: has no prompts, expected one per line",
          file.string());
  return prompts;
}

Json conversation(const std::string& system, const std::string& text) {
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  if (!text.empty()) messages.push_back({{"role", "user"}, {"content", text}});
  return messages;
}

PromptEncoder::PromptEncoder(Path folder, std::string choice, std::string extra, const std::string& date)
    : folder_(std::move(folder)),
      choice_(std::move(choice)),
      extra_(std::move(extra)),
      now_(date.empty() ? int64_t(std::time(nullptr)) : data::parse_chat_date(date)),
      tokenizer_(data::Tokenizer::open(folder_)) {}

std::vector<int32_t> PromptEncoder::encode(const Prompt& prompt) {
  if (!prompt.messages.is_null()) {
    if (!template_) template_ = data::ChatTemplate::open(folder_, choice_);
    // As in training: what a user writes is text, whatever it says.
    const data::RenderedChat chat = template_->render_prompt(
        prompt.messages, nullptr, {.add_generation_prompt = true, .extra = extra_, .now = now_});
    check_length(chat.text);
    std::vector<int32_t> tokens;
    data::for_each_token_in_pieces(tokenizer_, chat.text, data::SpecialGuard(tokenizer_).cuts(chat),
                                   [&](int32_t id, data::TextSpan) { tokens.push_back(id); });
    return tokens;
  }
  check_length(prompt.text);
  std::vector<int32_t> tokens = tokenizer_.encode(prompt.text, {.add_special = true, .parse_special = true});
  // Nothing to continue: start a document.
  if (tokens.empty() && tokenizer_.bos()) tokens.push_back(*tokenizer_.bos());
  if (tokens.empty() && tokenizer_.eos()) tokens.push_back(*tokenizer_.eos());
  return tokens;
}

}  // namespace zeno::cli
