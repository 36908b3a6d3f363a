#include "zeno/data/parquet/row_reader.h"

#include <cstring>
#include <unordered_map>
#include <utility>

#include "zeno/base/error.h"

namespace zeno::data::parquet {
namespace {

constexpr uint64_t kTail = 8;                         // length of the footer, magic
constexpr uint64_t kMaxFooter = uint64_t(256) << 20;  // becomes a few times that in memory

uint64_t text_size(const Json& value) {
  const auto* text = value.get_ptr<const std::string*>();
  return text ? text->size() : value.is_binary() ? value.get_binary().size() : 0;
}

}  // namespace

RowReader::RowReader(const Path& path, const Limits& limits)
    : limits_(limits), file_(File::open(path)), shared_(limits.page_bytes) {
  try {
    read_footer();
    schema_ = read_schema(metadata_.schema);
    int64_t rows = 0;
    for (const RowGroup& group : metadata_.row_groups) {
      require(group.columns.size() == schema_.columns.size(), ErrorKind::data,
              "a row group has {} columns, the schema {}", group.columns.size(), schema_.columns.size());
      require(group.rows <= metadata_.rows - rows, ErrorKind::data, "the row groups have more than {} rows",
              metadata_.rows);
      rows += group.rows;
    }
    require(rows == metadata_.rows, ErrorKind::data, "the row groups have {} rows, expected {}", rows,
            metadata_.rows);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    fail(ErrorKind::data, "[data] {}: {}", path.string(), error.what());
  }
}

void RowReader::read_footer() {
  const uint64_t size = file_.size();
  require(size >= kTail, ErrorKind::data, "got {} bytes, expected a Parquet file", size);
  char tail[kTail];
  file_.read_at(tail, kTail, size - kTail);
  const std::string_view magic(tail + 4, 4);
  require(magic != "PARE", ErrorKind::data, "the file is encrypted; write it without encryption");
  require(magic == "PAR1", ErrorKind::data, "the file does not end like a Parquet file; is it complete?");
  uint32_t length = 0;
  std::memcpy(&length, tail, sizeof(length));
  require(length <= size - kTail && length <= kMaxFooter, ErrorKind::data,
          "got a footer of {} bytes in a file of {}; it is damaged", length, size);
  footer_at_ = size - kTail - length;
  std::string footer(length, '\0');
  file_.read_at(footer.data(), length, footer_at_);
  metadata_ = parse_file_metadata(footer);
}

void RowReader::open_group(const RowGroup& group) {
  place_ = fmt::format("[data] {}: row group {}", file_.path().string(), ++groups_opened_);
  left_in_group_ = group.rows;
  if (group.rows == 0) return;  // its columns may point nowhere
  for (size_t c = 0; c < schema_.columns.size(); ++c) {
    columns_.emplace_back(place_, file_, footer_at_, group.columns[c], schema_.columns[c], shared_);
  }
}

void RowReader::close_group() {
  for (ColumnReader& column : columns_) column.finish();
  columns_.clear();
}

bool RowReader::next(Json& row) {
  while (left_in_group_ == 0) {
    close_group();
    if (groups_opened_ == metadata_.row_groups.size()) return false;
    open_group(metadata_.row_groups[groups_opened_]);
  }
  --left_in_group_;
  ++rows_read_;
  row_bytes_ = 0;
  row = read(schema_.root, 0);
  return true;
}

Json RowReader::read(const Field& field, int repetition) {
  count(sizeof(Json));
  if (field.defined > 0 && columns_[field.first_column].definition() < field.defined) {
    skip(field, repetition, field.defined);
    return nullptr;
  }
  switch (field.kind) {
    case Field::Kind::object:
      return read_object(field, repetition);
    case Field::Kind::list:
      return read_list(field, repetition);
    case Field::Kind::map:
      return read_map(field, repetition);
    case Field::Kind::value:
      break;
  }
  Json value = columns_[field.first_column].take(repetition);
  count(text_size(value));
  return value;
}

Json RowReader::read_object(const Field& field, int repetition) {
  Json::object_t object;
  object.reserve(field.children.size());
  for (const Field& child : field.children) {
    count(sizeof(std::string) + child.name.size());
    // The schema has no name twice: no need to look for it among those that are there.
    object.Container::emplace_back(child.name, read(child, repetition));
  }
  return object;
}

Json RowReader::read_list(const Field& field, int repetition) {
  Json::array_t list;
  for_elements(field, repetition, [&](int level) { list.push_back(read(field.children[0], level)); });
  return list;
}

// Keys that are no text are written as JSON. Of a key that is there twice the last value counts.
Json RowReader::read_map(const Field& field, int repetition) {
  Json::object_t object;
  std::unordered_map<std::string, size_t> places;
  for_elements(field, repetition, [&](int level) {
    const Json key = read(field.children[0], level);
    std::string name = key.is_string() ? key.get<std::string>() : key.dump();
    Json value = read(field.children[1], level);
    const auto [place, added] = places.emplace(name, object.size());
    if (added) {
      object.Container::emplace_back(std::move(name), std::move(value));
    } else {
      object.Container::operator[](place->second).second = std::move(value);
    }
  });
  return object;
}

// Calls element(level) for each, with the repetition level of its first entry.
template <class F>
void RowReader::for_elements(const Field& field, int repetition, F&& element) {
  ColumnReader& first = columns_[field.first_column];
  if (first.definition() < field.present) return skip(field, repetition, field.present);
  element(repetition);
  while (first.repetition() == field.repetition) element(field.repetition);
}

// Every column below the field has one entry for what is not there.
void RowReader::skip(const Field& field, int repetition, int below) {
  for (size_t c = 0; c < field.columns; ++c) columns_[field.first_column + c].skip(repetition, below);
}

// A few bytes can stand for a list of billions.
void RowReader::count(uint64_t bytes) {
  row_bytes_ += bytes;
  require(row_bytes_ <= limits_.row_bytes, ErrorKind::data, "{}: row {} of the file needs more than {} bytes",
          place_, rows_read_, limits_.row_bytes);
}

}  // namespace zeno::data::parquet
