// Reads the pages of one column chunk, one at a time: header, checksum, decompression, levels apart from
// values. Owns the page's bytes; the file and the shared parts outlive it. One thread. Errors are an
// Error(data) with only the reason.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "zeno/data/compression/decompressor.h"
#include "zeno/data/parquet/forward_reader.h"
#include "zeno/data/parquet/metadata.h"
#include "zeno/data/parquet/page_buffer.h"
#include "zeno/data/parquet/schema.h"

namespace zeno::data::parquet {

// What the columns of a file need only once.
class PageDecompressor {
 public:
  explicit PageDecompressor(uint64_t page_bytes) : budget{page_bytes} {}

  // All of `out`, or an error. Codecs without a decompressor are refused by name.
  void decompress(Codec codec, std::string_view in, std::span<char> out);
  // Room for a page as it is stored in the file.
  std::span<char> compressed(size_t bytes);

  PageBudget budget;

 private:
  std::unique_ptr<Decompressor> gzip_, zstd_;
  std::string compressed_;
};

// Views of the reader's buffer, valid until the next page.
struct Page {
  PageHeader header;
  std::string_view repetition_levels, definition_levels, values;
};

class PageReader {
 public:
  // Pages are before byte `end` of the file.
  PageReader(const File& file, uint64_t end, const ColumnChunk& chunk, const Column& column,
             PageDecompressor& shared);

  // The next page of data or the dictionary.
  Page next();
  // Hands over the bytes that the last page's views point to.
  PageBuffer take_buffer() { return std::exchange(buffer_, PageBuffer(shared_->budget)); }

 private:
  PageHeader next_header();
  void load(const PageHeader& header);
  void split_levels(Page& page) const;

  ForwardReader input_;
  Codec codec_;
  int max_repetition_, max_definition_;
  PageDecompressor* shared_;
  PageBuffer buffer_;
};

}  // namespace zeno::data::parquet
