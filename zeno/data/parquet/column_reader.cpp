#include "zeno/data/parquet/column_reader.h"

#include <bit>

#include "zeno/base/error.h"

namespace zeno::data::parquet {

// Says where it happened.
template <class F>
auto ColumnReader::located(F&& f) const {
  try {
    return f();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    fail(ErrorKind::data, "{}, column '{}': {}", place_, column_.path, error.what());
  }
}

ColumnReader::ColumnReader(const std::string& place, const File& file, uint64_t end, const ColumnChunk& chunk,
                           const Column& column, PageDecompressor& shared)
    : place_(place),
      column_(column),
      pages_(located([&] {
        require(chunk.physical == column.type.physical, ErrorKind::data,
                "holds values of physical type {}, expected {}", int(chunk.physical),
                int(column.type.physical));
        return PageReader(file, end, chunk, column, shared);
      })),
      values_left_(uint64_t(chunk.values)),
      dictionary_page_(shared.budget) {}

void ColumnReader::load_page() {
  values_.reset();
  Page page = pages_.next();
  if (page.header.kind == PageKind::dictionary) {
    require(!has_dictionary_, ErrorKind::data, "got two dictionaries");
    const bool plain =
        page.header.encoding == Encoding::plain || page.header.encoding == Encoding::plain_dictionary;
    require(plain, ErrorKind::data, "got a dictionary in encoding {}, expected plain",
            int(page.header.encoding));
    dictionary_ = read_dictionary(page.values, page.header.values, column_.type);
    dictionary_page_ = pages_.take_buffer();
    has_dictionary_ = true;
    return;
  }
  require(uint64_t(page.header.values) <= values_left_, ErrorKind::data,
          "its pages have more values than it says");
  const auto levels = [](std::string_view bytes, int max) {
    return RleReader(bytes, std::bit_width(unsigned(max)));
  };
  repetitions_ = levels(page.repetition_levels, column_.max_repetition);
  definitions_ = levels(page.definition_levels, column_.max_definition);
  values_ = make_decoder(page.header.encoding, page.values, column_.type, dictionary_);
  in_page_ = page.header.values;
  values_left_ -= uint64_t(in_page_);
}

// False: there are no more.
bool ColumnReader::load_entry() {
  if (loaded_) return true;
  return located([&] {
    while (in_page_ == 0) {
      if (values_left_ == 0) return false;
      load_page();
    }
    --in_page_;
    repetition_ = column_.max_repetition > 0 ? int(repetitions_.next()) : 0;
    definition_ = column_.max_definition > 0 ? int(definitions_.next()) : 0;
    require(repetition_ <= column_.max_repetition && definition_ <= column_.max_definition, ErrorKind::data,
            "got the levels {} and {}, expected at most {} and {}", repetition_, definition_,
            column_.max_repetition, column_.max_definition);
    return loaded_ = true;
  });
}

int ColumnReader::definition() {
  const bool more = load_entry();
  located([&] { require(more, ErrorKind::data, "it has fewer values than there are rows"); });
  return definition_;
}

int ColumnReader::repetition() { return load_entry() ? repetition_ : 0; }

void ColumnReader::expect_repetition(int repetition) {
  definition();
  located([&] {
    require(repetition_ == repetition, ErrorKind::data,
            "its lists do not match those of its neighbours (level {}, expected {})", repetition_,
            repetition);
  });
  loaded_ = false;
}

Json ColumnReader::take(int repetition) {
  expect_repetition(repetition);
  return located([&] {
    require(definition_ == column_.max_definition, ErrorKind::data,
            "its nulls do not match those of its neighbours");
    return json_value(values_->next(), column_.type);
  });
}

void ColumnReader::skip(int repetition, int below) {
  expect_repetition(repetition);
  located([&] {
    require(definition_ < below, ErrorKind::data, "its nulls do not match those of its neighbours");
  });
}

void ColumnReader::finish() {
  const bool more = load_entry();
  located([&] { require(!more, ErrorKind::data, "it has more values than there are rows"); });
}

}  // namespace zeno::data::parquet
