// Text of a manifest with a right checksum, whatever else is in it.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>

#include "zeno/checkpoint/manifest.h"

namespace zeno::test {

// `members`: of the JSON object, without its braces.
inline std::string sealed_manifest(const std::string& members) {
  const std::string rest = "\"," + members + "}";
  const uint64_t sum = checkpoint::checksum_of(std::as_bytes(std::span(rest)));
  return fmt::format("{{\"checksum\":\"{:016x}{}\n", sum, rest);
}

}  // namespace zeno::test
