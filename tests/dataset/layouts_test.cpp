// The layouts in which people publish datasets, each read as its users mean it.
#include <gtest/gtest.h>

#include "tests/dataset/dataset_folder.h"
#include "tests/support/expect_error.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

using test::DatasetFolder;
using test::expect_error;
using Texts = std::vector<std::string>;

// The samples of a file, and with `columns` of the columns named.
Texts read_columns(const std::string& contents, const std::string& columns = "") {
  const DatasetFolder folder;
  DatasetSpec spec = folder.spec({folder.write("a.json", contents)});
  spec.columns = parse_columns(columns);
  return test::marked_texts(folder.open(spec));
}

const Texts kChat{"{user\nq}\n{assistant\n[a}]\n"};
const Texts kSystemChat{"{system\ns}\n{user\nq}\n{assistant\n[a}]\n"};
const Texts kTwoAnswers{"{user\nq}\n{assistant\n[a}]\n{user\nr}\n{assistant\n[b}]\n"};

TEST(Layouts, QuestionsAndAnswersByManyNames) {
  for (const char* record :
       {R"({"instruction": "q", "output": "a"})", R"({"instruction": "q", "context": "", "response": "a"})",
        R"({"question": "q", "answer": "a"})", R"({"query": "q", "response": "a"})",
        R"({"input": "q", "output": "a"})", R"({"problem": "q", "solution": "a", "answer": "7"})",
        R"({"inputs": "q", "targets": "a"})", R"({"Question": "q", "Answer": "a"})",
        R"({"instruction": "q", "input": null, "completion": "a"})",
        R"({"question": "q", "answers": {"text": ["a", "a"], "answer_start": [1, 1]}})"}) {
    EXPECT_EQ(read_columns(record), kChat) << record;
  }
  EXPECT_EQ(read_columns(R"({"system_prompt": "s", "question": "q", "response": "a"})"), kSystemChat);
  EXPECT_EQ(read_columns(R"({"system": "s", "input": "q", "output": "a", "history": []})"), kSystemChat);
  EXPECT_EQ(read_columns(R"({"query": "r", "response": "b", "history": [["q", "a"]]})"), kTwoAnswers);
}

TEST(Layouts, WhatTheQuestionIsAboutStandsBelowIt) {
  const Texts expected{"{user\nq\nc}\n{assistant\n[a}]\n"};
  EXPECT_EQ(read_columns(R"({"instruction": "q", "context": "c", "response": "a", "category": "x"})"),
            expected);
  EXPECT_EQ(read_columns(R"({"question": "q", "context": "c", "answer": "a"})"), expected);
  EXPECT_EQ(read_columns(R"({"instruction": "q", "question": "c", "answer": "a"})"), expected);
}

TEST(Layouts, ConversationsInManyForms) {
  for (
      const char* record :
      {R"({"conversation": [{"human": "q", "assistant": "a"}, {"human": "r", "assistant": "b"}]})",
       R"({"conversation": [{"input": "q", "output": "a"}, {"input": "r", "output": "b"}]})",
       R"({"conversations": ["q", "a", "r", "b"]})", R"({"id": "0", "data": ["q", "a", "r", "b"]})",
       R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"from": "human", "value": "r"}, {"from": "gpt", "value": "b"}]})",
       R"({"messages": [{"role": "User", "content": "q"}, {"role": "Assistant", "content": "a"}, {"role": "human", "content": "r"}, {"role": "gpt", "content": "b"}]})",
       R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}])",
       R"({"messages": "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"b\"}]"})",
       R"({"conversation_id": 1, "chat": {"turn_1": {"Human": "<|Human|>: q<eoh>\n", "Inner Thoughts": "<|Inner Thoughts|>: None<eot>\n", "MOSS": "<|MOSS|>: a<eom>\n"}, "turn_2": {"Human": "<|Human|>: r<eoh>\n", "MOSS": "<|MOSS|>: b<eom>\n"}}})"}) {
    EXPECT_EQ(read_columns(record), kTwoAnswers) << record;
  }
  EXPECT_EQ(read_columns(R"({"system": "s", "conversation": [{"human": "q", "assistant": "a"}]})"),
            kSystemChat);
  EXPECT_EQ(read_columns(R"({"conversation": [{"system": "s", "input": "q", "output": "a"}]})"), kSystemChat);
  EXPECT_EQ(
      read_columns(
          R"({"system": "s", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"),
      kSystemChat);
}

TEST(Layouts, PartsWithValues) {
  EXPECT_EQ(
      read_columns(
          R"({"messages": [{"role": "user", "content": [{"type": "text", "value": "q"}]}, {"role": "assistant", "content": [{"type": "text", "value": "a"}], "loss_weight": 1.0}]})"),
      kChat);
}

TEST(Layouts, LossFlagsByOtherNames) {
  for (const char* flag : {R"("loss": false)", R"("loss_weight": 0.0)"}) {
    EXPECT_EQ(read_columns(fmt::format(R"({{"messages": [{{"role": "assistant", "content": "a", {}}}, )"
                                       R"({{"role": "assistant", "content": "b"}}]}})",
                                       flag)),
              Texts{"{assistant\na}\n{assistant\n[b}]\n"})
        << flag;
  }
}

TEST(Layouts, FunctionCallsAsOpenAiWroteThemOnce) {
  Json record = Json::parse(
      R"({"functions": [{"name": "f"}], "messages": [{"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"x\": 1}"}}, {"role": "function", "name": "f", "content": "2"}]})");
  Fields fields(record);
  const ChatRecord chat = read_conversation(fields);
  EXPECT_EQ(chat.tools, Json::parse(R"([{"name": "f"}])"));
  EXPECT_EQ(chat.messages[0]["tool_calls"],
            Json::parse(R"([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}])"));
  EXPECT_EQ(chat.messages[1]["role"], "tool");
}

TEST(Layouts, TextsToPretrainOn) {
  for (const char* record :
       {R"({"text": "ab", "meta": {}})", R"({"content": "ab", "path": "x.py"})", R"({"response": "ab"})",
        R"({"messages": [{"role": "pretrain", "content": "ab"}]})"}) {
    EXPECT_EQ(read_columns(record), Texts{"[ab$]"}) << record;
  }
}

TEST(Layouts, TasksWithSeveralInstances) {
  EXPECT_EQ(
      read_columns(
          R"({"instruction": "q", "instances": [{"input": "", "output": "a"}, {"input": "c", "output": "b"}]})"),
      (Texts{kChat[0], "{user\nq\nc}\n{assistant\n[b}]\n"}));
}

TEST(Columns, NameWhatNoLayoutKnows) {
  EXPECT_EQ(read_columns(R"({"ask": "q", "say": "a"})", "prompt=ask,completion=say"), Texts{"q[a$]"});
  EXPECT_EQ(
      read_columns(R"({"ask": "q", "say": "a", "who": "s"})", "instruction=ask, output=say, system=who"),
      kSystemChat);
  EXPECT_EQ(read_columns(
                R"({"turns_of": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})",
                "messages=turns_of"),
            kChat);
  // What is named is meant, whatever else there is; what is not named goes by its own name.
  EXPECT_EQ(read_columns(R"({"messages": [], "text": "x", "body": "ab"})", "text=body"), Texts{"[ab$]"});
  EXPECT_EQ(read_columns(R"({"prompt": "p", "chosen": "c", "rejected": "r"})", "completion=chosen"),
            Texts{"p[c$]"});
  expect_error(ErrorKind::data, {"a.json:1", "output=say", "no column 'say'", "ask, tell"},
               [] { read_columns(R"({"ask": "q", "tell": "a"})", "instruction=ask,output=say"); });
}

TEST(Columns, RefuseWhatTheyDoNotKnow) {
  expect_error(ErrorKind::usage, {"--columns", "'answer'", "completion", "output"},
               [] { parse_columns("prompt=q,answer=a"); });
  expect_error(ErrorKind::usage, {"--columns", "'prompt'", "FIELD=COLUMN"}, [] { parse_columns("prompt"); });
  expect_error(ErrorKind::usage, {"--columns", "'text' twice"}, [] { parse_columns("text=a,text=b"); });
}

}  // namespace
}  // namespace zeno::data
