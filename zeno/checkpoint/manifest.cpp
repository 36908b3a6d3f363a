#include "zeno/checkpoint/manifest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"

namespace zeno::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
// The text starts with the checksum of what follows it, at fixed places, so that every byte is covered.
constexpr std::string_view kOpening = "{\"checksum\":\"";
constexpr size_t kDigits = 16;

std::string sealed(const ordered_json& body) {
  std::string rest = "\"," + body.dump().substr(1);  // continues the object after the checksum
  const uint64_t sum = checksum_of(std::as_bytes(std::span(rest)));
  return fmt::format("{}{:016x}{}\n", kOpening, sum, rest);
}

uint64_t parse_hex(std::string_view digits, std::string_view where) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  require(error == std::errc() && end == digits.data() + digits.size() && digits.size() == kDigits,
          ErrorKind::data, "[{}] got \"{}\", expected a checksum of {} hexadecimal digits", where, digits,
          kDigits);
  return value;
}

ordered_json unseal(std::string_view text, std::string_view where) {
  const size_t head = kOpening.size() + kDigits;
  require(text.starts_with(kOpening) && text.size() > head + 1 && text.back() == '\n', ErrorKind::data,
          "[{}] this is no manifest, or its end is missing ({} bytes)", where, text.size());
  const std::string_view rest = text.substr(head, text.size() - head - 1);
  // As text: a digit that became upper case is damage too.
  const std::string_view stated = text.substr(kOpening.size(), kDigits);
  const std::string got = fmt::format("{:016x}", checksum_of(std::as_bytes(std::span(rest))));
  require(got == stated, ErrorKind::data, "[{}] damaged: got checksum {}, expected {}", where, got, stated);
  try {
    return ordered_json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::data, "[{}] {}", where, error.what());
  }
}

ordered_json json_of(const StateFile& file) {
  ordered_json extents = ordered_json::array();
  for (const Extent& e : file.extents)
    extents.push_back({e.state, e.tensor, e.begin, e.count, fmt::format("{:016x}", e.checksum)});
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"header", fmt::format("{:016x}", file.header)},
          {"extents", std::move(extents)}};
}

StateFile file_of(const ordered_json& json, std::string_view where) {
  StateFile file{
      json.at("name"), json.at("bytes"), parse_hex(json.at("header").get<std::string>(), where), {}};
  for (const ordered_json& e : json.at("extents")) {
    file.extents.push_back(
        {e.at(0), e.at(1), e.at(2), e.at(3), parse_hex(e.at(4).get<std::string>(), where)});
  }
  return file;
}

Manifest manifest_of(const ordered_json& json, std::string_view where) {
  Manifest manifest;
  const int64_t version = json.at("version");
  require(version == kVersion, ErrorKind::data,
          "[{}] got checkpoint version {}, expected {}; use the version of Zeno that wrote it", where,
          version, kVersion);
  manifest.step = json.at("step");
  manifest.world = json.at("world");
  for (const ordered_json& state : json.at("states")) {
    const std::optional<DType> dtype = parse_dtype(state.at("dtype").get<std::string>());
    require(dtype.has_value(), ErrorKind::data, "[{}] state {}: unknown dtype", where,
            state.at("name").get<std::string>());
    manifest.states.push_back({state.at("name"), *dtype});
  }
  for (const ordered_json& tensor : json.at("tensors"))
    manifest.tensors.push_back({tensor.at(0), tensor.at(1), tensor.at(2)});
  for (const ordered_json& file : json.at("files")) manifest.files.push_back(file_of(file, where));
  manifest.run = json.at("run").dump();
  return manifest;
}

// Every element of every state of every tensor must be there exactly once.
void check_cover(const Manifest& manifest, std::string_view where) {
  std::map<std::pair<int, int>, std::vector<Extent>> parts;
  for (const StateFile& file : manifest.files) {
    for (const Extent& e : file.extents) {
      if (e.fills() && e.tensor == Extent::kFilling && e.count > 0 && e.count <= kExtentElements) continue;
      require(e.state >= 0 && size_t(e.state) < manifest.states.size() && e.tensor >= 0 &&
                  size_t(e.tensor) < manifest.tensors.size() && e.count > 0 && e.count <= kExtentElements,
              ErrorKind::data, "[{}] file {} has an extent of no known state or tensor", where, file.name);
      parts[{e.state, e.tensor}].push_back(e);
    }
  }
  for (int s = 0; s < int(manifest.states.size()); ++s) {
    for (int t = 0; t < int(manifest.tensors.size()); ++t) {
      std::vector<Extent>& list = parts[{s, t}];
      std::ranges::sort(list, {}, &Extent::begin);
      int64_t next = 0;
      for (const Extent& e : list) {
        if (e.begin != next) break;
        next += e.count;
      }
      require(next == manifest.tensors[t].count(), ErrorKind::data,
              "[{}] {} of {}: got elements up to {}, expected {}, each once", where, manifest.states[s].name,
              manifest.tensors[t].name, next, manifest.tensors[t].count());
    }
  }
}

}  // namespace

uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

RunningChecksum::RunningChecksum() : state_(XXH3_createState()) {
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}
void RunningChecksum::Free::operator()(void* state) const {
  XXH3_freeState(static_cast<XXH3_state_t*>(state));
}
void RunningChecksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}
uint64_t RunningChecksum::value() const {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get()));
}

DType extent_dtype(const Manifest& manifest, const Extent& extent) {
  return extent.fills() ? DType::u8 : manifest.states.at(size_t(extent.state)).dtype;
}

std::string extent_name(const Manifest& manifest, const Extent& extent) {
  if (extent.fills()) return fmt::format("filling@{}", extent.begin);
  return fmt::format("{}/{}@{}", manifest.states.at(size_t(extent.state)).name,
                     manifest.tensors.at(size_t(extent.tensor)).name, extent.begin);
}

std::string format_manifest(const Manifest& manifest) {
  ordered_json states = ordered_json::array(), tensors = ordered_json::array(), files = ordered_json::array();
  for (const StateKind& state : manifest.states)
    states.push_back({{"name", state.name}, {"dtype", std::string(name_of(state.dtype))}});
  for (const StateTensor& t : manifest.tensors) tensors.push_back({t.name, t.rows, t.cols});
  for (const StateFile& file : manifest.files) files.push_back(json_of(file));
  return sealed({{"version", kVersion},
                 {"step", manifest.step},
                 {"world", manifest.world},
                 {"states", std::move(states)},
                 {"tensors", std::move(tensors)},
                 {"files", std::move(files)},
                 {"run", ordered_json::parse(manifest.run)}});
}

Manifest parse_manifest(std::string_view text, std::string_view where) {
  const ordered_json json = unseal(text, where);
  try {
    Manifest manifest = manifest_of(json, where);
    check_cover(manifest, where);
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::data, "[{}] {}", where, error.what());
  }
}

std::string format_state_files(const std::vector<StateFile>& files) {
  ordered_json list = ordered_json::array();
  for (const StateFile& file : files) list.push_back(json_of(file));
  return sealed({{"files", std::move(list)}});
}

std::vector<StateFile> parse_state_files(std::string_view text, std::string_view where) {
  const ordered_json json = unseal(text, where);
  try {
    std::vector<StateFile> files;
    for (const ordered_json& file : json.at("files")) files.push_back(file_of(file, where));
    return files;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::data, "[{}] {}", where, error.what());
  }
}

}  // namespace zeno::checkpoint
