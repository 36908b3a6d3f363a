#include <limits>

#include "zeno/base/error.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

// An integer list; `name` for messages.
void check_integers(const Json& list, const char* name) {
  require(list.is_array(), ErrorKind::data, "'{}' is not a list", name);
  for (const Json& value : list) {
    const bool whole = value.is_number_integer() || value.is_boolean();
    require(whole, ErrorKind::data, "'{}' has an entry that is not an integer", name);
  }
}

// One as long as the ids.
void check_column(const Json& list, const char* name, size_t length) {
  check_integers(list, name);
  require(list.size() == length, ErrorKind::data, "'{}' has {} entries for {} tokens", name, list.size(),
          length);
}

int64_t integer_at(const Json& list, size_t i) {
  return list[i].is_boolean() ? int64_t(list[i].get<bool>()) : list[i].get<int64_t>();
}

}  // namespace

TokenRecord read_tokens(Fields& fields) {
  constexpr int64_t kIgnored = -100;  // the label of tokens without loss, as everywhere
  const Json* list = fields.take({"input_ids", "tokens"});
  require(list != nullptr, ErrorKind::data, "no 'input_ids'; the fields are {}", fields.list());
  check_integers(*list, "input_ids");
  const size_t length = list->size();
  TokenRecord out;
  const Json* labels = fields.take({"labels"});
  const Json* mask = nullptr;
  if (labels != nullptr) {
    check_column(*labels, "labels", length);
    for (size_t i = 0; i < length; ++i) {
      const int64_t wanted = integer_at(*labels, i);
      require(wanted == kIgnored || wanted == integer_at(*list, i), ErrorKind::data,
              "'labels' has {} at token {}, expected {} or -100", wanted, i, integer_at(*list, i));
    }
  } else if ((mask = fields.take({"mask", "loss_mask", "completion_mask", "assistant_masks"})) != nullptr) {
    check_column(*mask, "mask", length);
  }
  out.marked = labels != nullptr || mask != nullptr;
  const Json* seen = fields.take({"attention_mask"});  // 0: padding
  if (seen != nullptr) check_column(*seen, "attention_mask", length);
  out.sample.ids.reserve(length);
  out.sample.learned.reserve(length);
  for (size_t i = 0; i < length; ++i) {
    if (seen != nullptr && integer_at(*seen, i) == 0) continue;
    const int64_t id = integer_at(*list, i);
    require(id >= 0 && id <= std::numeric_limits<int32_t>::max(), ErrorKind::data, "token {} has id {}", i,
            id);
    out.sample.ids.push_back(int32_t(id));
    const bool learned =
        labels != nullptr ? integer_at(*labels, i) != kIgnored : mask == nullptr || integer_at(*mask, i) != 0;
    out.sample.learned.push_back(learned);
  }
  return out;
}

}  // namespace zeno::data
