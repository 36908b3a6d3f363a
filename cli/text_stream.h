// The text of a sequence as its tokens arrive: whole characters only, and nothing that may turn out to be the
// beginning of a stop string. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeno/data/tokenizer.h"

namespace zeno::cli {

class TextStream {
 public:
  TextStream(const data::Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer, true), stops_(std::move(stops)) {}

  // Text that is certain now. Once a stop string has come, the text ends before it.
  std::string push(int32_t token) { return advance(decoder_.push(token), false); }
  std::string finish() { return advance(decoder_.finish(), true); }
  bool stopped() const { return stopped_; }

 private:
  std::string advance(const std::string& more, bool all);

  data::StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;  // not yet handed out
  bool stopped_ = false;
};

}  // namespace zeno::cli
