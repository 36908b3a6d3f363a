// What the golden files cannot say: errors, limits, spans, the clock, threads.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/data/jinja/template.h"

namespace zeno::data::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string error_of(const std::string& source, const Json& context = Json::object(),
                     const RenderOptions& options = {}) {
  try {
    const Rendered rendered = Template::parse(source, "chat.jinja").render(context, options);
    return "no error, but: " + rendered.text.substr(0, 100);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    return error.what();
  }
}

std::string text_of(const std::string& source, const Json& context = Json::object(),
                    const RenderOptions& options = {}) {
  return Template::parse(source, "chat.jinja").render(context, options).text;
}

TEST(JinjaTemplate, ErrorsNameTemplateLineAndReason) {
  EXPECT_EQ(error_of("a\n{% nosuch %}"),
            "[chat.jinja, line 2] chat template: unknown or misplaced tag 'nosuch'");
  EXPECT_EQ(error_of("a\n\n{{ x | nosuch }}"),
            "[chat.jinja, line 3] chat template: no filter named 'nosuch'");
  EXPECT_EQ(error_of("{% if false %}{{ x is nosuch }}{% endif %}"),
            "[chat.jinja, line 1] chat template: no test named 'nosuch'");
  EXPECT_EQ(error_of("a\n{{ x.y }}"), "[chat.jinja, line 2] chat template: 'x' is undefined");
  EXPECT_EQ(error_of("{% if true %}\n{{ raise_exception('roles must alternate') }}\n{% endif %}"),
            "[chat.jinja, line 2] chat template: roles must alternate");
  EXPECT_EQ(error_of("x\n{% for a in b %}\n"),
            "[chat.jinja, line 2] chat template: the block that begins here is not closed with 'endfor'");
  EXPECT_EQ(error_of("{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ m() }}"),
            "[chat.jinja, line 2] chat template: operator + between int and str");
  EXPECT_NE(error_of("\xff").find("not UTF-8"), std::string::npos);
  for (const char* tag :
       {"include 'x'", "extends 'x'", "import 'x' as y", "from 'x' import y", "block b", "autoescape true"}) {
    EXPECT_NE(error_of("{% " + std::string(tag) + " %}").find("unknown or misplaced tag"), std::string::npos)
        << tag;
  }
}

TEST(JinjaTemplate, IntegersHave64Bits) {
  EXPECT_EQ(text_of("{{ 9223372036854775807 }}"), "9223372036854775807");
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 9223372036854775807 * 2 }}", "{{ 2 ** 64 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ '9223372036854775808' | int }}", "{{ 1e30 | int }}",
        "{{ 9223372036854775808 }}"}) {
    EXPECT_NE(error_of(source).find("integer beyond 64 bits"), std::string::npos)
        << source << error_of(source);
  }
  EXPECT_NE(error_of("{{ x }}", {{"x", 18446744073709551615ull}}).find("beyond 64 bits"), std::string::npos);
}

TEST(JinjaTemplate, AStrangersTemplateCannotHangOrFillTheMemory) {
  const Json context{{"messages", Json::array({1, 2, 3})}};
  const char* sources[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{{ 'x' * 9000000000000000000 }}",
      "{{ [0] * 9000000000000000000 }}",
      "{{ 'abc' | center(9000000000000000000) }}",
      "{{ 'abc'.ljust(9000000000000000000) }}",
      "{{ '%9000000000d' % 1 }}",
      "{{ '{:9000000000}'.format(1) }}",
      "{{ 'a' | indent(9000000000000000000, true) }}",
      "{{ [1] | batch(9000000000000000000, 0) | list }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
      "ns.l }}",
      "{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}{% for i in range(60) %}{% set a.l = "
      "[a.l, a.l] %}"
      "{% set b.l = [b.l, b.l] %}{% endfor %}{{ a.l == b.l }}",
      "{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}",
      "{{ 'ab'.replace('', 'x' * 1000000) * 1000 }}",
      "{% for i in [[[]]] recursive %}{{ loop([i]) }}{% endfor %}",
  };
  RenderOptions options;  // a tenth of the usual, to save time
  options.limits = {.steps = 1'000'000, .bytes = 50'000'000, .depth = options.limits.depth};
  for (const char* source : sources) {
    const std::string error = error_of(source, context, options);
    EXPECT_EQ(error.find("no error"), std::string::npos) << source << "\n" << error;
  }
  const std::string deep = std::string(100000, '(') + "1" + std::string(100000, ')');
  EXPECT_NE(error_of("{{ " + deep + " }}").find("nested deeper"), std::string::npos);
  std::string sum = "1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  EXPECT_NE(error_of("{{ " + sum + " }}").find("levels"), std::string::npos);
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "{% if 1 %}";
  EXPECT_NE(error_of(blocks).find("nested deeper"), std::string::npos);
}

TEST(JinjaTemplate, LimitsAreTheCallers) {
  RenderOptions options;
  options.limits = {.steps = 100, .bytes = 100, .depth = 10};
  EXPECT_NE(error_of("{% for a in range(1000) %}{% endfor %}", Json::object(), options).find("100 steps"),
            std::string::npos);
  EXPECT_NE(error_of("{{ 'x' * 101 }}", Json::object(), options).find("100 bytes"), std::string::npos);
  EXPECT_NE(error_of("{{ [[[[[[[[[[[]]]]]]]]]]] }}", Json::object(), options).find("10 levels"),
            std::string::npos);
  EXPECT_EQ(text_of("{{ 'x' * 20 }}", Json::object(), options).size(), 20u);
}

TEST(JinjaTemplate, TheClockIsTheCallers) {
  EXPECT_EQ(text_of("{{ strftime_now('%d %b %Y') }}", Json::object(), {.now = 0}), "01 Jan 1970");
  EXPECT_EQ(text_of("{{ strftime_now is defined }}"), "False");
  EXPECT_NE(error_of("{{ strftime_now('%Y') }}").find("asks for the date"), std::string::npos);
}

TEST(JinjaTemplate, GenerationSpansAreBytes) {
  const Template compiled = Template::parse(
      "ä{% generation %}öü{% endgeneration %}x{% generation %}{% endgeneration %}{% generation %}y{% "
      "generation %}z{% endgeneration %}{% endgeneration %}",
      "t");
  EXPECT_TRUE(compiled.marks_generation());
  const Rendered rendered = compiled.render(Json::object());
  EXPECT_EQ(rendered.text, "äöüxyz");
  EXPECT_EQ(rendered.generated, (std::vector<TextSpan>{{2, 6}, {7, 9}}));
}

TEST(JinjaTemplate, GenerationInsideMacrosIsNotCounted) {
  const Template compiled =
      Template::parse("{% macro m() %}{% generation %}a{% endgeneration %}{% endmacro %}{{ m() }}", "t");
  EXPECT_FALSE(compiled.marks_generation());
  EXPECT_EQ(compiled.render(Json::object()).text, "a");
  EXPECT_FALSE(Template::parse("plain", "t").marks_generation());
}

TEST(JinjaTemplate, NothingLeaksWhenValuesHoldThemselves) {
  // Under AddressSanitizer a circle that is not broken is a leak.
  EXPECT_EQ(text_of("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{% macro m() %}{{ "
                    "ns.me.me is defined }}{% endmacro %}"
                    "{% set ns.m = m %}{% for i in [1] %}{% set ns.loop = loop %}{{ loop.changed(loop) }}{% "
                    "macro k() %}{% endmacro %}"
                    "{% set ns.k = k %}{% endfor %}{{ m() }}"),
            "TrueTrue");
}

TEST(JinjaTemplate, ThreadsShareOneTemplate) {
  const Template compiled = Template::parse(
      "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for i in items %}{{ m(i) }}{% endfor %}", "t");
  std::vector<std::string> results(8);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < results.size(); ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) results[t] = compiled.render({{"items", {t, t + 1}}}).text;
      });
    }
  }
  for (size_t t = 0; t < results.size(); ++t) {
    EXPECT_EQ(results[t], fmt::format("<{}><{}>", t, t + 1));
  }
}

}  // namespace
}  // namespace zeno::data::jinja
