// Every byte of a rendering knows where it comes from.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/data/jinja/template.h"

namespace zeno::data::jinja {
namespace {

using Json = nlohmann::ordered_json;

const Json kContext{{"bos", "<s>"},
                    {"messages",
                     {{{"role", "user"}, {"content", " Ünder <b> one\ntwo "}, {"n", 7}},
                      {{"role", "assistant"}, {"content", "b & ß"}, {"call", {{"args", {{"k", "v"}}}}}}}}};

// The text with the source in front of every change: "|user:content|…".
std::string marked(const std::string& source, const Json& context = kContext) {
  const Rendered rendered = Template::parse(source, "test").render(context);
  std::string out;
  size_t begin = 0;
  for (const Stretch& stretch : rendered.stretches) {
    std::string name = "*";
    if (stretch.origin.source != kManySources) {
      const Source& from = rendered.sources.at(stretch.origin.source);
      name = from.variable;
      if (from.element >= 0) name += std::to_string(from.element);
      if (!from.key.empty()) name += "." + from.key;
    }
    out += "{" + name + "}" + rendered.text.substr(begin, stretch.end - begin);
    begin = stretch.end;
  }
  EXPECT_EQ(begin, rendered.text.size());
  return out;
}

std::string expression(const std::string& text) {
  return marked("{% set m = messages[0] %}{{ " + text + " }}");
}

TEST(Trace, OperationsOverTextsKeepTheOrigins) {
  const std::string u = "{messages0.content}", a = "{messages1.content}";
  EXPECT_EQ(expression("bos + m.content | trim"), "{bos}<s>" + u + "Ünder <b> one\ntwo");
  EXPECT_EQ(expression("m.content.strip() ~ '/' ~ messages[1].content"),
            u + "Ünder <b> one\ntwo{}/" + a + "b & ß");
  EXPECT_EQ(expression("(m.content + messages[1].content)[-8:-3]"), u + "wo " + a + "b ");
  EXPECT_EQ(expression("(m.content + messages[1].content).upper()"),
            u + " ÜNDER <B> ONE\nTWO " + a + "B & SS");
  EXPECT_EQ(expression("m.content.replace('one', messages[1].content)"),
            u + " Ünder <b> " + a + "b & ß" + u + "\ntwo ");
  EXPECT_EQ(expression("m.content.split('\\n') | join('; ')"), u + " Ünder <b> one{}; " + u + "two ");
  EXPECT_EQ(expression("'%s: %5s' | format(m.role, messages[1].content)"),
            "{messages0.role}user{}: " + a + "b & ß");
  EXPECT_EQ(expression("'{} {!r}'.format(m.n, messages[1].content)"), "{messages0.n}7{} " + a + "'b & ß'");
  EXPECT_EQ(expression("m.content | trim | indent(2)"), u + "Ünder <b> one{}\n  " + u + "two");
  EXPECT_EQ(expression("(messages[1].content | safe) + '<'"), a + "b & ß{}&lt;");
  EXPECT_EQ(expression("messages[1].content | e"), a + "b &amp; ß");
  EXPECT_EQ(expression("messages[1].call | tojson"), "{messages1.call}{\"args\": {\"k\": \"v\"}}");
  EXPECT_EQ(expression("{'t': messages[1].call.args.k} | tojson"), "{}{\"t\": {messages1.call}\"v\"{}}");
  EXPECT_EQ(expression("m.content | int('x') ~ (m.n | string | int)"), "{}x{messages0.n}7");
  EXPECT_EQ(expression("m.content | reverse | reverse | trim | first"), u + "Ü");
  EXPECT_EQ(expression("'{\"a\": [1]}' | from_json"), "{}{'a': [1]}");
}

TEST(Trace, JsonThatIsNoneIsAnError) {
  for (const char* text : {"'{'", "'[' * 300 ~ ']' * 300", "1 ~ ' 2'"}) {
    const Template compiled = Template::parse("{{ (" + std::string(text) + ") | from_json }}", "test");
    EXPECT_THROW(compiled.render(kContext), Error) << text;
  }
}

TEST(Trace, BlocksMacrosAndNamespacesKeepTheOrigins) {
  EXPECT_EQ(marked("{% macro turn(m) %}[{{ m.content }}]{% endmacro %}{% set x %}{{ turn(messages[1]) }}!{% "
                   "endset %}{{ x }}"),
            "{}[{messages1.content}b & ß{}]!");
  EXPECT_EQ(marked("{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.role %}{% "
                   "endfor %}{{ ns.t }}"),
            "{messages0.role}user{messages1.role}assistant");
  EXPECT_EQ(marked("{% filter upper %}a{{ messages[1].content }}{% endfilter %}"),
            "{}A{messages1.content}B & SS");
}

TEST(Trace, AnEmptyTextLeavesItsPlace) {
  const Json context{{"messages", {{{"role", "user"}, {"content", ""}}}}};
  EXPECT_EQ(marked("a{{ messages[0].content }}b", context), "{}a{messages0.content}{}b");
  EXPECT_EQ(marked("a{{ messages[0].content | trim + 'b' }}", context), "{}a{messages0.content}{}b");
}

TEST(Trace, TextsKnowTheElementThatTheTemplateIsAt) {
  const Rendered rendered =
      Template::parse(
          "a{% for m in messages %}{% set end = '/' %}<{{ messages[0].role }}{{ end }}{% endfor %}z", "test")
          .render(kContext);
  ASSERT_EQ(rendered.text, "a<user/<user/z");
  std::vector<int64_t> frames;
  size_t begin = 0;
  for (const Stretch& stretch : rendered.stretches) {
    const int64_t at = stretch.origin.frame == 0 ? -1 : rendered.sources[stretch.origin.frame].element;
    for (; begin < stretch.end; ++begin) frames.push_back(at);
  }
  EXPECT_EQ(frames, (std::vector<int64_t>{-1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, -1}));
}

}  // namespace
}  // namespace zeno::data::jinja
