// Our own chat templates in the formats of known families, all with {% generation %} around the assistant's
// text. transformers reads them too.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace zeno::data {

std::vector<std::string> preset_names();
std::optional<std::string> preset_source(const std::string& name);

}  // namespace zeno::data
