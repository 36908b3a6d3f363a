// Jinja templates as Hugging Face chat templates use them: the language of jinja2's
// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, break and continue, {% generation %}, and
// the functions and the `tojson` that transformers adds. Results are byte for byte those of jinja2; what it
// refuses is refused here too. Differences: integers have 64 bits (more is an error), keys of dicts are
// scalars, and work is bounded. Beyond jinja2, the origin of every byte of the result is traced.
//
// A Template is a cheap value: copies share one syntax tree, which never changes. render() may run on many
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/jinja/budget.h"
#include "zeno/data/jinja/trace.h"
#include "zeno/data/jinja/traced_text.h"
#include "zeno/data/text_span.h"

namespace zeno::data::jinja {

struct Syntax;

struct Rendered {
  std::string text;
  std::vector<Stretch> stretches;   // where its bytes come from; see traced_text.h
  std::vector<Source> sources;      // what Origin::source numbers
  std::vector<TextSpan> generated;  // bytes inside {% generation %}; ascending, disjoint
};

struct RenderOptions {
  // Seconds since 1970 (UTC) for strftime_now. Without, the function is not defined: nothing depends on the
  // day a run happens to start, and templates that bring a fixed date take that.
  std::optional<int64_t> now;
  Limits limits;
};

class Template {
 public:
  // `where` names the template in errors. Syntax errors, unknown tags, filters and tests: Error(data).
  static Template parse(std::string_view source, std::string where);

  // What goes wrong is an Error(data) with template and line. Texts are not copied before the template
  // changes them.
  Rendered render(std::span<const Variable> variables, const RenderOptions& options = {}) const;
  // `context`: an object, the variables of the template.
  Rendered render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

  // The template has {% generation %}, and every one writes straight to the result (none is inside a macro or
  // a set block, where its place would be unknown).
  bool marks_generation() const;

 private:
  explicit Template(std::shared_ptr<const Syntax> syntax) : syntax_(std::move(syntax)) {}
  std::shared_ptr<const Syntax> syntax_;  // shared: copies of a template are handed to threads
};

}  // namespace zeno::data::jinja
