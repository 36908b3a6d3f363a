// The shape of a row: the tree of fields that a Parquet schema describes, with lists and maps told from plain
// structs, and its columns. Built once per file and never changed.
#pragma once

#include <string>
#include <vector>

#include "zeno/data/parquet/metadata.h"

namespace zeno::data::parquet {

struct Column {
  std::string path;  // "messages.list.element.content"
  ValueType type;
  int max_definition = 0, max_repetition = 0;
};

struct Field {
  enum class Kind { value, object, list, map };

  std::string name;
  Kind kind = Kind::value;
  int defined = 0;                       // the definition level from which on the field is not null
  int present = 0;                       // list, map: the definition level from which on there is an element
  int repetition = 0;                    // list, map: the repetition level of all elements but the first
  size_t first_column = 0, columns = 0;  // those below it
  std::vector<Field> children;           // of an object; the element of a list; key and value of a map
};

struct Schema {
  Field root;  // an object that is always there
  std::vector<Column> columns;
};

// An Error(data) with only the reason if the elements are not a tree of sensible size.
Schema read_schema(const std::vector<SchemaElement>& elements);

}  // namespace zeno::data::parquet
