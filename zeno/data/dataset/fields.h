// The fields of one record by the names that Zeno knows, and which of them were read. Values that were not
// read are reported to the user, so nothing is dropped silently.
//
// A view: the record and the columns must outlive it. Texts are moved out of the record as they are read. For
// one thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/dataset/columns.h"
#include "zeno/data/parse_json.h"

namespace zeno::data {

using Names = std::initializer_list<const char*>;  // of one thing

inline const Columns kNoColumns;

class Fields {
 public:
  // An object, or a list of messages, which reads as {"messages": list}. A field of `columns` is looked for
  // in its column only. Error(data): neither, or a column that must be there is not.
  explicit Fields(Json& record, const Columns& columns = kNoColumns);

  // The first of several names of one thing that has a value other than null; null: none. Names match in any
  // case. `take` marks it as read.
  Json* find(Names names) const;
  Json* take(Names names);
  bool has(Names names) const { return find(names) != nullptr; }
  // A text that must be there, or may be; it is moved out of the record. Error(data): missing, or not a text.
  std::string text(Names names);
  std::string optional_text(Names names);
  // A text unchanged, or null if the field is missing or not a text.
  const std::string* find_text(Names names) const;

  // Part of a value that is not read, such as "conversation.need_eos".
  void add_unused(std::string name);
  // Names of fields with a value that was not read.
  std::vector<std::string> unused() const;
  // "a, b, c", for errors.
  std::string list() const;
  // Does --columns name a column for one of these fields, or for any?
  bool maps(Names fields) const;
  bool mapped() const { return !columns_->empty(); }
  // All names in the file with a value, for checks on what a record is.
  template <class F>
  void for_each(F&& f) const {
    for (const Entry& entry : entries_) f(std::string_view(*entry.key), *entry.value);
  }

 private:
  struct Entry {
    const std::string* key;  // in the file
    std::string_view name;   // to Zeno; empty: hidden by --columns
    Json* value;
    bool taken = false;
  };
  const Entry* entry_of(Names names) const;

  const Columns* columns_;
  std::vector<Entry> entries_;
  std::vector<std::string> unused_;
};

// Is there nothing in it: null, "", [], {}?
bool is_empty_value(const Json& value);

}  // namespace zeno::data
