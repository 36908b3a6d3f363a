// Records become tokens with a mark on each that is to be learned.
//
// The rules (docs/data.md): a token is learned when any of its bytes belongs to what the model has to write:
// assistant turns with what ends them, completions with eos, whole texts with eos. Owns the tokenizer and the
// chat template of a model folder. Const calls are safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "zeno/data/dataset/options.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {

class SampleEncoder {
 public:
  explicit SampleEncoder(const DatasetSpec& spec);
  ~SampleEncoder();

  // Error(data): the record cannot be used, for the reason given. Error(usage): none of its kind can.
  Sample encode(const Record& record) const;
  // A piece of a plain text file. Special tokens in its text are plain text.
  Sample encode_text(std::string_view piece, bool first, bool last) const;
  // Does the chat template say this name, such as that of a message's key? What it does not say it drops.
  bool template_reads(std::string_view name) const;
  bool has_template() const;
  // How records of a format are written, for the log.
  std::string layout_of(DataFormat format) const;

 private:
  struct Parts;
  Sample encode_chat(const ChatRecord& chat) const;
  Sample encode_prompt(const PromptRecord& record) const;
  Sample encode_whole(const std::string& text) const;
  Sample encode_tokens(const TokenRecord& record) const;
  void check_ids(const Sample& sample) const;

  std::unique_ptr<const Parts> parts_;
};

// Is there anything to predict? The first token never is.
bool has_target(const Sample& sample);

}  // namespace zeno::data
