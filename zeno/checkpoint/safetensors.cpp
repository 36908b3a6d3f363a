#include "zeno/checkpoint/safetensors.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "zeno/base/utf8.h"
#include "zeno/checkpoint/json_reader.h"

namespace zeno::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

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

// Names come from the file: messages show their beginning.
std::string shown(std::string_view text) { return shortened(text, 120); }

// Type, shape and byte range of one entry, consistent with each other.
TensorInfo read_tensor(JsonReader& reader, const std::string& name) {
  constexpr size_t kMostDimensions = 64;  // as in PyTorch
  TensorInfo tensor{.name = name};
  std::vector<uint64_t> range;
  std::string key, text;
  const TypeRow* row = nullptr;
  bool has_shape = false, absurd = false;
  reader.enter_object("entry");
  while (reader.next_key(key)) {
    const bool again = (key == "dtype" && row != nullptr) || (key == "shape" && has_shape) ||
                       (key == "data_offsets" && !range.empty());
    if (again) reader.fail(fmt::format("has \"{}\" twice", key));
    if (key == "dtype") {
      reader.string("\"dtype\"", text);
      row = find_type(text);
      if (row == nullptr)
        reader.fail(fmt::format("unknown dtype \"{}\", expected F32, BF16, F16 or another of the format",
                                shown(text)));
    } else if (key == "shape") {
      has_shape = true;
      for (reader.enter_array("\"shape\""); reader.next_item();) {
        const uint64_t size = reader.size("\"shape\"");
        absurd |= size > uint64_t(std::numeric_limits<int64_t>::max());
        tensor.shape.push_back(int64_t(size));
        if (tensor.shape.size() > kMostDimensions)
          reader.fail(fmt::format("\"shape\" has more than {} dimensions", kMostDimensions));
      }
    } else if (key == "data_offsets") {
      for (reader.enter_array("\"data_offsets\""); reader.next_item() && range.size() < 3;)
        range.push_back(reader.size("\"data_offsets\""));
      if (range.size() != 2)
        reader.fail("\"data_offsets\" holds another number of values, expected [begin, end]");
    } else {
      reader.skip("value");
    }
  }
  if (row == nullptr) reader.fail("has no \"dtype\"");
  if (!has_shape) reader.fail("has no \"shape\"");
  if (range.empty()) reader.fail("has no \"data_offsets\"");
  tensor.type = row->name;
  tensor.dtype = row->dtype;
  tensor.begin = range[0];
  tensor.end = range[1];
  int64_t bits = row->bits;
  for (const int64_t size : tensor.shape) absurd |= __builtin_mul_overflow(bits, size, &bits);
  if (absurd)
    reader.fail(fmt::format("shape {} is absurd: more than 2^63 bits", shown(format_shape(tensor.shape))));
  tensor.count = bits / row->bits;
  if (bits % 8 != 0 || tensor.begin > tensor.end || tensor.end - tensor.begin != uint64_t(bits) / 8)
    reader.fail(fmt::format("{} {} takes {} bytes, but its data_offsets are [{}, {}]", tensor.type,
                            shown(format_shape(tensor.shape)), bits / 8, tensor.begin, tensor.end));
  return tensor;
}

Metadata read_metadata(JsonReader& reader) {
  constexpr size_t kMostEntries = size_t(1) << 16;
  Metadata metadata;
  std::string key, value;
  reader.enter_object("entry");
  while (reader.next_key(key)) {
    reader.string(fmt::format("value of \"{}\"", shown(key)), value);
    if (!metadata.emplace(key, value).second) reader.fail(fmt::format("\"{}\" occurs twice", shown(key)));
    if (metadata.size() > kMostEntries) reader.fail(fmt::format("has more than {} entries", kMostEntries));
  }
  return metadata;
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
  require(length <= kMaxSafetensorsHeader, ErrorKind::data,
          "[safetensors] {}: header claims {} bytes, expected at most {}; not a safetensors file?",
          path.string(), length, kMaxSafetensorsHeader);
  require(
      length <= size - sizeof(length), ErrorKind::data,
      "[safetensors] {}: header claims {} bytes, but the file has only {} after its length; it was cut short",
      path.string(), length, size - sizeof(length));
  result.data_begin_ = sizeof(length) + length;
  std::string header(result.data_begin_, '\0');
  result.file_.read_at(header.data(), header.size(), 0);
  result.header_checksum_ = XXH3_64bits(header.data(), header.size());
  result.parse_header(std::string_view(header).substr(sizeof(length)), size - result.data_begin_);
  return result;
}

void SafetensorsFile::parse_header(std::string_view header, uint64_t data_bytes) {
  JsonReader reader(header, fmt::format("[safetensors] {}", path().string()));
  bool described = false;
  std::string name;
  reader.enter_object("header");
  while (reader.next_key(name)) {
    reader.about(name);
    if (name != "__metadata__") {
      tensors_.push_back(read_tensor(reader, name));
    } else {
      if (std::exchange(described, true)) reader.fail("occurs twice in the header");
      metadata_ = read_metadata(reader);
    }
    reader.about("");
  }
  reader.end();
  const auto place = [](const TensorInfo& t) { return std::tie(t.begin, t.end, t.name); };
  std::ranges::sort(tensors_, {}, place);
  index_names();
  check_layout(data_bytes);
}

// Two tensors of one name are ambiguous.
void SafetensorsFile::index_names() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0);
  const auto name = [this](uint32_t i) -> const std::string& { return tensors_[i].name; };
  std::ranges::sort(by_name_, {}, name);
  const auto twice = std::ranges::adjacent_find(by_name_, {}, name);
  require(twice == by_name_.end(), ErrorKind::data, "[safetensors] {}: tensor {} occurs twice in the header",
          path().string(), twice == by_name_.end() ? "" : shown(name(*twice)));
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
  const auto at = std::ranges::lower_bound(by_name_, name, {},
                                           [this](uint32_t i) { return std::string_view(tensors_[i].name); });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
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
