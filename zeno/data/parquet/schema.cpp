#include "zeno/data/parquet/schema.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::data::parquet {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxColumns = 10'000;  // each has a page in memory

// Walks the elements, which the file lists depth first, and builds fields and columns as it goes.
class SchemaBuilder {
 public:
  explicit SchemaBuilder(const std::vector<SchemaElement>& elements) : elements_(elements) {}

  Schema build() {
    require(!elements_.empty() && elements_[0].children > 0, ErrorKind::data, "the schema has no columns");
    schema_.root = object({});
    require(at_ == elements_.size(), ErrorKind::data, "the schema has {} elements, expected {}",
            elements_.size(), at_);
    return std::move(schema_);
  }

 private:
  struct Levels {
    int definition = 0, repetition = 0;
    std::string path;
    int depth = 0;
  };

  const SchemaElement& element(size_t at) const {
    require(at < elements_.size(), ErrorKind::data, "the schema ends early");
    return elements_[at];
  }
  const SchemaElement& here() const { return element(at_); }

  Levels below(const Levels& levels) const {
    const SchemaElement& e = here();
    require(levels.depth < kMaxDepth, ErrorKind::data, "the schema is nested deeper than {} levels",
            kMaxDepth);
    Levels inner = levels;
    inner.definition += e.repetition != Repetition::required;
    inner.repetition += e.repetition == Repetition::repeated;
    inner.path += (inner.path.empty() ? "" : ".") + e.name;
    inner.path.resize(std::min(inner.path.size(), kMaxPath));
    ++inner.depth;
    return inner;
  }

  // The element that is next, whatever it is, and all below it.
  Field field(const Levels& outer) {
    const std::string name = here().name;
    require(name.size() <= kMaxName && is_valid_utf8(name), ErrorKind::data,
            "a column in '{}' has a name that is not UTF-8 or longer than {} bytes", outer.path, kMaxName);
    Field field;
    if (here().repetition == Repetition::repeated) {
      // Repeated without being called a list: elements without a list around them, which is never null.
      field = list_around(outer);
      field.defined = outer.definition;
    } else {
      const Levels levels = below(outer);
      field = content(levels);
      field.defined = levels.definition;
    }
    field.name = name;
    return field;
  }

  // `levels` are those inside the element that is next, its own repetition counted.
  Field content(const Levels& levels) {
    if (here().children == 0) return column(levels);
    const Meaning meaning = here().logical.meaning;
    const bool wraps = here().children == 1 && element(at_ + 1).repetition == Repetition::repeated;
    if (wraps && meaning == Meaning::list) return list(levels);
    if (wraps && meaning == Meaning::map && element(at_ + 1).children == 2) return map(levels);
    return object(levels);
  }

  Field column(const Levels& levels) {
    const SchemaElement& e = here();
    require(e.physical.has_value(), ErrorKind::data, "column '{}' has no type", levels.path);
    require(*e.physical != PhysicalType::fixed_bytes || e.length > 0, ErrorKind::data,
            "column '{}' has values of {} bytes", levels.path, e.length);
    require(schema_.columns.size() < kMaxColumns, ErrorKind::data, "the schema has more than {} columns",
            kMaxColumns);
    Field field{.kind = Field::Kind::value, .first_column = schema_.columns.size(), .columns = 1};
    schema_.columns.push_back({.path = levels.path,
                               .type = {*e.physical, e.length, sensible(e)},
                               .max_definition = levels.definition,
                               .max_repetition = levels.repetition});
    ++at_;
    return field;
  }

  Field object(const Levels& levels) {
    const int32_t children = here().children;
    ++at_;
    Field object{.kind = Field::Kind::object, .first_column = schema_.columns.size()};
    std::set<std::string_view> names;
    for (int32_t i = 0; i < children; ++i) {
      require(names.insert(here().name).second, ErrorKind::data, "two columns are called '{}'",
              here().name.substr(0, kMaxPath));
      object.children.push_back(field(levels));
    }
    object.columns = schema_.columns.size() - object.first_column;
    return object;
  }

  // A group called a list, with one repeated child. That child stands for the element, or, in most files, has
  // the element as its one child; the rules are those of the format's description.
  Field list(const Levels& levels) {
    const std::string list_name = here().name;
    ++at_;
    const SchemaElement& repeated = here();
    const bool is_element = repeated.children != 1 || repeated.name == "array" ||
                            repeated.name == list_name + "_tuple" ||
                            element(at_ + 1).repetition == Repetition::repeated;
    if (is_element) return list_around(levels);
    const Levels inner = below(levels);
    ++at_;
    Field list{.kind = Field::Kind::list,
               .present = inner.definition,
               .repetition = inner.repetition,
               .first_column = schema_.columns.size()};
    list.children.push_back(field(inner));
    list.columns = schema_.columns.size() - list.first_column;
    return list;
  }

  // The list of what is next, which is repeated.
  Field list_around(const Levels& levels) {
    const Levels inner = below(levels);
    Field list{.kind = Field::Kind::list,
               .present = inner.definition,
               .repetition = inner.repetition,
               .first_column = schema_.columns.size()};
    list.children.push_back(content(inner));
    list.children[0].defined = inner.definition;
    list.columns = schema_.columns.size() - list.first_column;
    return list;
  }

  Field map(const Levels& levels) {
    ++at_;
    const Levels inner = below(levels);
    ++at_;
    Field map{.kind = Field::Kind::map,
              .present = inner.definition,
              .repetition = inner.repetition,
              .first_column = schema_.columns.size()};
    map.children.push_back(field(inner));
    map.children.push_back(field(inner));
    map.columns = schema_.columns.size() - map.first_column;
    return map;
  }

  // Logical types that do not fit the physical one say nothing.
  static LogicalType sensible(const SchemaElement& e) {
    const bool integer = e.physical == PhysicalType::int32 || e.physical == PhysicalType::int64;
    const bool bytes = e.physical == PhysicalType::bytes || e.physical == PhysicalType::fixed_bytes;
    const LogicalType& l = e.logical;
    switch (l.meaning) {
      case Meaning::date:
      case Meaning::unsigned_integer:
        return integer ? l : LogicalType{};
      case Meaning::time:
      case Meaning::timestamp:
        return integer && l.fraction_digits > 0 ? l : LogicalType{};
      case Meaning::decimal:
        return (integer || bytes) && l.scale >= 0 && l.scale <= kMaxScale ? l : LogicalType{};
      default:
        return l;
    }
  }

  static constexpr size_t kMaxPath = 200;   // shown in messages
  static constexpr size_t kMaxName = 4096;  // becomes a key of every row
  static constexpr int kMaxScale = 76;

  const std::vector<SchemaElement>& elements_;
  size_t at_ = 0;
  Schema schema_;
};

}  // namespace

Schema read_schema(const std::vector<SchemaElement>& elements) { return SchemaBuilder(elements).build(); }

}  // namespace zeno::data::parquet
