// Turns records into tokens with a mark on each that is trained.
//
// The rules (docs/data.md): a token is trained if any of its bytes belongs to what the model has to write:
// assistant turns with what ends them, completions with eos, whole texts with eos. Owns the tokenizer and the
// chat template of a model folder. Const calls are safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/chat/assistant_spans.h"
#include "zeno/data/dataset/options.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {

class SampleEncoder {
 public:
  explicit SampleEncoder(const DatasetSpec& spec);
  ~SampleEncoder();

  // Error(data): the record cannot be used, for the reason given. Error(usage): none of its kind can. Adds
  // what the chat template does to records of this kind that a user should know, in words that are the same
  // for all.
  Sample encode(Record&& record, std::vector<std::string>& remarks) const;
  // A piece of a plain text file. Special tokens in its text are plain text.
  Sample encode_text(std::string_view piece, bool first, bool last) const;
  // How records of a format are written, for the log.
  std::string layout_of(DataFormat format) const;

 private:
  struct Parts;
  Sample encode_chat(ChatRecord&& chat, std::vector<std::string>& remarks) const;
  std::vector<TextSpan> trained_spans(const std::vector<AssistantSpan>& spans, const ChatRecord& chat) const;
  Sample encode_prompt(PromptRecord&& record) const;
  Sample encode_whole(const std::string& text) const;
  Sample encode_tokens(TokenRecord&& record) const;
  void check_ids(const Sample& sample) const;

  std::unique_ptr<const Parts> parts_;
};

// Is there anything to predict? The first token never is.
bool has_target(const Sample& sample);

}  // namespace zeno::data
