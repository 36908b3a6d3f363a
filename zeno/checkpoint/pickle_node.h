// A value of a pickle (pickle.h): tensors, containers and what is plain in them. Keys of dicts are looked up
// through an index, so that reading a checkpoint of many parameters takes linear time.
//
// Plain values; no thread rule.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "zeno/base/dtype.h"

namespace zeno::checkpoint {

struct PickleNode;
using PickleValue = PickleNode*;  // a view into its Pickle

struct PickleNone {};
// A name of a module: torch.float32, or a class.
struct PickleName {
  std::string name;
};
struct PickleList {
  std::vector<PickleValue> items;  // list, tuple, torch.Size or set
};
struct PickleDict {
  std::vector<std::pair<PickleValue, PickleValue>> items;  // in order
  std::vector<uint32_t> by_key;  // of items: those whose keys are integers or texts, sorted by key and place

  void index();  // once all items are there
};
// Strided elements of a storage in the same archive as the pickle.
struct PickleTensor {
  std::string storage;  // name of the archive's entry below data/
  DType dtype = DType::f32;
  int64_t offset = 0;  // elements
  std::vector<int64_t> shape, stride;
};
// An object of a class that is known to be plain data: its fields, or what it was made from.
struct PickleObject {
  std::string type;
  PickleValue state = nullptr;
};

struct PickleNode {
  std::variant<PickleNone, bool, int64_t, double, std::string, PickleName, PickleList, PickleDict,
               PickleTensor, PickleObject>
      value;

  const PickleDict* dict() const { return std::get_if<PickleDict>(&value); }
  const PickleList* list() const { return std::get_if<PickleList>(&value); }
  const PickleTensor* tensor() const { return std::get_if<PickleTensor>(&value); }
  const PickleObject* object() const { return std::get_if<PickleObject>(&value); }
  const std::string* text() const { return std::get_if<std::string>(&value); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value); }
  // Value of a text key of a dict, or of an object's fields; null when there is none.
  const PickleNode* find(std::string_view key) const;
  // Item of a list, or value of an integer key of a dict; null when there is none.
  const PickleNode* at(int64_t index) const;
};

}  // namespace zeno::checkpoint
