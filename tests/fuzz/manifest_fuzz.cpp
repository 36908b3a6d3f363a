// Any bytes as the manifest of a checkpoint, or as the note of a rank: as they are, and behind a checksum
// that is right, so that the fuzzer gets past it. What is read can be written and read again.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "zeno/base/error.h"
#include "zeno/checkpoint/manifest.h"

namespace {

using namespace zeno;

void read(const std::string& text) {
  checkpoint::is_newer_manifest(text);
  const auto only_errors_of_data = [](const auto& body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) std::abort();
    }
  };
  only_errors_of_data([&] {
    const checkpoint::Manifest manifest = checkpoint::parse_manifest(text, "fuzz");
    for (const checkpoint::StateFile& file : manifest.files) {
      for (const checkpoint::Extent& extent : file.extents) checkpoint::extent_name(manifest, extent);
    }
  });
  only_errors_of_data([&] {
    const auto files = checkpoint::parse_state_files(text, "fuzz");
    if (checkpoint::parse_state_files(checkpoint::format_state_files(files), "fuzz") != files) std::abort();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  read(body);
  const std::string rest = "\"," + body;
  const uint64_t checksum = checkpoint::checksum_of(std::as_bytes(std::span(rest)));
  read(fmt::format("{{\"checksum\":\"{:016x}{}\n", checksum, rest));
  return 0;
}
