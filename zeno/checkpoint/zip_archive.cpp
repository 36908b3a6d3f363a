#include "zeno/checkpoint/zip_archive.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::checkpoint {
namespace {

constexpr uint32_t kEndRecord = 0x06054b50, kEntryRecord = 0x02014b50, kLocalRecord = 0x04034b50;
constexpr uint32_t kEnd64Record = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr size_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint64_t kMostDirectoryBytes = uint64_t(128) << 20, kMostEntries = uint64_t(1) << 20;

// In messages.
std::string shown_entry(std::string_view name) { return shortened(name, 120); }

template <class T>
T field(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct Directory {
  uint64_t begin = 0, bytes = 0, entries = 0;
};

// The 64-bit values of an entry are in an extra field, in this order, those of them whose short field is
// full.
struct WideSizes {
  uint64_t size, packed, header;
};
WideSizes widen(std::string_view extra, WideSizes sizes, std::string_view where) {
  while (extra.size() >= 4) {
    const size_t length = field<uint16_t>(extra, 2);
    if (length > extra.size() - 4) break;
    std::string_view body = extra.substr(4, length);
    if (field<uint16_t>(extra, 0) == 1) {
      for (uint64_t* value : {&sizes.size, &sizes.packed, &sizes.header}) {
        if (*value != 0xffffffff) continue;
        require(body.size() >= 8, ErrorKind::data, "[zip] {}: a 64-bit size is missing", where);
        *value = field<uint64_t>(body, 0);
        body.remove_prefix(8);
      }
    }
    extra.remove_prefix(4 + length);
  }
  return sizes;
}

// The checksum of zip archives, a byte at a time.
uint32_t crc32(uint32_t checksum, std::string_view bytes) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table;
    for (uint32_t i = 0; i < table.size(); ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    return table;
  }();
  checksum = ~checksum;
  for (const char byte : bytes) checksum = checksum >> 8 ^ kTable[(checksum ^ uint8_t(byte)) & 0xff];
  return ~checksum;
}

}  // namespace

ZipArchive ZipArchive::open(const Path& path) {
  ZipArchive archive(File::open(path));
  archive.read_directory();
  return archive;
}

void ZipArchive::read_directory() {
  const std::string where = path().string();
  const uint64_t size = file_.size();
  // The end record is followed by a comment of up to 65535 bytes.
  std::string tail(size_t(std::min<uint64_t>(size, kEndBytes + 0xffff + kLocatorBytes)), '\0');
  file_.read_at(tail.data(), tail.size(), size - tail.size());
  std::optional<size_t> end;
  for (size_t at = tail.size() < kEndBytes ? 0 : tail.size() - kEndBytes + 1; at-- > 0 && !end;) {
    if (field<uint32_t>(tail, at) == kEndRecord) end = at;
  }
  require(end.has_value(), ErrorKind::data,
          "[zip] {}: got no end record, expected a zip archive as torch.save writes it; the file may be cut "
          "short",
          where);
  Directory directory{field<uint32_t>(tail, *end + 16), field<uint32_t>(tail, *end + 12),
                      field<uint16_t>(tail, *end + 10)};
  if (*end >= kLocatorBytes && field<uint32_t>(tail, *end - kLocatorBytes) == kEnd64Locator) {
    const uint64_t at = field<uint64_t>(tail, *end - kLocatorBytes + 8);
    require(at <= size && size - at >= kEnd64Bytes, ErrorKind::data, "[zip] {}: the end record is outside",
            where);
    std::string wide(kEnd64Bytes, '\0');
    file_.read_at(wide.data(), wide.size(), at);
    require(field<uint32_t>(wide, 0) == kEnd64Record, ErrorKind::data, "[zip] {}: no 64-bit end record",
            where);
    directory = {field<uint64_t>(wide, 48), field<uint64_t>(wide, 40), field<uint64_t>(wide, 32)};
  }
  require(directory.entries <= kMostEntries && directory.bytes <= kMostDirectoryBytes, ErrorKind::data,
          "[zip] {}: the directory has {} entries in {} bytes, expected at most {} in {}", where,
          directory.entries, directory.bytes, kMostEntries, kMostDirectoryBytes);
  require(directory.begin <= size && directory.bytes <= size - directory.begin &&
              directory.entries <= directory.bytes / kEntryBytes,
          ErrorKind::data, "[zip] {}: the directory ({} bytes at {}) is outside the file of {} bytes", where,
          directory.bytes, directory.begin, size);
  std::string bytes(size_t(directory.bytes), '\0');
  file_.read_at(bytes.data(), bytes.size(), directory.begin);
  std::string_view rest = bytes;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    require(rest.size() >= kEntryBytes && field<uint32_t>(rest, 0) == kEntryRecord, ErrorKind::data,
            "[zip] {}: entry {} of the directory is damaged", where, i);
    const size_t name = field<uint16_t>(rest, 28), extra = field<uint16_t>(rest, 30);
    const size_t length = kEntryBytes + name + extra + field<uint16_t>(rest, 32);
    require(length <= rest.size(), ErrorKind::data, "[zip] {}: entry {} of the directory is cut short", where,
            i);
    add_entry(rest.substr(0, kEntryBytes + name + extra), rest.substr(kEntryBytes, name));
    rest.remove_prefix(length);
  }
  check_overlap();
}

void ZipArchive::add_entry(std::string_view record, std::string_view name) {
  const std::string where = path().string();
  require(field<uint16_t>(record, 10) == 0, ErrorKind::data,
          "[zip] {}: {} is compressed, expected entries as torch.save stores them", where, shown_entry(name));
  const WideSizes sizes =
      widen(record.substr(kEntryBytes + name.size()),
            {field<uint32_t>(record, 24), field<uint32_t>(record, 20), field<uint32_t>(record, 42)}, where);
  const uint64_t size = file_.size();
  require(sizes.size == sizes.packed && sizes.header <= size && size - sizes.header >= kLocalBytes,
          ErrorKind::data, "[zip] {}: {} is outside the file", where, shown_entry(name));
  std::string local(kLocalBytes, '\0');
  file_.read_at(local.data(), local.size(), sizes.header);
  require(field<uint32_t>(local, 0) == kLocalRecord, ErrorKind::data, "[zip] {}: {} has no header", where,
          shown_entry(name));
  const uint64_t begin = sizes.header + kLocalBytes + field<uint16_t>(local, 26) + field<uint16_t>(local, 28);
  require(begin <= size && sizes.size <= size - begin, ErrorKind::data,
          "[zip] {}: {} ({} bytes) is outside the file; it may be cut short", where, shown_entry(name),
          sizes.size);
  const bool fresh =
      entries_.emplace(std::string(name), Entry{begin, sizes.size, field<uint32_t>(record, 16)}).second;
  require(fresh, ErrorKind::data, "[zip] {}: {} is there twice", where, shown_entry(name));
}

const ZipArchive::Entry& ZipArchive::at(std::string_view name) const {
  const auto found = entries_.find(name);
  require(found != entries_.end(), ErrorKind::data, "[zip] {}: there is no entry {}", path().string(),
          shown_entry(name));
  return found->second;
}

std::string ZipArchive::name_ending_in(std::string_view suffix) const {
  std::string found;
  for (const auto& [name, entry] : entries_) {
    if (!name.ends_with(suffix)) continue;
    require(found.empty(), ErrorKind::data, "[zip] {}: both {} and {} end in {}", path().string(),
            shown_entry(found), shown_entry(name), suffix);
    found = name;
  }
  require(!found.empty(), ErrorKind::data, "[zip] {}: there is no entry {}", path().string(), suffix);
  return found;
}

std::string ZipArchive::read(const Entry& entry, uint64_t max_bytes) const {
  require(entry.bytes <= max_bytes, ErrorKind::data, "[zip] {}: an entry has {} bytes, expected at most {}",
          path().string(), entry.bytes, max_bytes);
  std::string bytes(size_t(entry.bytes), '\0');
  file_.read_at(bytes.data(), bytes.size(), entry.begin);
  return bytes;
}

void ZipArchive::check_overlap() const {
  std::vector<std::pair<Entry, std::string_view>> sorted;
  for (const auto& [name, entry] : entries_) sorted.emplace_back(entry, name);
  std::ranges::sort(sorted, {}, [](const auto& item) { return item.first.begin; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const Entry& before = sorted[i - 1].first;
    require(before.begin + before.bytes <= sorted[i].first.begin, ErrorKind::data,
            "[zip] {}: {} and {} overlap; the file is damaged", path().string(),
            shown_entry(sorted[i - 1].second), shown_entry(sorted[i].second));
  }
}

void ZipArchive::verify() const {
  std::string bytes;
  for (const auto& [name, entry] : entries_) {
    uint32_t checksum = 0;
    for (uint64_t done = 0; done < entry.bytes; done += bytes.size()) {
      bytes.resize(size_t(std::min<uint64_t>(entry.bytes - done, 1 << 20)));
      file_.read_at(bytes.data(), bytes.size(), entry.begin + done);
      checksum = crc32(checksum, bytes);
    }
    require(checksum == entry.checksum, ErrorKind::data,
            "[zip] {}: {} ({} bytes) is damaged: got checksum {:08x}, expected {:08x}", path().string(),
            shown_entry(name), entry.bytes, checksum, entry.checksum);
  }
}

}  // namespace zeno::checkpoint
