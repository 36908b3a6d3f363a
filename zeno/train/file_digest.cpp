#include "zeno/train/file_digest.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/base/quantity.h"
#include "zeno/checkpoint/manifest.h"
#include "zeno/checkpoint/safetensors.h"

namespace zeno::train {
namespace {

constexpr uint64_t kWholeGroup = uint64_t(256) << 20;  // groups up to this size are read in full
constexpr size_t kMostSamples = 64, kFewestSamples = 4;
constexpr size_t kGroupSamples = 4096;
constexpr size_t kMostTensors = 8192;  // tensors per file that are sampled

class Reader {
 public:
  Reader(const Path& path, std::stop_token stop)
      : file_(File::open(path)), size_(file_.size()), stop_(std::move(stop)) {}

  uint64_t size() const { return size_; }
  uint64_t hash() const { return sum_.value(); }

  // Adds the part of this range that exists.
  void add(uint64_t begin, uint64_t bytes) {
    const uint64_t end = std::min(size_, begin + bytes);
    while (begin < end) {
      require(!stop_.stop_requested(), ErrorKind::io, "[train] {}: reading was cancelled",
              file_.path().string());
      block_.resize(size_t(std::min<uint64_t>(end - begin, 1 << 20)));
      file_.read_at(block_.data(), block_.size(), begin);
      sum_.add(block_);
      begin += block_.size();
    }
  }
  void add_samples(size_t samples) {
    const uint64_t last = size_ - std::min<uint64_t>(size_, kSampleBytes);
    for (size_t i = 0; i < samples; ++i)
      add(uint64_t(double(last) * double(i) / double(samples - 1)), kSampleBytes);
  }

 private:
  File file_;
  uint64_t size_;
  std::stop_token stop_;
  std::vector<std::byte> block_;
  checkpoint::RunningChecksum sum_;
};

// Adds both ends of every tensor: a tensor that was trained differs there, however small it is.
void add_tensors(const Path& path, Reader& reader) {
  try {
    const auto file = checkpoint::SafetensorsFile::open(path);
    const auto& tensors = file.tensors();
    reader.add(0, file.data_begin());
    for (size_t i = 0; i < tensors.size(); i += 1 + tensors.size() / kMostTensors) {
      const uint64_t begin = file.offset(tensors[i]), bytes = tensors[i].end - tensors[i].begin;
      reader.add(begin, std::min<uint64_t>(bytes, kSampleBytes));
      if (bytes > kSampleBytes) reader.add(begin + bytes - kSampleBytes, kSampleBytes);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;  // the code that loads a damaged file will report it
  }
}

}  // namespace

DigestRule digest_rule(uint64_t group_bytes, size_t group_files) {
  return {
      .whole = group_bytes <= kWholeGroup,
      .samples = std::clamp(kGroupSamples / std::max<size_t>(group_files, 1), kFewestSamples, kMostSamples)};
}

std::string digest_file(const Path& path, const DigestRule& rule, const std::stop_token& stop) {
  if (!file_exists(path)) return "no such file";
  Reader reader(path, stop);
  if (rule.whole || reader.size() <= rule.samples * kSampleBytes) {
    reader.add(0, reader.size());
  } else {
    reader.add_samples(rule.samples);
    if (path.extension() == ".safetensors") add_tensors(path, reader);
  }
  return fmt::format("{} bytes (hash {:016x})", format_count(int64_t(reader.size())), reader.hash());
}

std::string file_identity(const Path& path) {
  const DiskOperation waiting("inspecting", path);
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return "none";
  return fmt::format("{} {} {} {}.{} {}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

}  // namespace zeno::train
