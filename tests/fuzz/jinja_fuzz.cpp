// Any bytes as a chat template: a text within the limits, or an Error(data).
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/data/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zeno;
  using namespace zeno::data::jinja;
  static const auto context =
      nlohmann::ordered_json::parse(R"({"messages": [{"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Grüße 🎉"}, {"role": "assistant", "content": null, "tool_calls": [{"function":
      {"name": "f", "arguments": {"a": [1, 2.5, true, null]}}}]}], "tools": [{"name": "f"}], "n": 7, "x": 0.5,
      "s": "  text ", "l": [3, 1, 2], "d": {"a": 1, "b": {"c": []}}, "bos_token": "<s>", "add_generation_prompt": true})");
  try {
    const Template compiled = Template::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    RenderOptions options{.now = 1735787045};
    options.limits.steps = 100'000;
    options.limits.bytes = 1 << 22;
    const Rendered rendered = compiled.render(context, options);
    if (rendered.text.size() > options.limits.bytes) std::abort();
    size_t last = 0;
    for (const data::TextSpan& span : rendered.generated) {
      if (span.begin < last || span.end <= span.begin || span.end > rendered.text.size()) std::abort();
      last = span.end;
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
  return 0;
}
