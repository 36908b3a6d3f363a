#include "zeno/data/dataset/record_reader.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::data {
namespace {

using test::expect_error;
using test::TempDir;

struct Read {
  std::string text;
  uint32_t line;
  bool operator==(const Read&) const = default;
};
void PrintTo(const Read& read, std::ostream* out) { *out << read.line << ":" << read.text; }

std::vector<RawRecord> read_all(const std::string& contents, FileKind kind, const ReaderOptions& options) {
  const TempDir folder;
  const Path path = folder.write("a", contents);
  const auto reader = open_records({path, kind, contents.size()}, options);
  std::vector<RawRecord> all, some;
  for (reader->next(some); !some.empty(); reader->next(some)) all.insert(all.end(), some.begin(), some.end());
  EXPECT_EQ(reader->bytes_read(), contents.size());
  return all;
}

// The same whatever the size of pieces.
void expect_records(const std::string& contents, FileKind kind, const std::vector<Read>& expected) {
  for (const size_t piece : {1, 2, 3, 7, 1000}) {
    std::vector<Read> got;
    for (const RawRecord& record : read_all(contents, kind, {.piece_bytes = piece})) {
      got.push_back({record.text, record.line});
    }
    EXPECT_EQ(got, expected) << "pieces of " << piece;
  }
}

TEST(RecordReader, ReadsLines) {
  expect_records("{\"a\":1}\r\n\n \t\n{}\n  {\"b\":2} \nx", FileKind::json,
                 {{"{\"a\":1}", 1}, {"{}", 4}, {"{\"b\":2}", 5}, {"x", 6}});
  expect_records("\xef\xbb\xbf{}\n", FileKind::json, {{"{}", 1}});
  expect_records("\n\n", FileKind::json, {});
}

TEST(RecordReader, ReadsElementsOfAnArray) {
  expect_records("[]", FileKind::json, {});
  expect_records("\xef\xbb\xbf [\n{\"a\": \"]}\\\"\"},\n\n {\"b\":\n[1, {}]} , 7,\"x\\\\\"]\n",
                 FileKind::json,
                 {{"{\"a\": \"]}\\\"\"}", 2}, {"{\"b\":\n[1, {}]}", 4}, {"7", 5}, {"\"x\\\\\"", 5}});
}

TEST(RecordReader, ReadsValuesThatSpanLines) {
  const std::string object = "{\n \"a\": [\n  {\"b\": 1}\n ]\n}";
  expect_records(object, FileKind::json, {{object, 1}});
  expect_records(object + "\n" + object + "\n\n", FileKind::json, {{object, 1}, {object, 6}});
  expect_records("[\n{}\n]\n[{\"a\":\n1}]", FileKind::json, {{"{}", 2}, {"{\"a\":\n1}", 4}});
}

TEST(RecordReader, AListOfMessagesIsARecord) {
  const std::string one = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  const std::string two = R"([{"from": "human", "value": "]"}])";
  expect_records(one, FileKind::json, {{one, 1}});
  expect_records(one + "\n" + two + "\n", FileKind::json, {{one, 1}, {two, 2}});
  expect_records("[" + one + ",\n" + two + "]", FileKind::json, {{one, 1}, {two, 2}});
  const std::string spread = "[\n{\"role\": \"user\",\n\"content\": \"a\"}\n]";
  expect_records(spread, FileKind::json, {{spread, 1}});
}

// One broken line leaves the others readable, wherever it stands.
TEST(RecordReader, ABrokenLineEndsWhereItEnds) {
  expect_records("{\"a\": [{\n{}\n{}", FileKind::json, {{"{\"a\": [{", 1}, {"{}", 2}, {"{}", 3}});
  expect_records("{}\n{\"a\": \n[1]\n", FileKind::json, {{"{}", 1}, {"{\"a\":", 2}, {"[1]", 3}});
}

TEST(RecordReader, RefusesBrokenArrays) {
  const auto refused = [](const std::string& contents, const std::string& part) {
    for (const size_t piece : {1, 1000}) {
      expect_error(ErrorKind::data, {part, "/a:"},
                   [&] { read_all(contents, FileKind::json, {.piece_bytes = piece}); });
    }
  };
  refused("[{}", "complete");
  refused("[{\"a\": \"", "complete");
  refused("[\n{} {}]", "a:2: expected ','");
  refused("[{}] x", "after the end");
}

// It is bad like any other that is broken, and costs no memory.
TEST(RecordReader, ALineThatIsTooLongLeavesTheOthersReadable) {
  const std::string longer(100, 'x');
  for (const std::string& first : {std::string("x"), "{" + longer}) {
    for (const size_t piece : {1, 8, 1000}) {
      std::string got;
      for (const RawRecord& record : read_all(first + "\n" + longer + "\ny\n" + longer, FileKind::json,
                                              {.piece_bytes = piece, .record_bytes = 50}))
        got += fmt::format("{}:{}{} ", record.line, record.text, record.error);
      const std::string bad = "got a record of more than 50 bytes";
      EXPECT_EQ(got, fmt::format("1:{} 2:{} 3:y 4:{} ", first == "x" ? first : bad, bad, bad)) << piece;
    }
  }
}

// Compact files have all their records on one line.
TEST(RecordReader, AnArrayMayBeLongerThanItsRecords) {
  std::string array = "[";
  for (int i = 0; i < 30; ++i) array += fmt::format("{}{{\"a\": {}}}", i == 0 ? "" : ",", i);
  for (const size_t piece : {1, 8, 1000}) {
    const auto records = read_all(array + "]", FileKind::json, {.piece_bytes = piece, .record_bytes = 50});
    EXPECT_EQ(records.size(), 30u) << piece;
  }
}

TEST(RecordReader, RefusesEndlessElements) {
  expect_error(ErrorKind::data, {"a:2", "more than 50 bytes"}, [&] {
    read_all("[{},\n\"" + std::string(100, 'x') + "\"]", FileKind::json,
             {.piece_bytes = 8, .record_bytes = 50});
  });
}

TEST(RecordReader, CutsTextWhereALineEnds) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("line {} of the text\n\n", i);
  for (const size_t piece : {1, 50, 10000}) {
    const auto records = read_all(text, FileKind::plain_text, {.piece_bytes = piece, .text_bytes = 200});
    std::string together;
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(records[i].first, i == 0);
      EXPECT_EQ(records[i].last, i + 1 == records.size());
      EXPECT_LE(records[i].text.size(), 200u);
      EXPECT_TRUE(records[i].text.ends_with("\n\n"));
      EXPECT_TRUE(records[i].text.starts_with("line"));
      together += records[i].text;
    }
    EXPECT_EQ(together, text);
    EXPECT_GT(records.size(), 30u);
  }
}

TEST(RecordReader, NeverCutsACharacter) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "\xe2\x82\xac";
  std::string together;
  for (const RawRecord& record : read_all(text, FileKind::plain_text, {.text_bytes = 100})) {
    EXPECT_EQ(record.text.size() % 3, 0u);
    together += record.text;
  }
  EXPECT_EQ(together, text);
  expect_error(ErrorKind::data, {"zero byte at 3"},
               [] { read_all(std::string("abc\0d", 5), FileKind::plain_text, {}); });
}

}  // namespace
}  // namespace zeno::data
