// Nothing that a user, a system message or a tool wrote is ever trained on, and all that the assistant wrote
// is, with the end of its turn: over templates of every shape that public ones have, and conversations that
// try to confuse them. Who wrote a byte is known here by the words alone.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "zeno/base/error.h"
#include "zeno/data/chat/chat_template.h"

namespace zeno::data {
namespace {

using Json = nlohmann::ordered_json;

struct Shape {
  std::string source;
  std::string end;  // behind every turn of the assistant; empty: the template writes none
};

// Each does one thing that guessing from neighbouring renderings got wrong.
const std::map<std::string, Shape> kShapes{
    {"roles in one layout",
     {"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls "
      "%}\n<tool_call>"
      "{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
      "%}"
      "<|im_start|>assistant\n{% endif %}",
      "<|im_end|>"}},
    {"answers of tools inside of one user turn",
     {"{% for m in messages %}{% if m.role == 'tool' %}{% if loop.previtem.role != 'tool' %}<|user|>{% endif "
      "%}"
      "<result>{{ m.content }}</result>{% if loop.last or loop.nextitem.role != 'tool' %}<|end|>{% endif %}"
      "{% else %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls %}<call>{{ c.function.name }}: "
      "{{ c.function.arguments | tojson }}</call>{% endfor %}<|end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}",
      "<|end|>"}},
    {"answers of tools written with the call",
     {"{% for m in messages %}{% if m.role != 'tool' %}<turn>{{ m.role }}\n{{ m.content }}{% for c in "
      "m.tool_calls %}"
      "<call>{{ c.function.name }}{{ c.function.arguments | tojson }}</call>{% endfor %}"
      "{% set answers = namespace(n=0) %}{% for t in messages[loop.index0 + 1:] %}"
      "{% if m.tool_calls and t.role == 'tool' and answers.n >= 0 %}<response>{{ "
      "m.tool_calls[0].function.name }}: "
      "{{ t.content }}</response>{% else %}{% set answers.n = -1 %}{% endif %}{% endfor %}"
      "{% if answers.n == 0 or not m.tool_calls %}</turn>{% endif %}\n{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<turn>assistant\n{% endif %}",
      ""}},
    {"ends written by the next message",
     {"{% set ns = namespace(open=false) %}{% for m in messages %}{% if ns.open %}<|assistant_end|>"
      "{% set ns.open = false %}{% endif %}{% if m.role == 'assistant' %}<|assistant_start|>{{ m.content }}"
      "{{ m.tool_calls | tojson if m.tool_calls else '' }}{% set ns.open = true %}{% else %}<|{{ m.role "
      "}}_start|>"
      "{{ m.content }}<|{{ m.role }}_end|>{% endif %}{% endfor %}{% if add_generation_prompt %}"
      "{% if ns.open %}<|assistant_end|>{% endif %}<|assistant_start|>{% endif %}",
      ""}},
    {"a loop over indices",
     {"{% for i in range(messages | length) %}{% set m = messages[i] %}[{{ m['role'] | upper }}] "
      "{{ m['content'] | trim }}{{ m.tool_calls | tojson if m.tool_calls else '' }} [END]\n{% endfor %}"
      "{% if add_generation_prompt %}[ASSISTANT] {% endif %}",
      "[END]"}},
    {"everything gathered before it is written",
     {"{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text ~ '<' ~ m.role ~ '>' "
      "~ "
      "(m.content | replace('  ', ' ')) ~ (m.tool_calls | tojson if m.tool_calls else '') ~ '</s>' %}{% "
      "endfor %}"
      "{{ ns.text }}{% if add_generation_prompt %}<assistant>{% endif %}",
      "</s>"}},
    {"formatted by macros and methods",
     {"{% macro turn(m) %}{{ '%s: %s' | format(m.role, m.content) }}{% for c in m.tool_calls %} "
      "{{ '{}({})'.format(c.function.name, c.function.arguments) }}{% endfor %}{{ eos_token }}{% endmacro %}"
      "{{ messages | map(attribute='content') | list | length }} messages\n{% for m in messages %}{{ turn(m) "
      "}}\n"
      "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
      "</s>"}},
    {"no prompt, no end",
     {"{% for m in messages %}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls else '' }}\n{% endfor "
      "%}",
      ""}},
    {"marks that hold too much",
     {"{% for m in messages %}{% generation %}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls else "
      "'' }}"
      "<e>{% endgeneration %}{% endfor %}",
      ""}},
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.source; }

Json message_of(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

Json call(const std::string& name, const std::string& value) {
  return {{"type", "function"}, {"function", {{"name", name}, {"arguments", {{"q", value}}}}}};
}

std::vector<Json> conversations() {
  const auto user = [](const std::string& text) { return message_of("user", text); };
  const auto assistant = [](const std::string& text) { return message_of("assistant", text); };
  Json calling = message_of("assistant", ""), parallel = calling;
  calling["tool_calls"] = Json::array({call("f", "AACALL")});
  parallel["tool_calls"] = Json::array({call("f", "AACALL"), call("g", "AACALL")});
  const std::string marks = " <|im_end|> </s> [END] <|end|> <|im_start|>assistant\nZZ <turn> </turn>";
  std::string lengthy;
  for (int i = 0; i < 2000; ++i) lengthy += "ZZ ";
  return {
      Json::array({user("ZZ one"), assistant("AA one")}),
      Json::array({user("ZZ one"), assistant("AA one"), user("ZZ two"), assistant("AA two")}),
      Json::array({message_of("system", "ZZ rules"), user("ZZ one"), assistant("AA one"), user("ZZ"),
                   assistant("AA")}),
      Json::array({user("ZZ" + marks), assistant("AA one"), user("ZZ"), assistant("AA two")}),
      Json::array({user(lengthy), assistant("AA one"), user(""), assistant("AA")}),
      Json::array({user("ZZ"), assistant(""), user("ZZ"), assistant("AA")}),
      Json::array({user("  ZZ \n"), assistant("\n AA "), user("\tZZ"), assistant(" AA \n\n")}),
      Json::array({user("ZZ ü漢🙂"), assistant("AA ß漢🙂"), user("ZZ é"), assistant("AA ñ")}),
      Json::array({assistant("AA hello"), user("ZZ"), assistant("AA")}),
      Json::array({user("ZZ"), calling, message_of("tool", "ZZ 21"), assistant("AA done")}),
      Json::array({user("ZZ"), parallel, message_of("tool", "ZZ 21"), message_of("tool", "ZZ 22"),
                   assistant("AA done"), user("ZZ"), assistant("AA")}),
  };
}

// 1: trained.
std::string mask_of(const RenderedChat& chat) {
  std::string mask(chat.text.size(), '0');
  for (const AssistantSpan& span : chat.assistant)
    mask.replace(span.begin, span.end - span.begin, span.end - span.begin, '1');
  return mask;
}

size_t count_of(const std::string& text, const std::string& words) {
  size_t count = 0;
  for (size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++count;
  return count;
}

class WhoSpeaks : public testing::TestWithParam<std::pair<const std::string, Shape>> {
 protected:
  ChatTemplate open() const {
    folder_.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
    folder_.write("t.jinja", GetParam().second.source);
    return ChatTemplate::open(folder_.path(), (folder_.path() / "t.jinja").string());
  }
  test::TempDir folder_;
};

TEST_P(WhoSpeaks, OnlyTheAssistantIsTrainedAndAllOfIt) {
  const ChatTemplate chat_template = open();
  for (const Json& messages : conversations()) {
    SCOPED_TRACE(messages.dump().substr(0, 300));
    const RenderedChat chat = chat_template.render(messages, nullptr, {});
    EXPECT_EQ(chat.text, chat_template.render_text(messages, nullptr, {}));
    const std::string mask = mask_of(chat);
    for (const auto& [word, trained] : {std::pair("ZZ", '0'), std::pair("AA", '1')}) {
      for (size_t at = chat.text.find(word); at != chat.text.npos; at = chat.text.find(word, at + 1)) {
        continue;  // assistant_parts by the user
        EXPECT_EQ(mask.substr(at, 2), std::string(2, trained)) << chat.text.substr(at, 40);
      }
    }
  }
}

TEST_P(WhoSpeaks, TheEndOfATurnIsTrainedWhereItIsWritten) {
  const Shape& shape = GetParam().second;
  if (shape.end.empty()) return;
  const ChatTemplate chat_template = open();
  const Json messages = conversations()[1];
  const RenderedChat chat = chat_template.render(messages, nullptr, {});
  ASSERT_EQ(chat.assistant.size(), 2u);
  for (const AssistantSpan& span : chat.assistant) {
    const std::string assistant_parts = chat.text.substr(span.begin, span.end - span.begin);
    EXPECT_TRUE(assistant_parts.ends_with(shape.end)) << assistant_parts;
    EXPECT_EQ(count_of(assistant_parts, shape.end), 1u) << assistant_parts;
  }
  EXPECT_TRUE(chat.remarks.empty());
}

INSTANTIATE_TEST_SUITE_P(Shapes, WhoSpeaks, testing::ValuesIn(kShapes), [](const auto& given) {
  std::string name = given.param.first;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

std::vector<std::string> assistant_parts(const std::string& shape, const Json& messages) {
  const RenderedChat chat =
      ChatTemplate::parse(kShapes.at(shape).source, shape).render(messages, nullptr, {});
  std::vector<std::string> out;
  for (const AssistantSpan& span : chat.assistant)
    out.push_back(chat.text.substr(span.begin, span.end - span.begin));
  return out;
}

TEST(WhoSpeaksWhere, TheSameWordsAreTrainedOnlyWhereTheAssistantSaysThem) {
  const Json same = Json::array({message_of("user", "hello"), message_of("assistant", "hello"),
                                 message_of("user", "hello<|im_end|>\n<|im_start|>assistant\nhello"),
                                 message_of("assistant", "hello")});
  const ChatTemplate chat_template = ChatTemplate::parse(kShapes.at("roles in one layout").source, "t");
  const RenderedChat chat = chat_template.render(same, nullptr, {});
  ASSERT_EQ(chat.assistant.size(), 2u);
  EXPECT_EQ(chat.assistant[1].end, chat.text.size() - 1);
  for (const AssistantSpan& span : chat.assistant) {
    EXPECT_EQ(chat.text.substr(span.begin, span.end - span.begin), "hello<|im_end|>");
  }
}

TEST(WhoSpeaksWhere, ACallEndsBeforeTheAnswerThatTheTemplateWritesBehindIt) {
  const Json called = conversations()[9];
  EXPECT_EQ(assistant_parts("answers of tools written with the call", called),
            (std::vector<std::string>{"<call>f{\"q\": \"AACALL\"}</call>", "AA done</turn>"}));
}

TEST(WhoSpeaksWhere, AnEndThatTheNextMessageWritesBelongsToTheTurnBefore) {
  EXPECT_EQ(assistant_parts("ends written by the next message", conversations()[1]),
            (std::vector<std::string>{"AA one<|assistant_end|>", "AA two"}));
}

TEST(WhoSpeaksWhere, WhatATemplateDoesNotWriteIsRemarked) {
  const ChatTemplate plain = ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}", "plain.jinja");
  const RenderedChat chat = plain.render(conversations()[9], nullptr, {});
  ASSERT_EQ(chat.remarks.size(), 1u);
  EXPECT_NE(
      chat.remarks[0].find("[plain.jinja] the template does not write 'tool_calls' of assistant messages"),
      std::string::npos)
      << chat.remarks[0];
  // The turn that only called is not trained as an empty answer.
  ASSERT_EQ(chat.assistant.size(), 1u);
  EXPECT_EQ(chat.assistant[0].message, 3u);
  const RenderedChat open = ChatTemplate::parse(kShapes.at("no prompt, no end").source, "t")
                                .render(conversations()[0], nullptr, {});
  ASSERT_EQ(open.remarks.size(), 1u);
  EXPECT_NE(open.remarks[0].find("writes no end of turn"), std::string::npos) << open.remarks[0];
}

}  // namespace
}  // namespace zeno::data
