// What is learned of each format, end to end: files in, marked tokens out.
#include <gtest/gtest.h>

#include "tests/dataset/dataset_folder.h"
#include "tests/support/expect_error.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

using test::DatasetFolder;
using test::expect_error;
using Texts = std::vector<std::string>;

Texts read(const std::string& lines, LossOn loss_on = LossOn::automatic, bool chat = true) {
  const DatasetFolder folder(chat);
  DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines)});
  spec.loss_on = loss_on;
  return test::marked_texts(folder.open(spec));
}

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"},
        {"role": "user", "content": "B"}, {"role": "assistant", "content": "C"}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST(Messages, AssistantTurnsAndTheirEndAreLearned) {
  const std::string line = one_line(kTwoTurns);
  EXPECT_EQ(read(line), (Texts{"{user\nHi}\n{assistant\n[A}]\n{user\nB}\n{assistant\n[C}]\n"}));
  EXPECT_EQ(read(line, LossOn::assistant), read(line));
  EXPECT_EQ(read(line, LossOn::completion), read(line));
  EXPECT_EQ(read(line, LossOn::last), (Texts{"{user\nHi}\n{assistant\nA}\n{user\nB}\n{assistant\n[C}]\n"}));
  EXPECT_EQ(read(line, LossOn::all), (Texts{"[{user\nHi}\n{assistant\nA}\n{user\nB}\n{assistant\nC}\n]"}));
}

TEST(Messages, FlagsDecideTurnByTurn) {
  for (const char* flag :
       {R"("train": false)", R"("weight": 0)", R"("weight": 0.0)", R"("training": false)"}) {
    EXPECT_EQ(read(fmt::format(R"({{"messages": [{{"role": "assistant", "content": "A", {}}}, )"
                               R"({{"role": "assistant", "content": "C", "weight": 1}}]}})",
                               flag)),
              (Texts{"{assistant\nA}\n{assistant\n[C}]\n"}))
        << flag;
  }
}

TEST(Messages, PartsAreJoinedAndOtherNamesRead) {
  EXPECT_EQ(
      read(
          R"({"conversations": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"role": "assistant", "content": "c"}]})"),
      (Texts{"{user\nab}\n{assistant\n[c}]\n"}));
}

TEST(Messages, TemplatesAreToldTheDate) {
  const DatasetFolder folder;
  folder.write("model/chat_template.jinja",
               "{{ strftime_now('%d %b %Y') }}\n{% for m in messages %}{{ m.content }}}{% endfor %}");
  DatasetSpec spec =
      folder.spec({folder.write("a.jsonl", R"({"messages": [{"role": "assistant", "content": "A"}]})")});
  expect_error(ErrorKind::data, {"a.jsonl:1", "--chat-date"}, [&] { folder.open(spec); });
  spec.chat_date = "2024-02-29";
  EXPECT_EQ(test::marked_texts(folder.open(spec)), Texts{"29 Feb 2024\n[A}]"});
  for (const char* bad : {"2023-02-29", "29.2.2024", "2024-2-29", "today", "2024-02-29 "}) {
    spec.chat_date = bad;
    expect_error(ErrorKind::usage, {"--chat-date", bad, "YYYY-MM-DD"}, [&] { folder.open(spec); });
  }
}

TEST(Messages, UsersCannotEndTheirTurn) {
  EXPECT_EQ(
      read(
          R"({"messages": [{"role": "user", "content": "a<|im_end|>b<|im_start|>"}, {"role": "assistant", "content": "c"}]})"),
      (Texts{"{user\na<|im_end|>b<|im_start|>}\n{assistant\n[c}]\n"}));
  // What the assistant writes is meant.
  EXPECT_EQ(read(R"({"messages": [{"role": "assistant", "content": "c<|im_end|>"}]})"),
            (Texts{"{assistant\n[c}}]\n"}));
}

TEST(ShareGpt, SpeakersBecomeRoles) {
  EXPECT_EQ(
      read(
          R"({"system": "S", "conversations": [{"from": "human", "value": "H"}, {"from": "gpt", "value": "G"}, {"from": "observation", "value": "O"}, {"from": "assistant", "value": "D"}]})"),
      (Texts{"{system\nS}\n{user\nH}\n{assistant\n[G}]\n{tool\nO}\n{assistant\n[D}]\n"}));
}

TEST(ShareGpt, FunctionCallsBecomeToolCalls) {
  Json record = Json::parse(
      R"({"tools": "[{\"name\": \"f\"}]", "conversations": [{"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}"}]})");
  Fields fields(record);
  const ChatRecord chat = read_conversation(fields);
  EXPECT_EQ(chat.tools, Json::parse(R"([{"name": "f"}])"));
  EXPECT_EQ(chat.messages, Json::parse(R"([{"role": "assistant", "content": "", "tool_calls":
      [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]}])"));
}

TEST(Alpaca, BecomesAChatOrAPlainLayout) {
  const std::string line =
      R"({"instruction": "Add.", "input": "1 2", "output": "3", "system": "S", "history": [["q", "a"]]})";
  EXPECT_EQ(read(line),
            (Texts{"{system\nS}\n{user\nq}\n{assistant\n[a}]\n{user\nAdd.\n1 2}\n{assistant\n[3}]\n"}));
  EXPECT_EQ(
      read(line, LossOn::automatic, false),
      (Texts{"S\n\n### Instruction:\nq\n\n### Response:\na\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n"
             "### Response:\n[3$]"}));
  EXPECT_EQ(read(R"({"instruction": "Go.", "output": "3"})", LossOn::automatic, false),
            (Texts{"### Instruction:\nGo.\n\n### Response:\n[3$]"}));
}

TEST(PromptCompletion, TheCompletionAndEosAreLearned) {
  const std::string line = R"({"prompt": "ab", "completion": "cd"})";
  EXPECT_EQ(read(line), Texts{"ab[cd$]"});
  EXPECT_EQ(read(line, LossOn::all), Texts{"[abcd$]"});
  // An eos of the author is not doubled; special tokens in records are meant.
  EXPECT_EQ(read(R"({"prompt": "a<|im_end|>", "completion": "c<|endoftext|>"})"), Texts{"a}[c$]"});
}

TEST(PromptCompletion, OfMessagesLearnsTheCompletionOnly) {
  EXPECT_EQ(
      read(
          R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "b"}]})"),
      (Texts{"{user\nq}\n{assistant\na}\n{user\nr}\n{assistant\n[b}]\n"}));
}

TEST(Text, EverythingIsLearned) {
  EXPECT_EQ(read("{\"text\": \"ab\"}\r\n\r\n  {\"text\": \"c<|im_end|>\"}"), (Texts{"[ab$]", "[c}$]"}));
  const DatasetFolder folder;
  EXPECT_EQ(test::marked_texts(folder.open(folder.spec({folder.write("a.txt", "\xef\xbb\xbfx<|im_end|>")}))),
            Texts{"[x<|im_end|>$]"});
}

TEST(Tokens, LabelsOrAMaskSayWhatIsLearned) {
  EXPECT_EQ(read(R"({"input_ids": [97, 98, 99], "labels": [-100, 98, -100]})"), Texts{"a[b]c"});
  EXPECT_EQ(read(R"({"tokens": [97, 98, 99], "mask": [0, 0, 1]})"), Texts{"ab[c]"});
  EXPECT_EQ(read(R"({"input_ids": [0, 97, 98], "attention_mask": [0, 1, 1]})"), Texts{"[ab]"});
}

TEST(Detection, FollowsTheKeys) {
  const std::vector<std::pair<const char*, DataFormat>> cases{
      {R"({"messages": []})", DataFormat::messages},
      {R"({"messages": [], "text": "x", "prompt": "p"})", DataFormat::messages},
      {R"({"conversations": [{"role": "user"}]})", DataFormat::messages},
      {R"({"conversations": [{"from": "human"}]})", DataFormat::sharegpt},
      {R"({"conversation": []})", DataFormat::sharegpt},
      {R"({"instruction": "", "output": ""})", DataFormat::alpaca},
      {R"({"instruction": "", "input": "", "response": "", "text": ""})", DataFormat::alpaca},
      {R"({"prompt": "", "completion": ""})", DataFormat::prompt_completion},
      {R"({"prompt": [], "completion": []})", DataFormat::prompt_completion},
      {R"({"text": ""})", DataFormat::text},
      {R"({"input_ids": [], "labels": []})", DataFormat::tokens},
      {R"({"tokens": []})", DataFormat::tokens},
  };
  const auto detected = [](const std::string& line) {
    Json record = Json::parse(line);
    return detect_format(Fields(record));
  };
  for (const auto& [line, format] : cases) EXPECT_EQ(int(detected(line)), int(format)) << line;
  expect_error(ErrorKind::data, {"keys a, b"}, [&] { detected(R"({"a": 1, "b": 2})"); });
  expect_error(ErrorKind::data, {"not a JSON object"}, [&] { detected("[1]"); });
}

TEST(BadLines, NameFileLineAndReason) {
  const auto refused = [](const std::string& lines, std::vector<std::string> parts) {
    parts.push_back("a.jsonl:");
    expect_error(ErrorKind::data, parts, [&] { read(lines); });
  };
  const std::string good = R"({"text": "a"})"
                           "\n\n";
  refused(good + "{\"text\": ", {"a.jsonl:3:", "not JSON", "--skip-bad-lines"});
  refused(good + "{\"text\": \"a\", \"score\": 88E666666}\n", {"a.jsonl:3:", "number", "--skip-bad-lines"});
  refused(good + R"({"txt": "a"})", {":3:", "no 'text'"});
  refused(good + R"({"text": 7})", {":3:", "not a text"});
  refused(good + R"([1])", {":3:", "not a JSON object"});
  refused("\n\n\n7", {":4:", "not a JSON object"});
  refused(R"({"messages": [{"content": "a"}]})", {":1:", "'role'"});
  refused(R"({"messages": [{"role": "user"}]})", {":1:", "'content'"});
  refused(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", {"not a text"});
  refused(R"({"messages": [{"role": "assistant", "content": "", "weight": 0.5}]})", {"weight"});
  refused(R"({"messages": []})", {"no messages"});
  refused(R"({"conversations": [{"from": "martian", "value": "a"}]})", {"martian"});
  refused(R"({"input_ids": [1, 259]})", {"id 259", "vocabulary size 259"});
  refused(R"({"input_ids": [1, -1]})", {"id -1"});
  refused(R"({"input_ids": [1, 2], "labels": [1]})", {"1 entries for 2 tokens"});
  refused(R"({"input_ids": [1, 2], "labels": [1, 3]})", {"3 at token 1"});
  refused(R"({"input_ids": [1, "2"]})", {"not an integer"});
  refused(R"({"instruction": "a", "output": "b", "history": [["q"]]})", {"pairs"});
}

TEST(BadLines, CanBeSkippedAndAreCounted) {
  const DatasetFolder folder;
  DatasetSpec spec = folder.spec({folder.write(
      "a.jsonl",
      "{\"text\"\n{\"text\": \"a\"}\n{\"text\": 3}\n{\"text\": 4}\n{\"text\": \"b\"}\nnonsense\n")});
  spec.skip_bad_lines = true;
  ::testing::internal::CaptureStderr();
  const TokenSource source = folder.open(spec);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(test::marked_texts(source), (Texts{"[a$]", "[b$]"}));
  EXPECT_NE(log.find("2 bad lines skipped: 'text' is not a text"), std::string::npos) << log;
  EXPECT_EQ(source.origin(0), (folder.path() / "a.jsonl:2").string());
  EXPECT_EQ(source.origin(1), (folder.path() / "a.jsonl:5").string());
}

TEST(Records, WithNothingToLearnAreLeftOut) {
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": "a"}]})"
                 "\n"
                 R"({"messages": [{"role": "assistant", "content": "b"}]})"),
            Texts{"{assistant\n[b}]\n"});
  expect_error(ErrorKind::data, {"a.jsonl", "nothing to train on", "assistant"},
               [] { read(R"({"messages": [{"role": "user", "content": "a"}]})"); });
}

TEST(Usage, ErrorsSayWhatToDo) {
  expect_error(ErrorKind::usage, {"--chat-template", "chatml"},
               [] { read(one_line(kTwoTurns), LossOn::automatic, false); });
  expect_error(ErrorKind::usage, {"--loss-on"}, [] { read(R"({"text": "a"})", LossOn::last); });
  const DatasetFolder folder;
  DatasetSpec spec = folder.spec({folder.write("a.jsonl", R"({"text": "a"})")});
  spec.template_extra = "[1]";
  expect_error(ErrorKind::usage, {"--template-extra", "[1]"}, [&] { folder.open(spec); });
  spec.template_extra = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  expect_error(ErrorKind::usage, {"--template-extra"}, [&] { folder.open(spec); });
  // A template that cannot be read is in the way of chats only.
  folder.write("model/chat_template.jinja", "{% nonsense");
  EXPECT_EQ(folder.open(folder.spec({folder.write("b.jsonl", R"({"text": "a"})")})).documents(), 1);
  spec = folder.spec({folder.write("c.jsonl", R"({"instruction": "a", "output": "b"})")});
  expect_error(ErrorKind::usage, {"chat_template.jinja"}, [&] { folder.open(spec); });
  spec = folder.spec({folder.path() / "none.jsonl"});
  expect_error(ErrorKind::data, {"none.jsonl", "no such file"}, [&] { folder.open(spec); });
  expect_error(ErrorKind::usage, {"--data"}, [&] { folder.open(folder.spec({})); });
}

}  // namespace
}  // namespace zeno::data
