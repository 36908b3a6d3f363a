// Any bytes as a data file: read as JSON, as tables and as text in small pieces, every record looked at in
// every format. Either it becomes a record or an Error(data) says why not.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/data/dataset/record.h"
#include "zeno/data/dataset/record_reader.h"

namespace {

using namespace zeno;
using namespace zeno::data;

template <class F>
void guarded(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
}

void read_in_every_format(const std::string& text) {
  Json json;
  guarded([&] { json = parse_json(text); });
  for (int format = 0; format <= int(DataFormat::tokens); ++format) {
    guarded([&] {
      Json copy = json;
      Fields fields(copy);
      for (Record& record : read_record(fields, DataFormat(format))) {
        if (auto* alpaca = std::get_if<AlpacaRecord>(&record)) {
          chat_of(AlpacaRecord(*alpaca));
          plain_layout_of(std::move(*alpaca));
        }
      }
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("fuzz", 0);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != ssize_t(size)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  for (const FileKind kind : {FileKind::json, FileKind::csv, FileKind::tsv, FileKind::plain_text}) {
    guarded([&] {
      const auto reader =
          open_records({path, kind, size}, {.piece_bytes = 7, .record_bytes = 1 << 16, .text_bytes = 16});
      std::vector<RawRecord> records;
      for (reader->next(records); !records.empty(); reader->next(records)) {
        for (const RawRecord& record : records) read_in_every_format(record.text);
      }
    });
  }
  return 0;
}
