#include "zeno/checkpoint/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::checkpoint {
namespace {

// Bounds on memory, far above any real checkpoint: of values, of those that are remembered, of a storage's
// name and of a shape. A value may be used any number of times, and its copies would add up.
constexpr size_t kMostValues = size_t(1) << 21;
// In all lists and dicts together: real values are items once or twice.
constexpr size_t kMostItems = 4 * kMostValues;
constexpr size_t kMostNameBytes = 255, kMostTensorDimensions = 64;

struct StorageType {
  std::string_view name;
  DType dtype;
};
// Storages by their class in torch.
constexpr std::array kStorages{
    StorageType{"torch.FloatStorage", DType::f32},     StorageType{"torch.HalfStorage", DType::f16},
    StorageType{"torch.BFloat16Storage", DType::bf16}, StorageType{"torch.LongStorage", DType::i64},
    StorageType{"torch.IntStorage", DType::i32},       StorageType{"torch.ByteStorage", DType::u8},
    StorageType{"torch.BoolStorage", DType::u8}};

// Plain data of DeepSpeed and Python that checkpoints carry along; kept as fields, never run.
constexpr std::array<std::string_view, 8> kRecords{"deepspeed.utils.tensor_fragment.fragment_address",
                                                   "deepspeed.runtime.fp16.loss_scaler.LossScaler",
                                                   "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
                                                   "deepspeed.runtime.fp16.loss_scaler.LossScaleConfig",
                                                   "deepspeed.runtime.zero.config.ZeroStageEnum",
                                                   "deepspeed.utils.types.ActivationFuncType",
                                                   "argparse.Namespace",
                                                   "types.SimpleNamespace"};

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";
// A tensor that carries attributes, as DeepSpeed's flat groups do.
constexpr std::string_view kRebuildSubclass = "torch._tensor._rebuild_from_type_v2";

bool is_record(std::string_view name) { return std::ranges::count(kRecords, name) > 0; }
bool is_storage(std::string_view name) {
  return std::ranges::any_of(kStorages, [&](const StorageType& s) { return s.name == name; });
}
// Names that stand for values or for constructors this interpreter knows.
bool is_known(std::string_view name) {
  constexpr std::array<std::string_view, 10> kCalls{
      "collections.OrderedDict", "collections.defaultdict", "torch.Size",   kRebuildTensor,
      kRebuildParameter,         kRebuildSubclass,          "builtins.set", "builtins.dict",
      "builtins.list",           "__builtin__.set"};
  constexpr std::array<std::string_view, 10> kTypes{
      "torch.float32", "torch.float16", "torch.bfloat16", "torch.float64", "torch.int64",
      "torch.int32",   "torch.uint8",   "torch.bool",     "torch.Tensor",  "torch.nn.parameter.Parameter"};
  return std::ranges::count(kCalls, name) > 0 || std::ranges::count(kTypes, name) > 0 || is_storage(name) ||
         is_record(name);
}

class Machine {
 public:
  Machine(std::string_view bytes, std::string_view where) : rest_(bytes), where_(where) {}

  Pickle run() {
    while (true) {
      const uint8_t code = number<uint8_t>();
      if (code == '.') break;
      step(code);
    }
    check(stack_.size() == 1 && marks_.empty(), "values are left over at the end");
    out_.root = pop();
    for (PickleNode& node : out_.nodes) {
      if (auto* dict = std::get_if<PickleDict>(&node.value)) dict->index();
    }
    return std::move(out_);
  }

 private:
  template <class T>
  PickleValue make(T value) {
    check(out_.nodes.size() < kMostValues, "too many values");
    return &out_.nodes.emplace_back(PickleNode{std::move(value)});
  }

  PickleValue make_list(std::vector<PickleValue> items) {
    count_items(items.size());
    return make(PickleList{std::move(items)});
  }
  void count_items(size_t more) {
    items_ += more;
    check(items_ <= kMostItems, "too many values in lists and dicts");
  }

  void check(bool ok, std::string_view what) const {
    require(ok, ErrorKind::data, "[{}] pickle: {}; the file is damaged or not a checkpoint", where_, what);
  }
  [[noreturn]] void refuse(std::string_view name) const {
    fail(ErrorKind::data, "[{}] pickle: asks for {}, which is neither a tensor nor a container; refused",
         where_, shortened(name, 120));
  }

  std::string_view take(uint64_t count) {
    check(count <= rest_.size(), "it ends in the middle of a value");
    const std::string_view bytes = rest_.substr(0, size_t(count));
    rest_.remove_prefix(size_t(count));
    return bytes;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view line() {
    const size_t end = rest_.find('\n');
    check(end != std::string_view::npos, "a line has no end");
    const std::string_view text = take(end);
    take(1);
    return text;
  }

  void push(PickleValue value) {
    check(stack_.size() < kMostValues, "too many values");
    stack_.push_back(value);
  }
  PickleValue pop() {
    check(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "a value is missing");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::vector<PickleValue> pop_to_mark() {
    check(!marks_.empty() && marks_.back() <= stack_.size(), "a mark is missing");
    const auto begin = stack_.begin() + std::ptrdiff_t(marks_.back());
    std::vector<PickleValue> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }
  PickleNode& top() {
    check(!stack_.empty(), "a value is missing");
    return *stack_.back();
  }
  void push_tuple(size_t count) {
    std::vector<PickleValue> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push(make_list(std::move(items)));
  }
  void push_integer(std::string_view bytes) {
    check(bytes.size() <= 8, "an integer has more than 64 bits");
    uint64_t value = !bytes.empty() && (bytes.back() & 0x80) ? ~uint64_t(0) : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    push(make(std::bit_cast<int64_t>(value)));
  }
  void push_memo(uint64_t key) {
    const auto found = memo_.find(key);
    check(found != memo_.end(), "it refers to a value that is not there");
    push(found->second);
  }
  void memorize(uint64_t key) {
    check(!stack_.empty(), "a value is missing");
    check(memo_.size() < kMostValues, "too many values");
    memo_[key] = stack_.back();
  }
  void push_name(std::string_view module, std::string_view name) {
    std::string full = fmt::format("{}.{}", module, name);
    if (!is_known(full)) refuse(full);
    push(make(PickleName{std::move(full)}));
  }

  void append(const std::vector<PickleValue>& values) {
    auto* list = std::get_if<PickleList>(&top().value);
    check(list != nullptr, "items are added to something that is not a list");
    count_items(values.size());
    list->items.insert(list->items.end(), values.begin(), values.end());
  }
  void set_items(const std::vector<PickleValue>& values) {
    auto* dict = std::get_if<PickleDict>(&top().value);
    check(dict != nullptr && values.size() % 2 == 0, "items are set in something that is not a dict");
    count_items(values.size());
    for (size_t i = 0; i < values.size(); i += 2) dict->items.emplace_back(values[i], values[i + 1]);
  }

  void step(uint8_t code);
  bool step_constant(uint8_t code);
  bool step_container(uint8_t code);
  void call();
  void build();
  void load_persistent();
  PickleValue rebuild_tensor(const std::vector<PickleValue>& arguments);
  PickleValue rebuild_parameter(const std::vector<PickleValue>& arguments);
  PickleValue rebuild_subclass(const std::vector<PickleValue>& arguments);
  std::vector<int64_t> integers(const PickleNode& node) const;

  std::string_view rest_;
  std::string where_;
  Pickle out_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, PickleValue> memo_;
  size_t items_ = 0;
};

bool Machine::step_constant(uint8_t code) {
  switch (code) {
    case 'N':
      return push(make(PickleNone{})), true;
    case 0x88:
    case 0x89:
      return push(make(code == 0x88)), true;
    case 'J':
      return push(make(int64_t(number<int32_t>()))), true;
    case 'K':
      return push(make(int64_t(number<uint8_t>()))), true;
    case 'M':
      return push(make(int64_t(number<uint16_t>()))), true;
    case 0x8a:
      return push_integer(take(number<uint8_t>())), true;
    case 'G':  // big endian
      return push(make(std::bit_cast<double>(__builtin_bswap64(number<uint64_t>())))), true;
    case 'X':
    case 'B':
      return push(make(std::string(take(number<uint32_t>())))), true;
    case 0x8c:
    case 'C':
      return push(make(std::string(take(number<uint8_t>())))), true;
    case 0x8d:
      return push(make(std::string(take(number<uint64_t>())))), true;
    default:
      return false;
  }
}

bool Machine::step_container(uint8_t code) {
  switch (code) {
    case '}':
      return push(make(PickleDict{})), true;
    case ']':
    case ')':
    case 0x8f:
      return push(make(PickleList{})), true;
    case '(':
      check(marks_.size() < kMostValues, "too many values");
      return marks_.push_back(stack_.size()), true;
    case 't':
    case 'l':
      return push(make_list(pop_to_mark())), true;
    case 'd': {
      const std::vector<PickleValue> values = pop_to_mark();
      push(make(PickleDict{}));
      return set_items(values), true;
    }
    case 0x85:
    case 0x86:
    case 0x87:
      return push_tuple(code - 0x84), true;
    case 'a': {
      const PickleValue item = pop();
      return append({item}), true;
    }
    case 'e':
    case 0x90:
      return append(pop_to_mark()), true;
    case 's': {
      const PickleValue value = pop(), key = pop();
      return set_items({key, value}), true;
    }
    case 'u':
      return set_items(pop_to_mark()), true;
    default:
      return false;
  }
}

void Machine::step(uint8_t code) {
  if (step_constant(code) || step_container(code)) return;
  switch (code) {
    case 0x80:
      check(number<uint8_t>() <= 5, "its protocol is newer than 5");
      return;
    case 0x95:  // a frame: only a hint for readers
      take(8);
      return;
    case 'q':
      return memorize(number<uint8_t>());
    case 'r':
      return memorize(number<uint32_t>());
    case 0x94:
      return memorize(memo_.size());
    case 'h':
      return push_memo(number<uint8_t>());
    case 'j':
      return push_memo(number<uint32_t>());
    case '0':
      pop();
      return;
    case 'c': {
      const std::string_view module = line();
      return push_name(module, line());
    }
    case 0x93: {
      const PickleValue name = pop(), module = pop();
      check(name->text() != nullptr && module->text() != nullptr, "a name is not a text");
      return push_name(*module->text(), *name->text());
    }
    case 'R':
    case 0x81:
      return call();
    case 'b':
      return build();
    case 'Q':
      return load_persistent();
    default:
      fail(ErrorKind::data, "[{}] pickle: instruction {:#04x} is not one that checkpoints use; refused",
           where_, code);
  }
}

std::vector<int64_t> Machine::integers(const PickleNode& node) const {
  check(node.list() != nullptr && node.list()->items.size() <= kMostTensorDimensions,
        "a shape is not a list, or has too many dimensions");
  std::vector<int64_t> values;
  for (const PickleValue& item : node.list()->items) {
    check(item->integer() != nullptr && *item->integer() >= 0, "a shape has an entry that is not a size");
    values.push_back(*item->integer());
  }
  return values;
}

// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)
PickleValue Machine::rebuild_tensor(const std::vector<PickleValue>& arguments) {
  check(arguments.size() >= 4 && arguments[0]->tensor() != nullptr && arguments[1]->integer() != nullptr,
        "a tensor is made from something that is not a storage");
  PickleTensor tensor = *arguments[0]->tensor();
  tensor.offset = *arguments[1]->integer();
  tensor.shape = integers(*arguments[2]);
  tensor.stride = integers(*arguments[3]);
  check(tensor.offset >= 0 && tensor.shape.size() == tensor.stride.size(), "a tensor has no proper shape");
  return make(std::move(tensor));
}

// _rebuild_parameter(tensor, requires_grad, hooks)
PickleValue Machine::rebuild_parameter(const std::vector<PickleValue>& arguments) {
  check(!arguments.empty(), "a parameter is made from nothing");
  return arguments[0];
}

// _rebuild_from_type_v2(function, class, its arguments, attributes): the attributes are not data.
PickleValue Machine::rebuild_subclass(const std::vector<PickleValue>& arguments) {
  check(arguments.size() >= 3 && arguments[2]->list() != nullptr, "a tensor is made from nothing");
  const auto* function = std::get_if<PickleName>(&arguments[0]->value);
  check(function != nullptr, "something is called that is not a known name");
  // No other function, and not this one again: a value may contain itself.
  if (function->name == kRebuildTensor) return rebuild_tensor(arguments[2]->list()->items);
  if (function->name == kRebuildParameter) return rebuild_parameter(arguments[2]->list()->items);
  refuse(function->name);
}

void Machine::call() {
  const PickleValue arguments = pop(), callee = pop();
  const auto* name = std::get_if<PickleName>(&callee->value);
  check(name != nullptr && arguments->list() != nullptr, "something is called that is not a known name");
  const std::vector<PickleValue>& items = arguments->list()->items;
  if (name->name == kRebuildTensor) return push(rebuild_tensor(items));
  if (name->name == kRebuildParameter) return push(rebuild_parameter(items));
  if (name->name == kRebuildSubclass) return push(rebuild_subclass(items));
  if (name->name.ends_with("Dict") || name->name.ends_with("dict")) {
    check(name->name == "collections.defaultdict" || items.empty(), "a dict is made from something");
    return push(make(PickleDict{}));
  }
  if (name->name == "torch.Size" || name->name.ends_with(".set") || name->name.ends_with(".list")) {
    check(items.size() <= 1, "a list is made from several values");
    return push(items.empty() ? make(PickleList{}) : items[0]);
  }
  if (is_record(name->name)) return push(make(PickleObject{name->name, arguments}));
  refuse(name->name);
}

// Fields of an object. Dicts and lists that carry fields of their own lose them: they are not data.
void Machine::build() {
  const PickleValue state = pop();
  if (auto* object = std::get_if<PickleObject>(&top().value)) object->state = state;
}

// ('storage', class, key, device, elements)
void Machine::load_persistent() {
  const PickleValue id = pop();
  check(id->list() != nullptr && id->list()->items.size() >= 5, "a storage is not described");
  const std::vector<PickleValue>& items = id->list()->items;
  const auto* type = std::get_if<PickleName>(&items[1]->value);
  check(items[0]->text() != nullptr && *items[0]->text() == "storage" && type != nullptr &&
            items[2]->text() != nullptr && items[2]->text()->size() <= kMostNameBytes,
        "a storage is not described");
  const auto found =
      std::ranges::find_if(kStorages, [&](const StorageType& s) { return s.name == type->name; });
  if (found == kStorages.end()) refuse(type->name);
  push(make(PickleTensor{.storage = *items[2]->text(), .dtype = found->dtype, .shape = {}, .stride = {}}));
}

}  // namespace

Pickle parse_pickle(std::string_view bytes, std::string_view where) { return Machine(bytes, where).run(); }

}  // namespace zeno::checkpoint
