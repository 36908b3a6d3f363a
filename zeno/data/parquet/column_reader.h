// One column of one row group as a sequence of entries. An entry is a value, or says at which level of the
// schema there is none; its levels say where it belongs (Dremel's repetition and definition levels). One page
// is in memory at a time, and the dictionary. Errors name file, row group and column. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "zeno/data/parquet/decoder.h"
#include "zeno/data/parquet/json_value.h"
#include "zeno/data/parquet/page_reader.h"
#include "zeno/data/parquet/rle.h"

namespace zeno::data::parquet {

class ColumnReader {
 public:
  // `place` begins the messages: "[data] x.parquet: row group 2". All references outlive the reader.
  ColumnReader(const std::string& place, const File& file, uint64_t end, const ColumnChunk& chunk,
               const Column& column, PageDecompressor& shared);

  // The levels of the entry at hand; after the last one, definition() is an error and repetition() is 0, the
  // level at which a row begins.
  int definition();
  int repetition();
  // Take the current entry, whose repetition level must be the given one. It must be a value, or have a
  // definition level below `below`.
  Json take(int repetition);
  void skip(int repetition, int below);
  // An error unless every entry was taken.
  void finish();

 private:
  bool load_entry();
  void load_page();
  void expect_repetition(int repetition);
  template <class F>
  auto located(F&& f) const;

  const std::string& place_;
  const Column& column_;
  PageReader pages_;
  uint64_t values_left_;  // entries in pages still to come
  int32_t in_page_ = 0;   // entries of this page still to come
  bool loaded_ = false;   // is there a current entry?
  int repetition_ = 0, definition_ = 0;
  RleReader repetitions_, definitions_;
  PageBuffer dictionary_page_;
  Dictionary dictionary_;
  bool has_dictionary_ = false;
  std::unique_ptr<Decoder> values_;
};

}  // namespace zeno::data::parquet
