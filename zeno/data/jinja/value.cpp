#include "zeno/data/jinja/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zeno/data/jinja/operators.h"

namespace zeno::data::jinja {
namespace {

constexpr uint32_t kMaxNesting = 200;

struct Text : Object {
  TracedText text;
  bool markup = false;
};
struct Items : Object {
  std::vector<Value> items;
};
struct Dict : Object {
  Pairs pairs;
};

Value make_items(Kind kind, std::vector<Value> items) {
  auto object = std::make_shared<Items>();
  for (const Value& item : items) nest(*object, item);
  object->items = std::move(items);
  return Value::of(kind, std::move(object));
}

Value make_text(Kind kind, TracedText text, bool markup = false) {
  auto object = std::make_shared<Text>();
  object->text = std::move(text);
  object->markup = markup;
  return Value::of(kind, std::move(object));
}

}  // namespace

void nest(Object& outer, const Value& inner) {
  outer.nesting = std::max(outer.nesting, inner.nesting() + 1);
  if (outer.nesting > kMaxNesting) {
    throw RenderError(fmt::format("lists and dicts nested deeper than {} levels", kMaxNesting));
  }
}

Value Value::undefined(std::string message) {
  return make_text(Kind::undefined, TracedText(std::move(message)));
}
Value Value::none() { return of(Kind::none, nullptr); }
Value Value::text(std::string value) { return make_text(Kind::string, TracedText(std::move(value))); }
Value Value::text(TracedText value, bool markup) { return make_text(Kind::string, std::move(value), markup); }
Value Value::list(std::vector<Value> items) { return make_items(Kind::list, std::move(items)); }
Value Value::tuple(std::vector<Value> items) { return make_items(Kind::tuple, std::move(items)); }

Value Value::boolean(bool value) {
  Value out = of(Kind::boolean, nullptr);
  out.integer_ = value;
  return out;
}

Value Value::integer(int64_t value) {
  Value out = of(Kind::integer, nullptr);
  out.integer_ = value;
  return out;
}

Value Value::real(double value) {
  Value out = of(Kind::real, nullptr);
  out.real_ = value;
  return out;
}

Value Value::dict(Pairs items) {
  auto object = std::make_shared<Dict>();
  for (const auto& [key, value] : items) {
    nest(*object, key);
    nest(*object, value);
  }
  object->pairs = std::move(items);
  return of(Kind::dict, std::move(object));
}

Value Value::iterator(std::vector<Value> items, std::string_view type) {
  auto object = std::make_shared<Iterator>();
  for (const Value& item : items) nest(*object, item);
  object->items = std::move(items);
  object->type = type;
  return of(Kind::iterator, std::move(object));
}

Value Value::of(Kind kind, std::shared_ptr<Object> object) {
  Value out;
  out.kind_ = kind;
  out.object_ = std::move(object);
  return out;
}

const std::string& Value::as_text() const {
  static const std::string nameless = "the value is undefined";
  return object_ ? object<Text>().text.str() : nameless;
}

const TracedText& Value::traced() const { return object<Text>().text; }
bool Value::is_markup() const { return kind_ == Kind::string && object<Text>().markup; }

Origin Value::origin() const { return kind_ == Kind::string ? traced().origin() : origin_; }

Value Value::from(Origin origin) && {
  origin_ = origin;
  return std::move(*this);
}

const std::vector<Value>& Value::items() const { return object<Items>().items; }
const Pairs& Value::pairs() const { return object<Dict>().pairs; }

bool Value::truth() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return integer_ != 0;
    case Kind::real:
      return real_ != 0;
    case Kind::string:
      return !as_text().empty();
    case Kind::list:
    case Kind::tuple:
      return !items().empty();
    case Kind::dict:
      return !pairs().empty();
    case Kind::range:
      return object<Range>().size() != 0;
    case Kind::view:
      return object<View>().dict.truth();
    default:
      return true;
  }
}

std::string_view Value::type_name() const {
  switch (kind_) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::view: {
      const View::Part part = object<View>().part;
      return part == View::Part::keys     ? "dict_keys"
             : part == View::Part::values ? "dict_values"
                                          : "dict_items";
    }
    case Kind::iterator:
      return object<Iterator>().type;
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::callable:
      return "function";
  }
  return "object";
}

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (kind_ == Kind::real) return real_ == other.real_;
  if (kind_ == Kind::integer || kind_ == Kind::boolean) return integer_ == other.integer_;
  if (kind_ == Kind::string) return as_text() == other.as_text();
  return object_ == other.object_;
}

int64_t Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  // In unsigned arithmetic, which cannot overflow; the caller keeps ranges small.
  const uint64_t width = step > 0 ? uint64_t(stop) - uint64_t(start) : uint64_t(start) - uint64_t(stop);
  const uint64_t stride = step > 0 ? uint64_t(step) : uint64_t(0) - uint64_t(step);
  return int64_t(std::min<uint64_t>((width - 1) / stride + 1, uint64_t(INT64_MAX)));
}

std::vector<Value> View::items() const {
  std::vector<Value> out;
  out.reserve(dict.pairs().size());
  for (const auto& [key, value] : dict.pairs()) {
    out.push_back(part == Part::keys ? key : part == Part::values ? value : Value::tuple({key, value}));
  }
  return out;
}

const Value* find(const Pairs& pairs, const Value& key) {
  for (const auto& [name, value] : pairs) {
    if (same_key(name, key)) return &value;
  }
  return nullptr;
}

const Value* find(const Pairs& pairs, std::string_view key) {
  for (const auto& [name, value] : pairs) {
    if (name.is(Kind::string) && name.as_text() == key) return &value;
  }
  return nullptr;
}

void assign(Pairs& pairs, const Value& key, Value value) {
  for (auto& [name, held] : pairs) {
    if (!same_key(name, key)) continue;
    held = std::move(value);
    return;
  }
  pairs.emplace_back(key, std::move(value));
}

void require_hashable(const Value& key) {
  const bool simple = key.is_number() || key.is(Kind::string) || key.is(Kind::none);
  if (!simple) throw RenderError(fmt::format("a {} cannot be the key of a dict", key.type_name()));
}

void require_defined(const Value& value) {
  if (value.is(Kind::undefined)) throw RenderError(value.as_text());
}

Value from_json(Budget& budget, const nlohmann::ordered_json& json, Origin origin, Texts texts) {
  const auto text_of = [&](const std::string& text) {
    return Value::text(texts == Texts::lent ? TracedText::lent(text, origin) : TracedText(text, origin));
  };
  const Budget::Level level(budget);
  budget.step();
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::boolean(json.get<bool>()).from(origin);
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::integer(json.get<int64_t>()).from(origin);
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number > uint64_t(INT64_MAX)) throw RenderError(fmt::format("integer beyond 64 bits: {}", number));
      return Value::integer(int64_t(number)).from(origin);
    }
    case nlohmann::ordered_json::value_t::number_float:
      return Value::real(json.get<double>()).from(origin);
    case nlohmann::ordered_json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      budget.bytes(text.size());
      return text_of(text);
    }
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(budget, item, origin, texts));
      return Value::list(std::move(items)).from(origin);
    }
    case nlohmann::ordered_json::value_t::object: {
      Pairs pairs;
      pairs.reserve(json.size());
      for (const auto& [key, value] : json.get_ref<const nlohmann::ordered_json::object_t&>()) {
        pairs.emplace_back(text_of(key), from_json(budget, value, origin, texts));
      }
      return Value::dict(std::move(pairs)).from(origin);
    }
    default:
      return Value::none().from(origin);
  }
}

}  // namespace zeno::data::jinja
