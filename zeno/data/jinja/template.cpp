#include "zeno/data/jinja/template.h"

#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/jinja/evaluator.h"
#include "zeno/data/jinja/parser.h"

namespace zeno::data::jinja {

Template Template::parse(std::string_view source, std::string where) {
  return Template(std::make_shared<const Syntax>(parse_syntax(source, where)));
}

Rendered Template::render(const nlohmann::ordered_json& context, const RenderOptions& options) const {
  ensure(context.is_object(), "[{}] chat template: the context is not an object", syntax_->where);
  std::vector<Variable> variables;
  for (const auto& [name, value] : context.get_ref<const nlohmann::ordered_json::object_t&>())
    variables.push_back({name, &value});
  return render(variables, options);
}

Rendered Template::render(std::span<const Variable> variables, const RenderOptions& options) const {
  Evaluator evaluator(*syntax_, options.limits, options.now);
  try {
    evaluator.run(variables);
  } catch (const RenderError& error) {
    fail(ErrorKind::data, "[{}, line {}] chat template: {}", syntax_->where, evaluator.line(),
         shortened(error.what(), 400));
  }
  std::vector<Stretch> stretches = evaluator.text().stretches();
  return {std::move(evaluator.text()).str(), std::move(stretches), std::move(evaluator.sources()),
          std::move(evaluator.generated())};
}

bool Template::marks_generation() const { return syntax_->marks_generation; }

}  // namespace zeno::data::jinja
