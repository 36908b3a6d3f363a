// Any bytes as a Parquet file, and as the parts of one that random bytes seldom reach: the footer, a page's
// header, a page's values in every encoding. Either there are rows or an Error(data) says why not.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/data/parquet/decoder.h"
#include "zeno/data/parquet/json_value.h"
#include "zeno/data/parquet/row_reader.h"
#include "zeno/data/parquet/schema.h"

namespace {

using namespace zeno;
using namespace zeno::data::parquet;

constexpr int kMaxRows = 50;  // a few bytes can claim billions
constexpr Limits kSmall{.page_bytes = 4 << 20, .row_bytes = 1 << 20};

template <class F>
void guarded(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
}

void read_rows(const std::string& bytes) {
  static const int fd = ::memfd_create("fuzz", 0);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    std::abort();
  guarded([&] {
    RowReader reader("/proc/self/fd/" + std::to_string(fd), kSmall);
    Json row;
    for (int i = 0; i < kMaxRows && reader.next(row); ++i) row.dump();
  });
}

// Makes a file of which `text` is the footer, behind 4 bytes of magic and whatever it wants to take for
// pages.
std::string with_tail(std::string_view text) {
  std::string bytes = "PAR1" + std::string(text);
  const auto length = uint32_t(text.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes + "PAR1";
}

void read_values(std::string_view text) {
  if (text.size() < 3) return;
  const ValueType type{.physical = PhysicalType(uint8_t(text[0]) % 8),
                       .length = 1 + (uint8_t(text[1]) & 15),
                       .logical = {.meaning = Meaning(uint8_t(text[1]) >> 4), .fraction_digits = 6}};
  Dictionary dictionary;
  guarded([&] { dictionary = read_dictionary(text.substr(3), uint8_t(text[2]), type); });
  for (int encoding = 0; encoding <= int(Encoding::byte_stream_split); ++encoding) {
    guarded([&] {
      const auto values = make_decoder(Encoding(encoding), text.substr(3), type, dictionary);
      for (int i = 0; i < kMaxRows; ++i) json_value(values->next(), type);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_rows(std::string(text));
  read_rows(with_tail(text));
  read_values(text);
  guarded([&] {
    size_t used = 0;
    parse_page_header(text, used);
  });
  guarded([&] { read_schema(parse_file_metadata(text).schema); });
  return 0;
}
