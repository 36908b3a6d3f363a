// Any bytes as config.json: either a configuration whose own text reads back the same, or an Error(data).
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/model/config.h"
#include "zeno/model/layers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zeno;
  using namespace zeno::model;
  try {
    ModelConfig config = parse_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    parse_config(config_text(config, DType::bf16), "fuzz, other dtype");
    config.text.clear();
    config.eos.reset();
    const ModelConfig again = parse_config(config_text(config, config.dtype), "fuzz, rewritten");
    if (again.hidden != config.hidden || again.windows != config.windows || again.tied != config.tied ||
        again.rope_theta != config.rope_theta || again.norm_eps != config.norm_eps) {
      std::abort();
    }
    if (config.layers <= 4) parameter_table(build_layers(config, 1));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
  return 0;
}
