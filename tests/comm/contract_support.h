// Values, buffers and references for the communicator contract.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "site.h"
#include "zeno/base/dtype.h"
#include "zeno/comm/world.h"

namespace zeno::comm::contract {

template <class... Args>
void expect(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw std::runtime_error(fmt::format(format, std::forward<Args>(args)...));
}

// Values of many magnitudes and both signs: sums in another order have other bits.
inline float value(int rank, int64_t index, int salt) {
  uint64_t h = uint64_t(index) * 0x9e3779b97f4a7c15u + uint64_t(rank + 1) * 0xbf58476d1ce4e5b9u +
               uint64_t(salt) * 0x94d049bb133111ebu;
  h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
  h ^= h >> 32;
  const float mantissa = float(int(h & 0xffff) - 32768) / 32768.0f;
  return mantissa * std::bit_cast<float>(uint32_t(127 - 6 + int((h >> 16) % 12)) << 23);
}

inline float get(const std::byte* data, DType dtype, int64_t i) {
  return dispatch_float(dtype, [&]<class T>() {
    T element;
    std::memcpy(&element, data + size_t(i) * sizeof(T), sizeof(T));
    return float(element);
  });
}
inline void put(std::byte* data, DType dtype, int64_t i, float v) {
  dispatch_float(dtype, [&]<class T>() {
    const T element(v);
    std::memcpy(data + size_t(i) * sizeof(T), &element, sizeof(T));
  });
}
inline float rounded(float v, DType dtype) {
  return dispatch_float(dtype, [&]<class T>() { return float(T(v)); });
}

// The documented order, written as the document says it.
inline float tree(const std::vector<float>& values, size_t begin, size_t end) {
  if (end - begin == 1) return values[begin];
  size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return tree(values, begin, begin + half) + tree(values, begin + half, end);
}
inline float expected_sum(int ranks, int64_t index, int salt, DType dtype) {
  std::vector<float> values;
  for (int r = 0; r < ranks; ++r) values.push_back(rounded(value(r, index, salt), dtype));
  return tree(values, 0, values.size());
}

// Where a rank's buffers come from: plain memory of the device (staged between processes), the world's, or a
// mix over the ranks.
enum class Memory { plain, shared, mixed };

// A buffer, and the host's view of it: the same memory on the CPU, a copy for a GPU.
class Bytes {
 public:
  Bytes(Site& site, Memory memory, size_t bytes, size_t shift = 0)
      : site_(&site), bytes_(bytes + shift + 64), shift_(shift) {
    const bool shared = memory == Memory::shared || (memory == Memory::mixed && site.rank() % 2 == 0);
    block_ = (shared ? site.world().allocator(site.device()) : allocator_of(site.device()))(bytes_);
    if (site.on_cuda()) mirror_.resize(bytes_);
    std::memset(host() - shift_, 0xee, bytes_);
    upload();
  }
  ~Bytes() {
    if (block_.data != nullptr) block_.release(block_.data);
  }
  Bytes(Bytes&& other) noexcept
      : site_(other.site_),
        block_(std::exchange(other.block_, {})),
        mirror_(std::move(other.mirror_)),
        bytes_(other.bytes_),
        shift_(other.shift_) {}
  Bytes& operator=(Bytes&&) = delete;

  // For communicators.
  std::byte* data() const { return block_.data + shift_; }
  // For tests: upload() after writing, download() before reading.
  std::byte* host() { return (mirror_.empty() ? block_.data : mirror_.data()) + shift_; }
  void upload() {
    if (!mirror_.empty()) site_->copy(block_.data, mirror_.data(), bytes_);
  }
  void download() {
    if (!mirror_.empty()) site_->copy(mirror_.data(), block_.data, bytes_);
  }

 private:
  Site* site_;
  Block block_;
  std::vector<std::byte> mirror_;
  size_t bytes_, shift_;
};

inline Bytes filled(Site& site, Memory memory, int64_t elements, DType dtype, int salt, size_t shift = 0) {
  Bytes bytes(site, memory, size_t(elements) * size_of(dtype), shift);
  for (int64_t i = 0; i < elements; ++i) put(bytes.host(), dtype, i, value(site.rank(), i, salt));
  bytes.upload();
  return bytes;
}

// The same for large buffers, quickly: values repeat after kPeriod elements.
constexpr int64_t kPeriod = 4096;
inline Bytes filled_periodic(Site& site, Memory memory, int64_t elements, DType dtype, int salt,
                             size_t shift = 0) {
  Bytes bytes(site, memory, size_t(elements) * size_of(dtype), shift);
  std::byte* const host = bytes.host();
  for (int64_t i = 0; i < elements; ++i) {
    if (i < kPeriod) {
      put(host, dtype, i, value(site.rank(), i, salt));
    } else {
      const int64_t size = std::min(kPeriod, elements - i);
      std::memcpy(host + size_t(i) * size_of(dtype), host, size_t(size) * size_of(dtype));
      i += size - 1;
    }
  }
  bytes.upload();
  return bytes;
}

inline void expect_equal(float got, float want, const char* what, int64_t i) {
  expect(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want), "{}: element {} is {}, expected {}",
         what, i, got, want);
}

}  // namespace zeno::comm::contract
