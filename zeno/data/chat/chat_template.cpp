#include "zeno/data/chat/chat_template.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/chat/assistant_spans.h"
#include "zeno/data/chat/presets.h"
#include "zeno/data/chat/template_files.h"
#include "zeno/data/jinja/template.h"
#include "zeno/data/parse_json.h"

namespace zeno::data {
namespace {

// Behind the content that is to be continued; its last character tells whether the template trims.
constexpr std::string_view kContinueMark = "\u2402zeno-continues-here\u2403 ";

void check_messages(const Json& messages) {
  require(messages.is_array(), ErrorKind::data, "messages: got a JSON {}, expected a list",
          messages.type_name());
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool good =
        messages[i].is_object() && messages[i].contains("role") && messages[i]["role"].is_string();
    require(good, ErrorKind::data, "message {}: expected an object with a role", i + 1);
  }
}

jinja::JsonList elements_of(const Json& list) {
  jinja::JsonList out;
  out.reserve(list.size());
  for (const Json& element : list) out.push_back(&element);
  return out;
}

// The text of a message that is to be continued.
std::string& last_text(Json& messages) {
  require(!messages.empty(), ErrorKind::data, "continue the last message: there is none");
  const auto content = messages.back().find("content");
  if (content != messages.back().end()) {
    if (content->is_string()) return content->get_ref<std::string&>();
    for (size_t i = content->is_array() ? content->size() : 0; i-- > 0;) {
      Json& part = (*content)[i];
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        return part["text"].get_ref<std::string&>();
    }
  }
  fail(ErrorKind::data, "continue the last message: it has no text");
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == "" || ((value.is_array() || value.is_object()) && value.empty());
}

// What the data has and the text has not, as the template wrote it.
struct Unwritten {
  std::vector<std::pair<size_t, std::string>> fields;  // message and key
  bool tools = false;
};

Unwritten find_unwritten(const jinja::Rendered& rendered, const Json& messages, const Json& tools) {
  std::vector<bool> written(rendered.sources.size(), false);
  Unwritten out{.fields = {}, .tools = !says_nothing(tools)};
  for (const jinja::Stretch& stretch : rendered.stretches) {
    if (stretch.origin.source != jinja::kManySources) written[stretch.origin.source] = true;
  }
  for (size_t i = 1; i < rendered.sources.size(); ++i) {
    const jinja::Source& source = rendered.sources[i];
    if (source.variable == "tools" && written[i]) out.tools = false;
    // Ids only join calls and answers.
    const bool carries_meaning = source.key != "role" && source.key != "tool_call_id";
    if (source.variable != "messages" || source.key.empty() || written[i] || !carries_meaning) continue;
    const auto message = size_t(source.element);
    if (!says_nothing(messages[message].at(source.key))) out.fields.emplace_back(message, source.key);
  }
  return out;
}

// A turn whose calls are not written, and that has no other words, would teach to say nothing.
std::vector<AssistantSpan> without_lost_calls(std::vector<AssistantSpan> spans, const Unwritten& unwritten,
                                              const Json& messages) {
  for (const auto& [message, field] : unwritten.fields) {
    if (field != "tool_calls" || !says_nothing(messages[message].value("content", Json()))) continue;
    std::erase_if(spans, [&, lost = message](const AssistantSpan& span) { return span.message == lost; });
  }
  return spans;
}

std::vector<std::string> remarks_of(const std::string& where, bool ends, const Unwritten& unwritten,
                                    const Json& messages) {
  std::vector<std::string> out;
  const auto remark = [&](const std::string& what) {
    const std::string text = fmt::format("[{}] the template {}", where, what);
    if (std::ranges::find(out, text) == out.end()) out.push_back(text);
  };
  if (!ends) remark("writes no end of turn after assistant messages: none is trained");
  if (unwritten.tools) remark("does not write the tools");
  for (const auto& [message, field] : unwritten.fields) {
    const std::string role = messages[message]["role"].get<std::string>();
    remark(fmt::format("does not write '{}' of {} messages", shortened(field, 60), shortened(role, 60)));
  }
  return out;
}

}  // namespace

Json template_variables(const std::string& extra) {
  if (extra.empty()) return Json::object();
  Json json;
  try {
    json = parse_json(extra);
  } catch (const Error&) {  // is found to be no object below
  }
  require(json.is_object(), ErrorKind::usage,
          "[chat] --template-extra: got '{}', expected a JSON object such as {{\"enable_thinking\": false}}",
          shortened(extra, 60));
  return json;
}

struct ChatTemplate::Parts {
  struct Variant {
    std::string name, where, source;
    jinja::Template compiled;
    std::string prompt;  // that the template writes behind a plain question
  };
  std::vector<Variant> variants;
  Json tokens = Json::object();

  Parts(const std::vector<NamedTemplate>& templates, Json special_tokens)
      : tokens(std::move(special_tokens)) {
    for (const NamedTemplate& item : templates) {
      variants.push_back(
          {item.name, item.where, item.source, jinja::Template::parse(item.source, item.where), {}});
    }
    for (Variant& variant : variants) {
      variant.prompt = usual_prompt(span_source(variant, Json(), ChatOptions()));
    }
  }

  // As transformers chooses: "tool_use" where there are tools and such a template, else "default".
  const Variant& variant(const Json& tools) const {
    const auto named = [&](std::string_view name) {
      return std::find_if(variants.begin(), variants.end(), [&](const Variant& v) { return v.name == name; });
    };
    if (!tools.is_null() && named("tool_use") != variants.end()) return *named("tool_use");
    return named("default") != variants.end() ? *named("default") : variants.front();
  }

  jinja::Rendered run(const Variant& chosen, const jinja::JsonList& messages, const Json& tools,
                      const ChatOptions& options) const {
    static const Json kNone;
    const Json prompt = options.add_generation_prompt, given = template_variables(options.extra);
    std::vector<jinja::Variable> variables;
    for (const auto& [name, value] : tokens.get_ref<const Json::object_t&>())
      variables.push_back({name, &value});
    const auto set = [&](const std::string& name, auto value) {
      const auto known = std::ranges::find(variables, name, &jinja::Variable::name);
      if (known == variables.end()) {
        variables.push_back({name, std::move(value)});
      } else {
        known->value = std::move(value);
      }
    };
    set("messages", messages);
    set("tools", &tools);
    set("documents", &kNone);
    set("add_generation_prompt", &prompt);
    for (const auto& [name, value] : given.get_ref<const Json::object_t&>()) set(name, &value);
    return chosen.compiled.render(variables, {.now = options.now});
  }

  SpanSource span_source(const Variant& chosen, const Json& tools, const ChatOptions& options) const {
    const auto render = [this, &chosen, tools, options](const jinja::JsonList& messages, bool prompt) {
      ChatOptions own = options;
      own.add_generation_prompt = prompt;
      return run(chosen, messages, tools, own);
    };
    return {render, chosen.prompt, tokens.value("eos_token", ""), chosen.where};
  }

  // Adds who says what.
  RenderedChat told_apart(const Variant& chosen, const Json& messages, const Json& tools,
                          const ChatOptions& options) const {
    const jinja::JsonList list = elements_of(messages);
    jinja::Rendered rendered = run(chosen, list, tools, options);
    const std::vector<Passage> passages = passages_of(rendered, list);
    RenderedChat out;
    out.others = words_of_others(passages);
    AssistantSpans found;
    if (chosen.compiled.marks_generation()) {
      found.spans = marked_spans(rendered.generated, passages);
    } else {
      found = find_assistant_spans(span_source(chosen, tools, options), list, rendered, passages);
    }
    const Unwritten unwritten = find_unwritten(rendered, messages, tools);
    out.assistant = without_lost_calls(std::move(found.spans), unwritten, messages);
    out.remarks = remarks_of(chosen.where, found.ends, unwritten, messages);
    out.text = std::move(rendered.text);
    return out;
  }

  std::string continued(const Variant& chosen, Json messages, const Json& tools,
                        const ChatOptions& options) const {
    require(!options.add_generation_prompt, ErrorKind::usage,
            "continue the last message: not possible together with a generation prompt");
    last_text(messages) += kContinueMark;
    std::string text = run(chosen, elements_of(messages), tools, options).text;
    const std::string_view mark = kContinueMark.substr(0, kContinueMark.size() - 1);
    const size_t at = text.rfind(mark);
    require(at != text.npos, ErrorKind::data,
            "[{}] continue the last message: the template does not write its text", chosen.where);
    const bool trims = std::string_view(text).substr(at, kContinueMark.size()) != kContinueMark;
    text.resize(at);
    if (trims) text.resize(text.find_last_not_of(" \n\r\t") + 1);
    return text;
  }
};

ChatTemplate ChatTemplate::open(const Path& model_folder, const std::string& choice) {
  std::vector<NamedTemplate> templates;
  if (choice.empty()) {
    templates = folder_templates(model_folder);
    require(!templates.empty(), ErrorKind::data,
            "[{}] no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); choose "
            "one of {}, or give a .jinja file",
            model_folder.string(), fmt::join(preset_names(), ", "));
  } else if (const std::optional<std::string> preset = preset_source(choice)) {
    templates.push_back({"default", "preset " + choice, *preset});
  } else {
    require(file_exists(choice), ErrorKind::usage, "chat template '{}': no such file, and not one of {}",
            choice, fmt::join(preset_names(), ", "));
    templates.push_back({"default", choice, read_template(choice)});
  }
  return ChatTemplate(std::make_shared<const Parts>(templates, special_tokens(model_folder)));
}

ChatTemplate ChatTemplate::parse(const std::string& source, const std::string& where) {
  return ChatTemplate(
      std::make_shared<const Parts>(std::vector<NamedTemplate>{{"default", where, source}}, Json::object()));
}

bool ChatTemplate::in_folder(const Path& model_folder) { return !folder_templates(model_folder).empty(); }

std::vector<std::string> ChatTemplate::presets() { return preset_names(); }

std::string ChatTemplate::render_text(const Json& messages, const Json& tools,
                                      const ChatOptions& options) const {
  check_messages(messages);
  const Json offered = tools.empty() ? Json() : tools;
  const Parts::Variant& chosen = parts_->variant(offered);
  if (options.continue_final_message) return parts_->continued(chosen, messages, offered, options);
  return parts_->run(chosen, elements_of(messages), offered, options).text;
}

RenderedChat ChatTemplate::render_prompt(const Json& messages, const Json& tools,
                                         const ChatOptions& options) const {
  check_messages(messages);
  const Json offered = tools.empty() ? Json() : tools;
  const jinja::JsonList list = elements_of(messages);
  jinja::Rendered rendered = parts_->run(parts_->variant(offered), list, offered, options);
  RenderedChat out;
  out.others = words_of_others(passages_of(rendered, list));
  out.text = std::move(rendered.text);
  return out;
}

RenderedChat ChatTemplate::render(const Json& messages, const Json& tools, const ChatOptions& options) const {
  check_messages(messages);
  const Json offered = tools.empty() ? Json() : tools;
  const Parts::Variant& chosen = parts_->variant(offered);
  RenderedChat out = parts_->told_apart(chosen, messages, offered, options);
  if (!options.continue_final_message) return out;
  out.text = parts_->continued(chosen, messages, offered, options);
  for (AssistantSpan& span : out.assistant) span.end = std::min(span.end, out.text.size());
  std::erase_if(out.assistant, [](const AssistantSpan& span) { return span.begin >= span.end; });
  return out;
}

const std::string& ChatTemplate::source() const { return parts_->variant(Json()).source; }

}  // namespace zeno::data
