#include "zeno/data/chat/template_files.h"

#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/python_json.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/limits.h"

namespace zeno::data {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t(16) << 20;

// An empty object when the file is not there.
nlohmann::json read_object(const Path& path) {
  if (!file_exists(path)) return nlohmann::json::object();
  std::string text = read_file(path, tokenizer::kMaxFileBytes);
  check_json_limits(text, fmt::format("[{}]", path.string()), tokenizer::kJsonLimits);
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(quote_special_numbers(std::move(text)));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::data, "[{}] not JSON: {}", path.string(), shortened(error.what(), 200));
  }
  require(json.is_object(), ErrorKind::data, "[{}] got a JSON {}, expected an object", path.string(),
          json.type_name());
  return json;
}

// "chat_template" of a configuration: a text, or a list of {name, template}.
void add_templates(std::vector<NamedTemplate>& out, const nlohmann::json& config, const Path& path) {
  const auto entry = config.find("chat_template");
  if (entry == config.end() || entry->is_null()) return;
  const std::string where = path.string();
  if (entry->is_string()) {
    out.push_back({"default", where, entry->get<std::string>()});
    return;
  }
  require(entry->is_array(), ErrorKind::data, "[{}] chat_template: got a JSON {}, expected a text or a list",
          where, entry->type_name());
  for (const nlohmann::json& item : *entry) {
    const bool good = item.is_object() && item.contains("name") && item["name"].is_string() &&
                      item.contains("template") && item["template"].is_string();
    require(good, ErrorKind::data, "[{}] chat_template: an entry of the list has no name and template",
            where);
    const std::string name = item["name"].get<std::string>();
    out.push_back({name, where + ", " + shortened(name, 60), item["template"].get<std::string>()});
  }
}

}  // namespace

std::string read_template(const Path& file) { return read_file(file, kMaxTemplateBytes); }

std::vector<NamedTemplate> folder_templates(const Path& folder) {
  std::vector<NamedTemplate> out;
  const Path file = folder / "chat_template.jinja", more = folder / "additional_chat_templates";
  if (file_exists(file)) out.push_back({"default", file.string(), read_template(file)});
  if (folder_exists(more)) {
    for (const std::string& name : list_folder(more)) {
      const Path path = more / name;
      if (path.extension() == ".jinja")
        out.push_back({path.stem().string(), path.string(), read_template(path)});
    }
  }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    if (out.empty()) add_templates(out, read_object(folder / name), folder / name);
  }
  return out;
}

nlohmann::ordered_json special_tokens(const Path& folder) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const nlohmann::json config = read_object(folder / file);
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      if (out.contains(name)) continue;
      const auto entry = config.find(name);
      if (entry == config.end()) continue;
      if (entry->is_string()) out[name] = entry->get<std::string>();
      if (entry->is_object() && entry->contains("content") && (*entry)["content"].is_string()) {
        out[name] = (*entry)["content"].get<std::string>();
      }
    }
  }
  return out;
}

}  // namespace zeno::data
