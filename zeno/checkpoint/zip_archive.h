// A zip archive as torch.save writes it: entries stored without compression, directory at the end, zip64
// where it is large. Nothing in it is trusted: offsets and sizes are checked against the file before use.
//
// Owns the open file. const calls may come from several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "zeno/base/file.h"

namespace zeno::checkpoint {

class ZipArchive {
 public:
  // Error(data) for a file that is not a zip archive, is cut short, is compressed or is inconsistent.
  static ZipArchive open(const Path& path);

  struct Entry {
    uint64_t begin = 0, bytes = 0;  // of its data in the file
    uint32_t checksum = 0;          // CRC-32
  };
  const File& file() const { return file_; }
  const Path& path() const { return file_.path(); }
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // Error(data) naming the entry when there is none.
  const Entry& at(std::string_view name) const;
  // The only entry whose name ends in `suffix`: archives of torch.save have one folder of any name.
  std::string name_ending_in(std::string_view suffix) const;
  std::string read(const Entry& entry, uint64_t max_bytes) const;
  // Reads all of the file. Error(data) naming the first entry whose checksum is wrong.
  void verify() const;

 private:
  explicit ZipArchive(File file) : file_(std::move(file)) {}
  void read_directory();
  void add_entry(std::string_view record, std::string_view name);
  void check_overlap() const;

  File file_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace zeno::checkpoint
