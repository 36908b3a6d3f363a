// libFuzzer entry: any bytes as a config. Only zeno::Error may come out.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/config/config_resolve.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace zeno::config;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  try {
    (void)decode_base64(text);
    ParsedConfig parsed = parse_config({parse_relaxed_json(text, "fuzz.json"), "fuzz.json"}, {});
    resolve_model(parsed, 768, 12);
    resolve_batch(parsed, 3);
    resolve_steps(parsed, 1000);
    (void)print_config(parsed);
    for (const int64_t step : {0, 1, 999}) (void)learning_rate(parsed.config.schedule, step);
    if (parsed.config.precision.compute == zeno::DType::f16) {
      LossScaler scaler(parsed.config.precision.loss_scale);
      for (int i = 0; i < 8; ++i) scaler.update(i % 3 != 0);
    }
  } catch (const zeno::Error& error) {
    if (error.kind() == zeno::ErrorKind::internal) throw;  // a broken promise of ours is a finding
  }
  return 0;
}
