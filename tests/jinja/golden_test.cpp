// Byte for byte what jinja2 makes of the same text: hundreds of snippets, and whole templates of the model
// families (tests/golden/chat, written by tools/golden_chat.py).
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/data/jinja/template.h"

namespace zeno::data::jinja {
namespace {

using Json = nlohmann::ordered_json;

const Path kFolder = Path(ZENO_SOURCE_DIR) / "tests" / "golden" / "chat";

struct Outcome {
  std::string text, error;
  bool parsed = false;
  std::vector<TextSpan> generated;
};

Outcome render(const std::string& source, const Json& context, int64_t now) {
  Outcome out;
  try {
    const Template compiled = Template::parse(source, "test");
    out.parsed = true;
    Rendered rendered = compiled.render(context, {.now = now});
    out.text = std::move(rendered.text);
    out.generated = std::move(rendered.generated);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    out.error = error.what();
  }
  return out;
}

TEST(JinjaGolden, Snippets) {
  const Json golden = Json::parse(read_file(kFolder / "snippets.json"));
  ASSERT_GT(golden["snippets"].size(), 700u);
  for (const Json& snippet : golden["snippets"]) {
    const std::string source = snippet["template"].get<std::string>();
    const Outcome got = render(source, golden["context"], golden["now"].get<int64_t>());
    if (snippet.contains("error")) {
      EXPECT_FALSE(got.error.empty())
          << source << "\njinja2: " << snippet["error"] << "\ngot text: " << got.text;
      EXPECT_EQ(got.parsed, snippet["stage"] == "render") << source << "\n" << got.error;
    } else {
      EXPECT_EQ(got.error, "") << source;
      EXPECT_EQ(got.text, snippet["text"].get<std::string>()) << source;
    }
  }
}

// What transformers hands to a template for a conversation.
Json context_of(const Json& conversation, bool prompt) {
  Json context{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"documents", nullptr}};
  context["messages"] = conversation["messages"];
  context["tools"] = conversation.value("tools", Json());
  context["add_generation_prompt"] = prompt;
  const Json extra = conversation.value("extra", Json::object());
  for (const auto& [name, value] : extra.items()) context[name] = value;
  return context;
}

TEST(JinjaGolden, FamilyTemplates) {
  const Json golden = Json::parse(read_file(kFolder / "expected.json"));
  std::map<std::string, Json> conversations;
  for (const Json& conversation : Json::parse(read_file(kFolder / "conversations.json"))) {
    conversations[conversation["name"].get<std::string>()] = conversation;
  }
  ASSERT_GT(golden["rows"].size(), 500u);
  for (const Json& row : golden["rows"]) {
    const std::string file = row["template"].get<std::string>(),
                      name = row["conversation"].get<std::string>();
    SCOPED_TRACE(file + ", " + name);
    const Outcome got =
        render(read_file(kFolder / file), context_of(conversations.at(name), row["prompt"].get<bool>()),
               golden["now"].get<int64_t>());
    EXPECT_EQ(!got.error.empty(), row.contains("error")) << got.error << got.text;
    if (row.contains("error")) continue;
    EXPECT_EQ(got.text, row["text"].get<std::string>());
    Json spans = Json::array();
    for (const TextSpan& span : got.generated) spans.push_back({span.begin, span.end});
    EXPECT_EQ(spans, row["generated"]);
  }
}

}  // namespace
}  // namespace zeno::data::jinja
