// Plain text in pieces that a tokenizer can take at once, cut at line ends. For one thread.
#pragma once

#include <vector>

#include "zeno/data/dataset/text_buffer.h"

namespace zeno::data {

class PlainTextReader : public RecordReader {
 public:
  PlainTextReader(const Path& path, const ReaderOptions& options) : options_(options), text_(path, options) {}

  void next(std::vector<RawRecord>& out) override;
  uint64_t bytes_read() const override { return text_.bytes_read(); }

 private:
  void take(std::vector<RawRecord>& out);

  ReaderOptions options_;
  TextBuffer text_;
  uint64_t taken_ = 0;
  bool first_ = true, done_ = false;
};

}  // namespace zeno::data
