// Where the assistant speaks, for templates with and without {% generation %}; folders, presets, options.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/data/chat/chat_template.h"
#include "zeno/data/chat/presets.h"

namespace zeno::data {
namespace {

using Json = nlohmann::ordered_json;
using Said = std::vector<std::string>;
using test::TempDir;

const Path kGolden = Path(ZENO_SOURCE_DIR) / "tests" / "golden" / "chat";

Json message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

Said said(const RenderedChat& chat) {
  Said out;
  size_t last = 0;
  for (const AssistantSpan& span : chat.assistant) {
    EXPECT_GE(span.begin, last);
    EXPECT_LE(span.end, chat.text.size());
    EXPECT_LT(span.begin, span.end);
    last = span.end;
    out.push_back(chat.text.substr(span.begin, span.end - span.begin));
  }
  return out;
}

// A golden template with the special tokens the golden files were made with.
ChatTemplate family(const std::string& name) {
  static const TempDir folder;
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  return ChatTemplate::open(folder.path(), (kGolden / ("family_" + name + ".jinja")).string());
}

Said said(const std::string& name, const Json& messages, const ChatOptions& options = {},
          const Json& tools = nullptr) {
  return said(family(name).render(messages, tools, options));
}

const Json kTurns = Json::array(
    {message("user", "1?"), message("assistant", "one"), message("user", "2?"), message("assistant", "two")});

TEST(AssistantSpans, EndOfTurnInsideAndPromptOutside) {
  EXPECT_EQ(said("chatml", kTurns), (Said{"one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(said("llama3", kTurns), (Said{"one<|eot_id|>", "two<|eot_id|>"}));
  EXPECT_EQ(said("qwen2", kTurns), (Said{"one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(said("gemma", kTurns), (Said{"one<end_of_turn>", "two<end_of_turn>"}));
  EXPECT_EQ(said("llama2", kTurns), (Said{" one </s>", " two </s>"}));
  EXPECT_EQ(said("mistral3", kTurns), (Said{" one</s>", " two</s>"}));
  EXPECT_EQ(said("mistral7", kTurns, {.now = 0}), (Said{"one</s>", "two</s>"}));
}

TEST(AssistantSpans, AGenerationPromptBehindTheConversationIsNotSaid) {
  const RenderedChat chat = family("chatml").render(kTurns, nullptr, {.add_generation_prompt = true});
  EXPECT_TRUE(chat.text.ends_with("<|im_start|>assistant\n"));
  EXPECT_EQ(said(chat), (Said{"one<|im_end|>", "two<|im_end|>"}));
}

TEST(AssistantSpans, HistoryThatIsRewritten) {
  // The thinking of earlier turns is dropped, that of the last one is said.
  Json chat = Json::array({message("user", "6*7?"), message("assistant", "<think>\nhm\n</think>\n\n42"),
                           message("user", "6*8?"), message("assistant", "<think>\nadd\n</think>\n\n48")});
  EXPECT_EQ(said("qwen3", chat), (Said{"42<|im_end|>", "<think>\nadd\n</think>\n\n48<|im_end|>"}));
  chat[3] = message("assistant", "48");
  EXPECT_EQ(said("qwen3", chat), (Said{"42<|im_end|>", "<think>\n\n</think>\n\n48<|im_end|>"}));
  // With thinking off, the empty thought is part of the prompt.
  const ChatOptions off{.extra = R"({"enable_thinking": false})"};
  EXPECT_EQ(said("qwen3", chat, off), (Said{"42<|im_end|>", "48<|im_end|>"}));
  chat[1] = message("assistant", "<b>");
  EXPECT_EQ(said("qwen3", chat, off), (Said{"<b><|im_end|>", "48<|im_end|>"}));
  // The same with a generation prompt behind it.
  EXPECT_EQ(said("qwen3", chat, {.add_generation_prompt = true}),
            (Said{"<b><|im_end|>", "<think>\n\n</think>\n\n48<|im_end|>"}));
  // The system text moves to the last question.
  Json system = kTurns;
  system.insert(system.begin(), message("system", "Rules."));
  system.push_back(message("user", "3?"));
  EXPECT_EQ(said("mistral3", system), (Said{" one</s>", " two</s>"}));
  EXPECT_EQ(said("llama2", Json(kTurns)), (Said{" one </s>", " two </s>"}));
  // An end that only the last turn has.
  EXPECT_EQ(said("phi", kTurns), (Said{"one<|end|>", "two<|end|>\n</s>"}));
}

TEST(AssistantSpans, ToolCallsAreSaid) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
  const Json chat = Json::parse(R"([{"role": "user", "content": "Go"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "aaaaaaaaa", "function": {"name": "f", "arguments": {"q": "ü"}}}]},
      {"role": "tool", "tool_call_id": "aaaaaaaaa", "content": "1"}, {"role": "assistant", "content": "Done"},
      {"role": "user", "content": "More"}, {"role": "assistant", "content": "No"}])");
  EXPECT_EQ(said("qwen3", chat, {}, tools),
            (Said{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"q\": \"ü\"}}\n</tool_call><|im_end|>",
                  "Done<|im_end|>", "<think>\n\n</think>\n\nNo<|im_end|>"}));
  EXPECT_EQ(
      said("mistral3", chat, {}, tools),
      (Said{"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"q\": \"ü\"}, \"id\": \"aaaaaaaaa\"}]</s>",
            " Done</s>", " No</s>"}));
  EXPECT_EQ(said("llama3", chat, {}, tools),
            (Said{"{\"name\": \"f\", \"parameters\": {\"q\": \"ü\"}}<|eot_id|>", "Done<|eot_id|>",
                  "No<|eot_id|>"}));
  // Qwen2.5 writes a call on the line of the role: the newline of the prompt is not there, and nothing of it
  // is lost.
  EXPECT_EQ(said("qwen2", chat, {}, tools)[0],
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"q\": \"ü\"}}\n</tool_call><|im_end|>");
}

TEST(AssistantSpans, UnusualConversations) {
  const Json twice =
      Json::array({message("user", "Story?"), message("assistant", "Once"), message("assistant", "upon")});
  EXPECT_EQ(said("chatml", twice), (Said{"Once<|im_end|>", "upon<|im_end|>"}));
  EXPECT_EQ(said("qwen3", twice), (Said{"Once<|im_end|>", "<think>\n\n</think>\n\nupon<|im_end|>"}));
  const Json first =
      Json::array({message("assistant", "Welcome!"), message("user", "Hi"), message("assistant", "Yes?")});
  EXPECT_EQ(said("chatml", first), (Said{"Welcome!<|im_end|>", "Yes?<|im_end|>"}));
  EXPECT_EQ(said("qwen2", first), (Said{"Welcome!<|im_end|>", "Yes?<|im_end|>"}));
  EXPECT_EQ(said("qwen3", first), (Said{"Welcome!<|im_end|>", "<think>\n\n</think>\n\nYes?<|im_end|>"}));
  const Json middle = Json::array({message("user", "a"), message("assistant", "b"), message("system", "c"),
                                   message("user", "d"), message("assistant", "e")});
  EXPECT_EQ(said("qwen2", middle), (Said{"b<|im_end|>", "e<|im_end|>"}));
  const Json same = Json::array({message("user", "assistant"), message("assistant", "assistant"),
                                 message("user", "assistant"), message("assistant", ""), message("user", "x"),
                                 message("assistant", "\n\n</b> ")});
  EXPECT_EQ(said("chatml", same), (Said{"assistant<|im_end|>", "<|im_end|>", "\n\n</b> <|im_end|>"}));
  EXPECT_EQ(said("qwen3", same),
            (Said{"assistant<|im_end|>", "<|im_end|>", "<think>\n\n</think>\n\n</b> <|im_end|>"}));
  EXPECT_EQ(said("chatml", Json::array({message("user", "only a question")})), Said{});
  EXPECT_EQ(said("chatml", Json::array()), Said{});
}

TEST(AssistantSpans, WhatCannotBeToldIsAnError) {
  // Everything in one line at the top, before the turns: no place that belongs to one turn.
  const ChatTemplate summary = ChatTemplate::parse(
      "{{ messages | length }} messages by {{ messages | map(attribute='role') | join }}", "odd.jinja");
  try {
    summary.render(kTurns, nullptr, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    const std::string what = error.what();
    EXPECT_NE(what.find("[odd.jinja] message 2 (assistant)"), std::string::npos) << what;
    EXPECT_NE(what.find("{% generation %}"), std::string::npos) << what;
    EXPECT_NE(what.find("--loss-on all"), std::string::npos) << what;
  }
  EXPECT_EQ(summary.render_text(kTurns, nullptr, {}), "4 messages by userassistantuserassistant");
}

// For every family and conversation that renders, the spans agree with what the conversation says.
TEST(AssistantSpans, EveryGoldenConversation) {
  int checked = 0;
  for (const Json& conversation : Json::parse(read_file(kGolden / "conversations.json"))) {
    const ChatOptions options{.extra = conversation.value("extra", Json::object()).dump(), .now = 1735787045};
    const Json tools = conversation.value("tools", Json());
    for (const char* name :
         {"chatml", "llama2", "llama3", "qwen2", "qwen3", "mistral3", "mistral7", "gemma", "phi"}) {
      SCOPED_TRACE(conversation["name"].get<std::string>() + ", " + name);
      const ChatTemplate chat_template = family(name);
      const Json& messages = conversation["messages"];
      try {
        chat_template.render_text(messages, tools, options);
      } catch (const Error&) {
        continue;
      }
      const RenderedChat chat = chat_template.render(messages, tools, options);
      said(chat);
      for (size_t message = 0; message < messages.size(); ++message) {
        const Json& turn = messages[message];
        if (turn["role"] != "assistant") continue;
        std::string got;
        for (const AssistantSpan& span : chat.assistant) {
          if (span.message == message) got += chat.text.substr(span.begin, span.end - span.begin);
        }
        // A template that writes no calls has nothing to train on in a message of calls alone.
        if (got.empty() && turn.contains("tool_calls")) continue;
        // A template may leave out the words beside a call.
        const std::string words = turn["content"].is_string() && !turn.contains("tool_calls")
                                      ? turn["content"].get<std::string>()
                                      : "";
        const size_t thought = words.rfind("</think>");
        std::string answer = thought == words.npos ? words : words.substr(thought + 10);
        answer = answer.substr(0, answer.find_last_not_of(" \n") + 1);
        EXPECT_NE(got.find(answer.substr(std::min(answer.find_first_not_of(" \n"), answer.size()))),
                  std::string::npos)
            << got;
        EXPECT_EQ(got.find("user"), std::string::npos) << got;
        EXPECT_EQ(got.find("<|im_start|>"), std::string::npos) << got;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(ChatTemplate, PresetsAreTheGoldenOnes) {
  // The golden renderings of the presets are made from these files.
  for (const std::string& name : ChatTemplate::presets()) {
    EXPECT_EQ(*preset_source(name), read_file(kGolden / ("preset_" + name + ".jinja"))) << name;
  }
  EXPECT_EQ(ChatTemplate::presets().size(), 9u);
}

TEST(ChatTemplate, PresetsMarkWhatTheAssistantSays) {
  const TempDir folder;
  folder.write("special_tokens_map.json", R"({"eos_token": "<eos>"})");
  const auto spoken = [&](const std::string& name) {
    return said(ChatTemplate::open(folder.path(), name).render(kTurns, nullptr, {}));
  };
  EXPECT_EQ(spoken("chatml"), (Said{"one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(spoken("llama3"), (Said{"one<|eot_id|>", "two<|eot_id|>"}));
  EXPECT_EQ(spoken("qwen2.5"), (Said{"one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(spoken("qwen3"), (Said{"one<|im_end|>", "<think>\n\n</think>\n\ntwo<|im_end|>"}));
  EXPECT_EQ(spoken("mistral"), (Said{" one<eos>", " two<eos>"}));
  EXPECT_EQ(spoken("gemma"), (Said{"one<end_of_turn>", "two<end_of_turn>"}));
  EXPECT_EQ(spoken("phi"), (Said{"one<|end|>", "two<|end|>"}));
  EXPECT_EQ(spoken("alpaca"), (Said{"one<eos>", "two<eos>"}));
  EXPECT_EQ(spoken("plain"), (Said{"one<eos>\n", "two<eos>\n"}));
}

TEST(ChatTemplate, FoldersInTheirSeveralWays) {
  const Json hello = Json::array({message("user", "hi")});
  const Json tools = Json::array({{{"name", "f"}}});
  const TempDir bare;
  EXPECT_FALSE(ChatTemplate::in_folder(bare.path()));
  try {
    ChatTemplate::open(bare.path(), "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("chatml, llama3"), std::string::npos) << error.what();
  }
  try {
    ChatTemplate::open(bare.path(), "nosuch");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
  bare.write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_FALSE(ChatTemplate::in_folder(bare.path()));

  const TempDir text;
  text.write(
      "tokenizer_config.json",
      R"({"chat_template": "config {{ bos_token }}{{ eos_token }}{{ pad_token }}", "bos_token": {"content": "<B>"}, "eos_token": "<E>", "pad_token": null})");
  EXPECT_TRUE(ChatTemplate::in_folder(text.path()));
  EXPECT_EQ(ChatTemplate::open(text.path(), "").render_text(hello, nullptr, {}), "config <B><E>");
  text.write("chat_template.jinja", "file\n");
  EXPECT_EQ(ChatTemplate::open(text.path(), "").render_text(hello, nullptr, {}), "file");
  EXPECT_EQ(ChatTemplate::open(text.path(), "").source(), "file\n");

  const TempDir list;
  list.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(ChatTemplate::open(list.path(), "").render_text(hello, nullptr, {}), "D");
  EXPECT_EQ(ChatTemplate::open(list.path(), "").render_text(hello, tools, {}), "T");
  EXPECT_EQ(ChatTemplate::open(list.path(), "").source(), "D");

  const TempDir several;
  several.write("chat_template.jinja", "D");
  make_folders(several.path() / "additional_chat_templates");
  several.write("additional_chat_templates/tool_use.jinja", "T");
  EXPECT_EQ(ChatTemplate::open(several.path(), "").render_text(hello, tools, {}), "T");

  const TempDir broken;
  broken.write("tokenizer_config.json", "{");
  EXPECT_THROW(ChatTemplate::open(broken.path(), ""), Error);
  broken.write("tokenizer_config.json", R"({"chat_template": "{% if"})");
  EXPECT_THROW(ChatTemplate::open(broken.path(), ""), Error);
}

TEST(ChatTemplate, Options) {
  // Reasoning goes by the name it came with: no other is made up.
  const ChatTemplate variables = ChatTemplate::parse(
      "{{ a }}{{ tools is none }}{{ documents is none }}{{ messages[0].thinking }}{{ messages[0].reasoning "
      "}}",
      "t");
  const Json chat = Json::array({{{"role", "user"}, {"content", "x"}, {"reasoning", "r"}}});
  EXPECT_EQ(variables.render_text(chat, nullptr, {.extra = R"({"a": [1]})"}), "[1]TrueTruer");
  EXPECT_EQ(variables.render_text(chat, Json::array(), {}), "TrueTruer");
  try {
    variables.render_text(chat, nullptr, {.extra = "{nonsense"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
  EXPECT_THROW(variables.render_text(Json::array({"x"}), nullptr, {}), Error);
  EXPECT_THROW(variables.render_text(Json::object({{"a", 1}}), nullptr, {}), Error);
}

TEST(ChatTemplate, GoesOnWithTheLastMessage) {
  Json chat = kTurns;
  chat[3]["content"] = "two and ";
  const ChatOptions options{.continue_final_message = true};
  const RenderedChat got = family("chatml").render(chat, nullptr, options);
  EXPECT_TRUE(got.text.ends_with("<|im_start|>assistant\ntwo and ")) << got.text;
  EXPECT_EQ(said(got), (Said{"one<|im_end|>", "two and "}));
  EXPECT_TRUE(family("llama3").render_text(chat, nullptr, options).ends_with("<|end_header_id|>\n\ntwo and"));
  EXPECT_THROW(family("chatml").render_text(chat, nullptr,
                                            {.add_generation_prompt = true, .continue_final_message = true}),
               Error);
}

}  // namespace
}  // namespace zeno::data
