// Turns conversations into the text a model was trained on, and finds the assistant's text in it. The
// template is the model folder's own, one of our presets, or a file.
//
// A cheap value: copies share what was read, which never changes. Safe to share between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/data/chat/assistant_spans.h"
#include "zeno/data/text_span.h"

namespace zeno::data {

struct ChatOptions {
  bool add_generation_prompt = false;
  std::string extra;  // JSON object of template variables, e.g. {"enable_thinking": false}; empty: none
  // Ends after the content of the last message, so that a model can continue it.
  bool continue_final_message = false;
  // Seconds since 1970 (UTC) for strftime_now. Without, it is not defined and templates take the fixed date
  // they bring; those that bring none are refused.
  std::optional<int64_t> now;
};

// ChatOptions::extra as an object. Error(usage): it is none.
nlohmann::ordered_json template_variables(const std::string& extra);

struct RenderedChat {
  std::string text;
  // Bytes that the model has to write: the assistants' words, the template's marks among them and the end of
  // the turn, without the generation prompt; ascending, disjoint.
  std::vector<AssistantSpan> assistant;
  // Bytes that users, system messages and tools wrote; ascending, never inside of a span above.
  std::vector<TextSpan> others;
  // What a user should know about this template, the same words for every chat that it concerns.
  std::vector<std::string> remarks;
};

class ChatTemplate {
 public:
  // `choice`: empty: the folder's own (chat_template.jinja, else chat_template in tokenizer_config.json or
  // chat_template.json); else the name of a preset; else the path of a .jinja file. Special tokens always
  // come from the folder. Error(data/usage) says what there is.
  static ChatTemplate open(const Path& model_folder, const std::string& choice);
  // A template text on its own, without special tokens. `where` names it in errors.
  static ChatTemplate parse(const std::string& source, const std::string& where);
  static bool in_folder(const Path& model_folder);
  static std::vector<std::string> presets();

  // `messages`: array of {role, content, …}; `tools`: array or null. Also finds the author of every byte.
  // Words of an assistant that the template does not write are an Error(data).
  RenderedChat render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                      const ChatOptions& options) const;
  // For prompts: without finding out what of it to train on.
  RenderedChat render_prompt(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                             const ChatOptions& options) const;
  // Only the text.
  std::string render_text(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                          const ChatOptions& options) const;
  // The text of the template (the default one where a folder has several).
  const std::string& source() const;

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;  // shared: handed to the threads that prepare data
};

}  // namespace zeno::data
