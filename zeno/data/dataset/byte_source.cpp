#include "zeno/data/dataset/byte_source.h"

#include <algorithm>
#include <utility>

#include "zeno/data/dataset/compressed_source.h"

namespace zeno::data {
namespace {

class PlainFile : public ByteSource {
 public:
  explicit PlainFile(File file) : file_(std::move(file)), size_(file_.size()) {}

  size_t read(char* out, size_t bytes) override {
    const size_t count = size_t(std::min<uint64_t>(bytes, size_hint()));
    file_.read_at(out, count, offset_);
    offset_ += count;
    return count;
  }
  uint64_t position() const override { return offset_; }
  uint64_t size_hint() const override { return size_ - offset_; }

 private:
  File file_;
  uint64_t size_, offset_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const Path& path) {
  File file = File::open(path);
  std::string head(size_t(std::min<uint64_t>(4, file.size())), '\0');
  file.read_at(head.data(), head.size(), 0);
  const Compression compression = compression_of(head);
  if (compression == Compression::none) return std::make_unique<PlainFile>(std::move(file));
  return std::make_unique<CompressedSource>(std::move(file), compression);
}

std::string first_bytes(const Path& path, size_t bytes) {
  std::string head(bytes, '\0');
  head.resize(open_bytes(path)->read(head.data(), bytes));
  return head;
}

}  // namespace zeno::data
