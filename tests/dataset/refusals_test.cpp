// Records that must not be trained on as if a part of them were not there, and fields that nothing reads.
#include <gtest/gtest.h>

#include "tests/dataset/dataset_folder.h"
#include "tests/support/expect_error.h"
#include "zeno/data/dataset/cache.h"
#include "zeno/data/dataset/identity.h"
#include "zeno/data/dataset/input_files.h"
#include "zeno/data/parse_json.h"

namespace zeno::data {
namespace {

using test::DatasetFolder;
using test::expect_error;

void expect_refused(const std::string& record, std::vector<std::string> parts,
                    const std::string& columns = "") {
  const DatasetFolder folder;
  DatasetSpec spec = folder.spec({folder.write("a.jsonl", record)});
  spec.columns = parse_columns(columns);
  parts.push_back("a.jsonl:1: ");
  expect_error(ErrorKind::data, parts, [&] { folder.open(spec); });
}

const std::string kTurns =
    R"("messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])";

TEST(Refusals, Preferences) {
  for (const char* record : {R"({"prompt": "p", "chosen": "c", "rejected": "r"})",
                             R"({"chosen": [{"role": "user", "content": "q"}]})",
                             R"({"query": "q", "response": "a", "chosen_response": "r"})"}) {
    expect_refused(record, {"'chosen", "preference", "--columns"});
  }
  expect_refused(R"({"query": "q", "response": "a", "rejected_response": "r"})", {"'rejected_response'"});
  expect_refused("{" + kTurns + R"(, "label": true})", {"'label'", "preference"});
  expect_refused(R"({"prompt": "p", "completion": "c", "label": 0})", {"'label'"});
}

TEST(Refusals, Media) {
  expect_refused("{" + kTurns + R"(, "images": ["a.png"]})", {"'images'", "not supported"});
  expect_refused("{" + kTurns + R"(, "audios": ["a.mp3"]})", {"'audios'"});
  expect_refused(R"({"input": "q", "output": "a", "image": "a.png"})", {"'image'"},
                 "instruction=input,output=output");
  expect_refused(R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})",
                 {"'image_url'", "not a text"});
  expect_refused(R"({"query": "<img>x.png</img>what?", "response": "a"})", {"<img>"});
}

TEST(Refusals, PromptsWithoutAnAnswer) {
  expect_refused(R"({"prompt": "p", "reward_model": {"style": "rule"}})", {"'prompt'", "GRPO", "--columns"});
  expect_refused(R"({"idx": 1, "Instruction": "i"})", {"'instruction'", "idx, Instruction"});
  expect_refused(R"({"system_prompt": "s"})", {"unknown format", "system_prompt", "--columns"});
}

TEST(Refusals, TreesChoicesAndPlugins) {
  expect_refused(R"({"message_id": "1", "parent_id": "0", "text": "t", "role": "prompter"})", {"OASST"});
  expect_refused(R"({"question": "q", "choices": ["a", "b"], "answer": "b"})", {"'choices'"});
  expect_refused(R"({"chat": {"turn_1": {"Human": "q", "Commands": "Search(\"x\")<eoc>", "MOSS": "a"}}})",
                 {"'Commands'", "turn_1"});
}

TEST(Refusals, PointersAndOtherEncodings) {
  const DatasetFolder folder;
  const auto refused = [&](const char* name, std::string_view text, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::data, parts, [&] { folder.open(folder.spec({folder.write(name, text)})); });
  };
  refused("a.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
          {"a.jsonl", "Git LFS", "git lfs pull"});
  refused("a.zt", "version https://git-lfs.github.com/spec/v1\n", {"a.zt", "git lfs pull"});
  refused("b.csv",
          std::string_view("\xff\xfe"
                           "a\0",
                           4),
          {"b.csv", "UTF-16"});
}

TEST(Refusals, DeepNestingIsAnErrorAndNoCrash) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  expect_refused("{\"text\": \"a\", \"other\": " + deep + "}", {"nested deeper than 200"});
  expect_refused(R"({"tools": ")" + std::string(1000, '[') + R"(", )" + kTurns + "}",
                 {"'tools' is not a list"});
  EXPECT_EQ(parse_json(std::string(200, '[') + std::string(200, ']')).size(), 1u);
}

TEST(Refusals, TextsThatNoContextHolds) {
  expect_refused(R"({"prompt": ")" + std::string(17 << 20, 'x') + R"(", "completion": "a"})",
                 {"17825793 bytes", "16777216", "split"});
}

TEST(Refusals, TasksWhoseInstancesRepeatTooMuch) {
  std::string instances = R"({"input": "", "output": "a"})";
  for (int i = 0; i < 16; ++i) instances += R"(, {"input": "", "output": "a"})";
  expect_refused(
      R"({"instruction": ")" + std::string(4 << 20, 'x') + R"(", "instances": [)" + instances + "]}",
      {"'instances'", "67108864 bytes", "split the record"});
}

TEST(Refusals, RecordsOfManySmallValues) {
  std::string texts = "\"\"", keys = "\"text\": \"a\"";
  for (int i = 0; i < 1'000'000; ++i) texts += ",\"\"";
  for (int i = 0; i < 1000; ++i) keys += fmt::format(", \"k{}\": 1", i);
  expect_refused(R"({"text": "a", "other": [)" + texts + "]}", {"a.jsonl:1", "1,000,000 texts"});
  expect_refused("{" + keys + "}", {"a.jsonl:1", "1,000 keys"});
}

TEST(Refusals, BrokenJsonSaysWhereAndWhat) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& parts) {
    try {
      parse_json(text);
      FAIL() << text;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_LT(what.size(), 250u);
      EXPECT_EQ(what.find('\n'), std::string::npos);
      for (const std::string& part : parts)
        EXPECT_NE(what.find(part), std::string::npos) << part << " in " << what;
    }
  };
  refused(R"({"a": 1, "b": })", {"column 15", "got '}'"});
  refused(R"({"a": 1 "b": 2})", {"column 9: got '\"b\": 2}'", "expected '}'"});
  refused(R"({"a": "x)", {"ends in the middle", "complete?"});
  refused(R"({"a": {"b": 1)", {"ends in the middle", "complete?"});
  refused("{\n \"a\": 1,\n \"b\": nothing\n}", {"line 3 of the record"});
  refused(R"({"a": ")" + std::string(5000, 'x') + "\x01\"}", {"column"});
  refused("{\"a\": \"\xff\"}", {"UTF-8"});
}

BuildReport report_of(const DatasetSpec& spec) {
  prepare_dataset(spec, {}, 2);
  const DatasetIdentity identity = identify_dataset(spec, find_input_files(spec));
  return CachedSamples(identity.folder, identity.text).report();
}

TEST(UnusedFields, AreNamedWithTheirCount) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec(
      {folder.write("a.jsonl", R"({"instruction": "q", "response": "a", "category": "x", "id": 1})"
                               "\n"
                               R"({"instruction": "q", "response": "a", "category": "", "id": 2})"
                               "\n"
                               R"({"instruction": "q", "response": "a"})")});
  const BuildReport report = report_of(spec);
  EXPECT_EQ(report.records, 3);
  EXPECT_EQ(report.unused, (std::map<std::string, int64_t>{{"category", 1}, {"id", 2}}));
  // Also from the cache.
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(prepare_dataset(spec));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("[dataset] 'id' is not used (2 of 3 records)"), std::string::npos) << log;
}

// The remarks without the template's place.
std::map<std::string, int64_t> remarks_of(const BuildReport& report) {
  std::map<std::string, int64_t> out;
  for (const auto& [remark, count] : report.remarks) out[remark.substr(remark.find("] ") + 2)] = count;
  return out;
}

TEST(UnusedFields, WhatTheTemplateDoesNotWriteIsRemarked) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write(
      "a.jsonl",
      R"({"tools": [{"name": "f"}], "conversation": [{"human": "q", "assistant": "a", "mood": "x"}]})"
      "\n"
      R"({"messages": [{"role": "assistant", "content": "a", "reasoning_content": "r", "name": null}]})")});
  const BuildReport report = report_of(spec);
  EXPECT_EQ(report.unused, (std::map<std::string, int64_t>{{"conversation.mood", 1}}));
  EXPECT_EQ(remarks_of(report),
            (std::map<std::string, int64_t>{
                {"the template does not write the tools", 1},
                {"the template does not write 'reasoning_content' of assistant messages", 1}}));
}

TEST(UnusedFields, ChosenAlone) {
  const DatasetFolder folder;
  DatasetSpec spec =
      folder.spec({folder.write("a.jsonl", R"({"prompt": "p", "chosen": "c", "rejected": "r"})")});
  spec.columns = parse_columns("completion=chosen");
  EXPECT_EQ(report_of(spec).unused, (std::map<std::string, int64_t>{{"rejected", 1}}));
}

// What an error about a template advises has to work.
TEST(UnusedFields, AllTokensAreTrainedWithoutKnowingWhoSpeaks) {
  const DatasetFolder folder;
  DatasetSpec spec = folder.spec({folder.write("a.jsonl", "{" + kTurns + "}")});
  spec.chat_template = folder.write("odd.jinja", "{{ messages | length }} messages").string();
  expect_error(ErrorKind::data, {"--loss-on all", "message 2 (assistant)"}, [&] { report_of(spec); });
  spec.loss_on = LossOn::all;
  const BuildReport report = report_of(spec);
  EXPECT_EQ(report.learned, report.tokens);
}

TEST(UnusedFields, AMessageOfCallsThatAreNotWrittenIsNotTrainedOn) {
  const DatasetFolder folder;
  const std::string call =
      R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]})";
  const DatasetSpec spec = folder.spec({folder.write(
      "a.jsonl", "{\"messages\": [" + call + "]}\n{\"messages\": [" + call +
                     R"(, {"role": "tool", "content": "1"}, {"role": "assistant", "content": "a"}]})")});
  const BuildReport report = report_of(spec);
  EXPECT_EQ(report.nothing_to_learn, 1);
  EXPECT_EQ(report.samples, 1);
  EXPECT_EQ(remarks_of(report), (std::map<std::string, int64_t>{
                                    {"the template does not write 'tool_calls' of assistant messages", 2}}));
}

TEST(Report, CountsByFile) {
  const DatasetFolder folder;
  DatasetSpec spec = folder.spec(
      {folder.write("a.jsonl",
                    "{" + kTurns + "}\n{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}]}\nx\n"),
       folder.write("b.txt", "abc")});
  spec.skip_bad_lines = true;
  const BuildReport report = report_of(spec);
  ASSERT_EQ(report.files.size(), 2u);
  const FileReport &chats = report.files[0], &text = report.files[1];
  EXPECT_EQ(chats.records, 2);
  EXPECT_EQ(chats.samples, 1);
  EXPECT_EQ(chats.dropped, 1);
  EXPECT_EQ(chats.bad, 1);
  EXPECT_EQ(chats.learned, 2);
  EXPECT_EQ(text.samples, 1);
  EXPECT_EQ(text.tokens, 4);
  EXPECT_EQ(text.learned, 4);
  EXPECT_EQ(chats.tokens + text.tokens, report.tokens);
  EXPECT_EQ(chats.learned + text.learned, report.learned);
}

TEST(Folders, LeaveOutWhatDescribesThem) {
  const DatasetFolder folder;
  folder.write("set/README.md", "about");
  folder.write("set/LICENSE", "free");
  folder.write("set/data/train.jsonl", R"({"text": "a"})");
  const InputFiles files = find_input_files(folder.spec({folder.path() / "set"}));
  ASSERT_EQ(files.to_build.size(), 1u);
  EXPECT_EQ(files.notes.size(), 2u);
}

}  // namespace
}  // namespace zeno::data
