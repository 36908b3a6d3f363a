#include "zeno/checkpoint/manifest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/newer_version.h"
#include "zeno/base/utf8.h"
#include "zeno/checkpoint/json_reader.h"

namespace zeno::checkpoint {
namespace {

using nlohmann::ordered_json;

// The text starts with the checksum of what follows it, at fixed places, so that every byte is covered.
constexpr std::string_view kOpening = "{\"checksum\":\"";
constexpr size_t kDigits = 16;
constexpr size_t kMostRunBytes = size_t(1) << 20;  // what is in it takes a few KB

std::string sealed(const ordered_json& body) {
  std::string rest = "\"," + body.dump().substr(1);  // continues the object after the checksum
  const uint64_t sum = checksum_of(std::as_bytes(std::span(rest)));
  return fmt::format("{}{:016x}{}\n", kOpening, sum, rest);
}

bool begins_sealed(std::string_view text) {
  if (!text.starts_with(kOpening) || text.size() <= kOpening.size() + kDigits) return false;
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return std::ranges::all_of(text.substr(kOpening.size(), kDigits), is_digit) &&
         text[kOpening.size() + kDigits] == '"';
}

// The checksum that a sealed text should have.
std::string seal_of(std::string_view text) {
  const size_t head = kOpening.size() + kDigits;
  const std::string_view rest = text.substr(head, text.size() - head - 1);
  return fmt::format("{:016x}", checksum_of(std::as_bytes(std::span(rest))));
}

// Before anything else is looked at: all of it may be different in a newer version.
void refuse_newer(std::string_view text, std::string_view where) {
  if (is_newer_manifest(text))
    throw NewerVersion(fmt::format("[{}]", where), "checkpoint", stated_version(text), kManifestVersion,
                       "another --out");
}

void check_seal(std::string_view text, std::string_view where) {
  require(text.starts_with(kOpening) && text.size() > kOpening.size() + kDigits + 1 && text.back() == '\n',
          ErrorKind::data, "[{}] this is not a manifest, or its end is missing ({} bytes)", where,
          text.size());
  // As text: a digit that became upper case is damage too.
  const std::string_view stated = text.substr(kOpening.size(), kDigits);
  const std::string got = seal_of(text);
  require(got == stated, ErrorKind::data, "[{}] damaged: got checksum {}, expected {}", where, got,
          shortened(stated, kDigits));
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

// The members that an object must have; others are passed over.
class Members {
 public:
  Members(JsonReader& reader, std::string_view what, std::initializer_list<std::string_view> names)
      : reader_(reader), left_(names) {
    reader.enter_object(what);
  }
  // Takes the next one of them. False at the end, when there was each of them.
  bool next(std::string& key) {
    while (reader_.next_key(key)) {
      if (std::erase(left_, key) > 0) return true;
      reader_.skip("value");
    }
    if (!left_.empty()) reader_.fail(fmt::format("has no \"{}\"", left_.front()));
    return false;
  }

 private:
  JsonReader& reader_;
  std::vector<std::string_view> left_;
};

// A text of the manifest that is shown, looked up or opened.
void read_name(JsonReader& reader, std::string& out) {
  constexpr size_t kMostBytes = 4096;
  reader.string("name", out);
  if (out.size() > kMostBytes) reader.fail(fmt::format("a name has more than {} bytes", kMostBytes));
}

int64_t read_between(JsonReader& reader, std::string_view what, int64_t least, int64_t most) {
  const int64_t value = reader.integer(what);
  if (value < least || value > most)
    reader.fail(fmt::format("{} is {}, expected {} to {}", what, value, least, most));
  return value;
}

uint64_t read_hex(JsonReader& reader, std::string& scratch) {
  reader.string("checksum", scratch);
  uint64_t value = 0;
  const char* last = scratch.data() + scratch.size();
  const auto [end, error] = std::from_chars(scratch.data(), last, value, 16);
  if (error != std::errc() || end != last || scratch.size() != kDigits)
    reader.fail(fmt::format("got \"{}\", expected a checksum of {} hexadecimal digits",
                            shortened(scratch, kDigits), kDigits));
  return value;
}

// [state, tensor, begin, count, checksum]
Extent read_extent(JsonReader& reader, std::string& scratch) {
  constexpr int64_t kMostIndex = std::numeric_limits<int>::max();
  int64_t values[4];
  int taken = 0;
  Extent extent;
  for (reader.enter_array("extent"); reader.next_item(); ++taken) {
    if (taken < 2) values[taken] = read_between(reader, "index", Extent::kFilling, kMostIndex);
    if (taken == 2 || taken == 3) values[taken] = reader.integer("element");
    if (taken == 4) extent.checksum = read_hex(reader, scratch);
    if (taken == 5) break;
  }
  if (taken != 5) reader.fail("an extent must have 5 values");
  extent.state = int(values[0]);
  extent.tensor = int(values[1]);
  extent.begin = values[2];
  extent.count = values[3];
  return extent;
}

StateFile read_file_entry(JsonReader& reader) {
  StateFile file;
  std::string key, scratch;
  for (Members members(reader, "file", {"name", "bytes", "header", "extents"}); members.next(key);) {
    if (key == "name") {
      read_name(reader, file.name);
    } else if (key == "bytes") {
      file.bytes = reader.size("bytes");
    } else if (key == "header") {
      file.header = read_hex(reader, scratch);
    } else {
      for (reader.enter_array("extents"); reader.next_item();)
        file.extents.push_back(read_extent(reader, scratch));
    }
  }
  // A manifest must not lead out of its folder.
  if (file.name.empty() || Path(file.name) != Path(file.name).filename() || file.name == "..")
    reader.fail(fmt::format("file \"{}\": expected a plain file name", shortened(file.name, 120)));
  return file;
}

std::vector<StateFile> read_files(JsonReader& reader) {
  std::vector<StateFile> files;
  for (reader.enter_array("files"); reader.next_item();) files.push_back(read_file_entry(reader));
  return files;
}

std::vector<StateKind> read_states(JsonReader& reader) {
  constexpr size_t kMostStates = 64;
  std::vector<StateKind> states;
  std::string key, dtype;
  for (reader.enter_array("states"); reader.next_item();) {
    StateKind& state = states.emplace_back();
    std::optional<DType> known;
    for (Members members(reader, "state", {"name", "dtype"}); members.next(key);) {
      if (key == "name") {
        read_name(reader, state.name);
      } else {
        reader.string("dtype", dtype);
        known = parse_dtype(dtype);
      }
    }
    if (!known) reader.fail(fmt::format("state {}: unknown dtype", shortened(state.name, 120)));
    if (states.size() > kMostStates) reader.fail(fmt::format("more than {} states", kMostStates));
    state.dtype = *known;
  }
  return states;
}

// [[name, rows, cols]]
std::vector<StateTensor> read_tensors(JsonReader& reader) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr size_t kMostTensors = size_t(1) << 20;
  std::vector<StateTensor> tensors;
  for (reader.enter_array("tensors"); reader.next_item();) {
    if (tensors.size() == kMostTensors) reader.fail(fmt::format("more than {} tensors", kMostTensors));
    StateTensor& tensor = tensors.emplace_back();
    int taken = 0;
    for (reader.enter_array("tensor"); reader.next_item(); ++taken) {
      if (taken == 0) read_name(reader, tensor.name);
      if (taken == 1) tensor.rows = read_between(reader, "rows", 0, kMost);
      if (taken == 2) tensor.cols = read_between(reader, "cols", 0, kMost);
      if (taken == 3) break;
    }
    int64_t count = 0;
    if (taken != 3 || __builtin_mul_overflow(tensor.rows, tensor.cols, &count) || count > kMost / 8)
      reader.fail(fmt::format("tensor {} is not [name, rows, cols] of less than 2^63 bytes",
                              shortened(tensor.name, 120)));
  }
  return tensors;
}

Manifest read_manifest_text(std::string_view text, std::string_view where) {
  constexpr int64_t kMostRanks = int64_t(1) << 20;
  Manifest manifest;
  JsonReader reader(text, fmt::format("[{}]", where));
  int64_t version = 0;
  std::string key;
  Members members(reader, "manifest", {"version", "step", "world", "states", "tensors", "files", "run"});
  while (members.next(key)) {
    if (key == "version") {
      version = reader.integer(key);
    } else if (key == "step") {
      manifest.step = read_between(reader, key, 0, std::numeric_limits<int64_t>::max());
    } else if (key == "world") {
      manifest.ranks = int(read_between(reader, key, 1, kMostRanks));
    } else if (key == "states") {
      manifest.states = read_states(reader);
    } else if (key == "tensors") {
      manifest.tensors = read_tensors(reader);
    } else if (key == "files") {
      manifest.files = read_files(reader);
    } else {
      manifest.run = reader.skip(key);
      if (manifest.run.size() > kMostRunBytes)
        reader.fail(
            fmt::format("\"run\" has {} bytes, expected at most {}", manifest.run.size(), kMostRunBytes));
    }
  }
  reader.end();
  if (version != kManifestVersion)
    reader.fail(fmt::format("got checkpoint version {}, expected {}", version, kManifestVersion));
  return manifest;
}

// Every element of every state of every tensor must be there exactly once.
void check_cover(const Manifest& manifest, std::string_view where) {
  std::vector<const Extent*> parts;
  for (const StateFile& file : manifest.files) {
    for (const Extent& e : file.extents) {
      const bool sane = e.count > 0 && e.count <= kExtentElements && e.begin >= 0;
      if (sane && e.fills() && e.tensor == Extent::kFilling) continue;
      require(sane && e.state >= 0 && size_t(e.state) < manifest.states.size() && e.tensor >= 0 &&
                  size_t(e.tensor) < manifest.tensors.size() &&
                  e.begin <= manifest.tensors[size_t(e.tensor)].count() - e.count,
              ErrorKind::data, "[{}] file {} has an extent outside the listed states and tensors", where,
              file.name);
      parts.push_back(&e);
    }
  }
  std::ranges::sort(parts, {}, [](const Extent* e) { return std::tuple(e->state, e->tensor, e->begin); });
  auto part = parts.begin();
  for (int s = 0; s < int(manifest.states.size()); ++s) {
    for (int t = 0; t < int(manifest.tensors.size()); ++t) {
      int64_t next = 0;
      const auto here = [&] { return part != parts.end() && (*part)->state == s && (*part)->tensor == t; };
      for (; here() && (*part)->begin == next; ++part) next += (*part)->count;
      const StateTensor& tensor = manifest.tensors[size_t(t)];
      require(next == tensor.count() && !here(), ErrorKind::data,
              "[{}] {} of {}: got elements up to {}, expected {}, each once", where,
              shortened(manifest.states[size_t(s)].name, 120), shortened(tensor.name, 120), next,
              tensor.count());
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
  return sealed({{"version", kManifestVersion},
                 {"step", manifest.step},
                 {"world", manifest.ranks},
                 {"states", std::move(states)},
                 {"tensors", std::move(tensors)},
                 {"files", std::move(files)},
                 {"run", ordered_json::parse(manifest.run)}});
}

Manifest parse_manifest(std::string_view text, std::string_view where) {
  refuse_newer(text, where);
  check_seal(text, where);
  Manifest manifest = read_manifest_text(text, where);
  check_cover(manifest, where);
  return manifest;
}

int64_t stated_version(std::string_view beginning) {
  try {
    JsonReader reader(beginning, "");
    std::string key;
    reader.enter_object("manifest");
    while (reader.next_key(key)) {
      const std::string_view value = reader.skip("value");
      if (key != "version") continue;
      int64_t version = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), version);
      if (end != value.data() + value.size()) return 0;
      const bool above = error == std::errc::result_out_of_range && !value.starts_with('-');
      return above ? std::numeric_limits<int64_t>::max() : version;
    }
  } catch (const Error&) {  // damaged: not for this function to say
  }
  return 0;
}

bool is_newer_manifest(std::string_view text) {
  if (stated_version(text) <= kManifestVersion) return false;
  return !begins_sealed(text) || seal_of(text) == text.substr(kOpening.size(), kDigits);
}

std::string format_state_files(const std::vector<StateFile>& files) {
  ordered_json list = ordered_json::array();
  for (const StateFile& file : files) list.push_back(json_of(file));
  return sealed({{"files", std::move(list)}});
}

std::vector<StateFile> parse_state_files(std::string_view text, std::string_view where) {
  check_seal(text, where);
  JsonReader reader(text, fmt::format("[{}]", where));
  std::vector<StateFile> files;
  std::string key;
  for (Members members(reader, "note", {"files"}); members.next(key);) files = read_files(reader);
  reader.end();
  return files;
}

}  // namespace zeno::checkpoint
