// The chat files of a model folder: its templates and its special tokens.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "zeno/base/file.h"

namespace zeno::data {

struct NamedTemplate {
  std::string name;   // "default", "tool_use", …
  std::string where;  // the file it is from
  std::string source;
};

// The text of a template. Error(data): longer than any is.
std::string read_template(const Path& file);
// None: the folder has no template.
std::vector<NamedTemplate> folder_templates(const Path& folder);

// bos_token, eos_token, … as a JSON object of texts.
nlohmann::ordered_json special_tokens(const Path& folder);

}  // namespace zeno::data
