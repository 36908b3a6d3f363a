// A short digest of a file's contents, so that hosts can compare files without sending them. Small files are
// read in full; of large files, both ends and evenly spread samples; of safetensors files also the header and
// both ends of every tensor. Pure functions of the files.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string>

#include "zeno/base/file.h"

namespace zeno::train {

inline constexpr size_t kSampleBytes = 4096;

// How much of each file of a group is read: in full if the group is small, otherwise a share of a budget, so
// that neither large files nor many files delay the start.
struct DigestRule {
  bool whole = true;
  size_t samples = 0;  // evenly spread, both ends included
};
DigestRule digest_rule(uint64_t group_bytes, size_t group_files);

// "1,020 bytes (hash 0123456789abcdef)"; "no such file". Error(io) when the file cannot be read or a `stop`
// is requested.
std::string digest_file(const Path& path, const DigestRule& rule, const std::stop_token& stop = {});

// Device, inode, size and times: changes whenever the file is replaced or written. Two processes of one
// kernel that get the same identity see the same bytes.
std::string file_identity(const Path& path);

}  // namespace zeno::train
