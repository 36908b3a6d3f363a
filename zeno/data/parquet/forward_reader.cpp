#include "zeno/data/parquet/forward_reader.h"

#include <algorithm>

namespace zeno::data::parquet {
namespace {

constexpr size_t kWindow = 8192;

}  // namespace

std::string_view ForwardReader::peek(size_t bytes) {
  if (window().size() < bytes) {
    window_.erase(0, used_);
    used_ = 0;
    const size_t have = window_.size();
    const size_t size = size_t(std::min<uint64_t>(std::max(bytes, kWindow), left()));
    if (size > have) {
      window_.resize(size);
      file_->read_at(window_.data() + have, size - have, at_ + have);
    }
  }
  return window();
}

void ForwardReader::read(char* out, size_t bytes) {
  const size_t near = std::min(bytes, window().size());
  std::copy_n(window().data(), near, out);
  skip(near);
  file_->read_at(out + near, bytes - near, at_);
  skip(bytes - near);
}

void ForwardReader::skip(size_t bytes) {
  used_ += std::min(bytes, window().size());
  at_ += bytes;
}

}  // namespace zeno::data::parquet
