// Any bytes as adapter_config.json: either options that a model may be asked for, or an Error(data).
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/model/adapter_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zeno;
  using namespace zeno::model;
  try {
    const AdapterConfig config = parse_adapter_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    check_lora(config.lora);
    if (config.lora.targets.empty()) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
  return 0;
}
