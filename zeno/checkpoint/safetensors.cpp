#include "zeno/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

namespace zeno::checkpoint {
namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little endian");

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's own library

struct TypeRow {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};
constexpr TypeRow kTypes[] = {
    {"F32", 32, DType::f32}, {"BF16", 16, DType::bf16}, {"F16", 16, DType::f16},
    {"I32", 32, DType::i32}, {"I64", 64, DType::i64},   {"U8", 8, DType::u8},
    {"F64", 64, {}},         {"I16", 16, {}},           {"I8", 8, {}},
    {"U16", 16, {}},         {"U32", 32, {}},           {"U64", 64, {}},
    {"BOOL", 8, {}},         {"F8_E4M3", 8, {}},        {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},    {"F8_E5M2FNUZ", 8, {}},
    {"C64", 64, {}},         {"F6_E2M3", 6, {}},        {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

const TypeRow* find_type(std::string_view name) {
  const auto* row = std::ranges::find(kTypes, name, &TypeRow::name);
  return row == std::end(kTypes) ? nullptr : row;
}

// Names come from the file: keep messages to one short line whatever is in there.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 120));
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < 32 || c == 127; }, '?');
  return text.size() > 120 ? out + "…" : out;
}

// JSON with two equal keys is ambiguous; the parser alone would keep the last one silently.
Json parse_json(std::string_view text, const std::string& file) {
  std::unordered_map<std::string, bool> seen;
  std::string duplicate;
  auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key &&
        !seen.try_emplace(parsed.get<std::string>()).second && duplicate.empty()) {
      duplicate = parsed.get<std::string>();
    }
    return true;
  };
  Json json;
  // The parser takes a zero for the end of the text.
  require(text.find('\0') == std::string_view::npos, ErrorKind::data,
          "[safetensors] {}: header has a zero byte, expected JSON and spaces", file);
  try {
    json = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    fail(ErrorKind::data, "[safetensors] {}: header is not valid JSON: {}", file, shown(error.what()));
  }
  require(duplicate.empty(), ErrorKind::data, "[safetensors] {}: tensor {} occurs twice in the header", file,
          shown(duplicate));
  require(json.is_object(), ErrorKind::data, "[safetensors] {}: header is a JSON {}, expected an object",
          file, json.type_name());
  return json;
}

const Json& member(const Json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  require(found != entry.end(), ErrorKind::data, "{}: has no \"{}\"", where, key);
  return *found;
}

uint64_t unsigned_value(const Json& value, const char* key, const std::string& where) {
  require(value.is_number_unsigned(), ErrorKind::data, "{}: \"{}\" holds {}, expected a non-negative integer",
          where, key, shown(value.dump()));
  return value.get<uint64_t>();
}

// Type, shape and byte range of one entry, consistent with each other.
TensorInfo parse_tensor(const std::string& name, const Json& entry, const std::string& where) {
  TensorInfo tensor;
  tensor.name = name;
  require(entry.is_object(), ErrorKind::data, "{}: entry is a JSON {}, expected an object", where,
          entry.type_name());
  const Json& type = member(entry, "dtype", where);
  require(type.is_string(), ErrorKind::data, "{}: \"dtype\" is a JSON {}, expected a string", where,
          type.type_name());
  tensor.type = type.get<std::string>();
  const TypeRow* row = find_type(tensor.type);
  require(row != nullptr, ErrorKind::data,
          "{}: unknown dtype \"{}\", expected F32, BF16, F16 or another of the format", where,
          shown(tensor.type));
  tensor.dtype = row->dtype;

  const Json& shape = member(entry, "shape", where);
  require(shape.is_array(), ErrorKind::data, "{}: \"shape\" is a JSON {}, expected an array", where,
          shape.type_name());
  int64_t bits = row->bits;
  bool overflow = false;
  for (const Json& dimension : shape) {
    const uint64_t size = unsigned_value(dimension, "shape", where);
    overflow |=
        size > uint64_t(std::numeric_limits<int64_t>::max()) || __builtin_mul_overflow(bits, size, &bits);
    tensor.shape.push_back(int64_t(size));
  }
  require(!overflow, ErrorKind::data, "{}: shape {} is absurd: more than 2^63 bits", where,
          shown(shape.dump()));
  tensor.count = bits / row->bits;

  const Json& range = member(entry, "data_offsets", where);
  require(range.is_array() && range.size() == 2, ErrorKind::data,
          "{}: \"data_offsets\" holds {}, expected [begin, end]", where, shown(range.dump()));
  tensor.begin = unsigned_value(range[0], "data_offsets", where);
  tensor.end = unsigned_value(range[1], "data_offsets", where);
  require(bits % 8 == 0 && tensor.begin <= tensor.end && tensor.end - tensor.begin == uint64_t(bits) / 8,
          ErrorKind::data, "{}: {} {} takes {} bytes, but its data_offsets are [{}, {}]", where, tensor.type,
          format_shape(tensor.shape), bits / 8, tensor.begin, tensor.end);
  return tensor;
}

template <class T>
void convert(const std::byte* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, in + size_t(i) * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

}  // namespace

std::string_view safetensors_type(DType dtype) {
  return std::ranges::find(kTypes, std::optional(dtype), &TypeRow::dtype)->name;
}

std::optional<DType> parse_safetensors_type(std::string_view type) {
  const TypeRow* row = find_type(type);
  return row ? row->dtype : std::nullopt;
}

std::string format_shape(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

SafetensorsFile SafetensorsFile::open(const Path& path) {
  SafetensorsFile result(File::open(path));
  const uint64_t size = result.file_.size();
  uint64_t length = 0;
  require(size >= sizeof(length), ErrorKind::data,
          "[safetensors] {}: file has {} bytes, too few for a header; it was cut short", path.string(), size);
  result.file_.read_at(&length, sizeof(length), 0);
  require(length <= kMaxHeader, ErrorKind::data,
          "[safetensors] {}: header claims {} bytes, expected at most {}; not a safetensors file?",
          path.string(), length, kMaxHeader);
  require(
      length <= size - sizeof(length), ErrorKind::data,
      "[safetensors] {}: header claims {} bytes, but the file has only {} after its length; it was cut short",
      path.string(), length, size - sizeof(length));
  std::string header(length, '\0');
  result.file_.read_at(header.data(), length, sizeof(length));
  result.data_begin_ = sizeof(length) + length;
  result.parse_header(header, size - result.data_begin_);
  return result;
}

void SafetensorsFile::parse_header(std::string_view header, uint64_t data_bytes) {
  const std::string file = path().string();
  const Json json = parse_json(header, file);
  for (const auto& [name, entry] : json.items()) {
    const std::string where = fmt::format("[safetensors] {}: {}", file, shown(name));
    if (name == "__metadata__") {
      require(entry.is_object(), ErrorKind::data, "{} is a JSON {}, expected an object", where,
              entry.type_name());
      for (const auto& [key, value] : entry.items()) {
        require(value.is_string(), ErrorKind::data, "{}: value of \"{}\" is a JSON {}, expected a string",
                where, shown(key), value.type_name());
        metadata_[key] = value.get<std::string>();
      }
    } else {
      tensors_.push_back(parse_tensor(name, entry, where));
    }
  }
  std::ranges::stable_sort(tensors_, {}, [](const TensorInfo& t) { return std::pair(t.begin, t.end); });
  check_layout(data_bytes);
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

// The format allows neither overlaps nor holes: tensors cover the data from the first byte to the last.
void SafetensorsFile::check_layout(uint64_t data_bytes) {
  const std::string file = path().string();
  const TensorInfo* previous = nullptr;
  uint64_t covered = 0;
  for (const TensorInfo& tensor : tensors_) {
    require(tensor.end <= data_bytes, ErrorKind::data,
            "[safetensors] {}: {}: data_offsets are [{}, {}], but the file holds {} bytes of data; it was "
            "cut short",
            file, shown(tensor.name), tensor.begin, tensor.end, data_bytes);
    require(tensor.begin >= covered, ErrorKind::data,
            "[safetensors] {}: {}: data_offsets [{}, {}] overlap those of {}, which end at {}", file,
            shown(tensor.name), tensor.begin, tensor.end, previous ? shown(previous->name) : "", covered);
    require(tensor.begin == covered, ErrorKind::data,
            "[safetensors] {}: {}: data begins at {}, expected {}; no tensor claims the bytes between", file,
            shown(tensor.name), tensor.begin, covered);
    covered = tensor.end;
    previous = &tensor;
  }
  require(covered == data_bytes, ErrorKind::data,
          "[safetensors] {}: tensors end at byte {} of the data, but the file holds {}; it was damaged", file,
          covered, data_bytes);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(const TensorInfo& tensor, int64_t offset, int64_t count, float* out) const {
  const bool wide = tensor.type == "F64";
  require(wide || (tensor.dtype && is_float(*tensor.dtype)), ErrorKind::data,
          "[safetensors] {}: {}: dtype is {}, expected F32, BF16, F16 or F64; quantised weights cannot be "
          "trained",
          path().string(), shown(tensor.name), tensor.type);
  if (tensor.dtype == DType::f32) return read_bytes(tensor, uint64_t(offset) * 4, uint64_t(count) * 4, out);

  const int64_t size = wide ? 8 : 2;
  constexpr int64_t kPiece = 1 << 16;  // bytes converted at a time
  const auto piece = std::make_unique<std::array<std::byte, kPiece>>();
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(count - done, kPiece / size);
    read_bytes(tensor, uint64_t((offset + done) * size), uint64_t(n * size), piece->data());
    if (wide) {
      convert<double>(piece->data(), n, out + done);
    } else if (tensor.dtype == DType::bf16) {
      convert<BF16>(piece->data(), n, out + done);
    } else {
      convert<F16>(piece->data(), n, out + done);
    }
    done += n;
  }
}

void SafetensorsFile::read_bytes(const TensorInfo& tensor, uint64_t offset, uint64_t bytes, void* out) const {
  const uint64_t size = tensor.end - tensor.begin;
  ensure(offset <= size && bytes <= size - offset, "[safetensors] {}: {}: bytes [{}, +{}) of {}",
         path().string(), tensor.name, offset, bytes, size);
  file_.read_at(out, bytes, data_begin_ + tensor.begin + offset);
}

}  // namespace zeno::checkpoint
