#include <limits>

#include "zeno/base/error.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

// An integer list; `name` for messages.
std::vector<int64_t> integers(const Json& list, const char* name) {
  require(list.is_array(), ErrorKind::data, "'{}' is not a list", name);
  std::vector<int64_t> out;
  out.reserve(list.size());
  for (const Json& value : list) {
    const bool whole = value.is_number_integer() || value.is_boolean();
    require(whole, ErrorKind::data, "'{}' has an entry that is not an integer", name);
    out.push_back(value.is_boolean() ? int64_t(value.get<bool>()) : value.get<int64_t>());
  }
  return out;
}

// One as long as the ids.
std::vector<int64_t> column(const Json& list, const char* name, size_t length) {
  std::vector<int64_t> out = integers(list, name);
  require(out.size() == length, ErrorKind::data, "'{}' has {} entries for {} tokens", name, out.size(),
          length);
  return out;
}

}  // namespace

TokenRecord read_tokens(Fields& fields) {
  constexpr int64_t kIgnored = -100;  // the label of tokens without loss, as everywhere
  const Json* list = fields.take({"input_ids", "tokens"});
  require(list != nullptr, ErrorKind::data, "no 'input_ids'; the fields are {}", fields.list());
  const std::vector<int64_t> ids = integers(*list, "input_ids");
  std::vector<int64_t> learned(ids.size(), 1), seen(ids.size(), 1);
  TokenRecord out;
  if (const Json* labels = fields.take({"labels"})) {
    const std::vector<int64_t> wanted = column(*labels, "labels", ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      learned[i] = wanted[i] != kIgnored;
      require(!learned[i] || wanted[i] == ids[i], ErrorKind::data,
              "'labels' has {} at token {}, expected {} or -100", wanted[i], i, ids[i]);
    }
    out.marked = true;
  } else if (const Json* mask = fields.take({"mask", "loss_mask", "completion_mask", "assistant_masks"})) {
    learned = column(*mask, "mask", ids.size());
    out.marked = true;
  }
  if (const Json* mask = fields.take({"attention_mask"})) {
    seen = column(*mask, "attention_mask", ids.size());  // 0: padding
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (seen[i] == 0) continue;
    require(ids[i] >= 0 && ids[i] <= std::numeric_limits<int32_t>::max(), ErrorKind::data,
            "token {} has id {}", i, ids[i]);
    out.sample.ids.push_back(int32_t(ids[i]));
    out.sample.learned.push_back(learned[i] != 0);
  }
  return out;
}

}  // namespace zeno::data
