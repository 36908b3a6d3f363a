// Chat templates of our own in the formats of known families, all with {% generation %} around what the
// assistant says. transformers reads them too.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace zeno::data {

std::vector<std::string> preset_names();
std::optional<std::string> preset_source(const std::string& name);

}  // namespace zeno::data
