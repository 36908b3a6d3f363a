// CSV and TSV files as JSON records.
#include <gtest/gtest.h>

#include <random>

#include "tests/dataset/dataset_folder.h"
#include "tests/support/expect_error.h"
#include "zeno/data/dataset/record_reader.h"
#include "zeno/data/parse_json.h"

namespace zeno::data {
namespace {

using Texts = std::vector<std::string>;
using test::expect_error;
using test::TempDir;

struct Row {
  std::string json;
  uint32_t line;
  bool operator==(const Row&) const = default;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.line << ":" << row.json; }

std::vector<RawRecord> read_rows(const std::string& contents, FileKind kind = FileKind::csv,
                                 size_t piece = 1000) {
  const TempDir folder;
  const auto reader =
      open_records({folder.write("a.csv", contents), kind, contents.size()}, {.piece_bytes = piece});
  std::vector<RawRecord> all, some;
  for (reader->next(some); !some.empty(); reader->next(some)) all.insert(all.end(), some.begin(), some.end());
  return all;
}

void expect_rows(const std::string& contents, const std::vector<Row>& expected,
                 FileKind kind = FileKind::csv) {
  for (const size_t piece : {1, 2, 3, 5, 1000}) {
    std::vector<Row> got;
    for (const RawRecord& record : read_rows(contents, kind, piece)) {
      EXPECT_EQ(record.error, "");
      got.push_back({record.text, record.line});
    }
    EXPECT_EQ(got, expected) << "pieces of " << piece;
  }
}

TEST(TableReader, ReadsRowsUnderTheHeader) {
  expect_rows("a,b\n1,2\n\n3,\n", {{R"({"a":"1","b":"2"})", 2}, {R"({"a":"3","b":""})", 4}});
  expect_rows(
      "\xef\xbb\xbf"
      "a,b\r\n1,2\r\n3,4",
      {{R"({"a":"1","b":"2"})", 2}, {R"({"a":"3","b":"4"})", 3}});
  expect_rows("a\tb\n1,5\t\"x\ty\"\n", {{R"({"a":"1,5","b":"x\ty"})", 2}}, FileKind::tsv);
  expect_rows("a;b\n1,5;2\n", {{R"({"a":"1,5","b":"2"})", 2}});
  expect_rows(",a\n0,x\n", {{R"({"column 1":"0","a":"x"})", 2}});
  expect_rows("a,b\n", {});
}

TEST(TableReader, QuotedFieldsHoldAnything) {
  expect_rows("a,b\n\"x, \"\"y\"\"\nz\",\"\"\n\"1\",2\n",
              {{R"({"a":"x, \"y\"\nz","b":""})", 2}, {R"({"a":"1","b":"2"})", 4}});
  expect_rows("a,b\nsay \"hi\",2\n", {{R"({"a":"say \"hi\"","b":"2"})", 2}});
}

// Whatever the fields hold, they come back.
TEST(TableReader, RoundTrips) {
  std::mt19937 random(5);
  const std::vector<std::string> parts{"a", "\"", ",", "\n", "\r\n", " ", "\xc3\xa9", "{", "\t", ";"};
  for (int round = 0; round < 50; ++round) {
    std::string file = "one,two\n";
    std::vector<Json> expected;
    for (int row = 0; row < 5; ++row) {
      Json fields = Json::object();
      for (const char* name : {"one", "two"}) {
        std::string text = "x", quoted;
        for (int i = int(random() % 6); i > 0; --i) text += parts[random() % parts.size()];
        for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
        fields[name] = text;
        file += "\"" + quoted + (name[0] == 'o' ? "\"," : "\"\n");
      }
      expected.push_back(fields);
    }
    std::vector<Json> got;
    for (const RawRecord& record : read_rows(file, FileKind::csv, 1 + random() % 30)) {
      got.push_back(parse_json(record.text));
    }
    EXPECT_EQ(got, expected) << file;
  }
}

TEST(TableReader, SaysWhatIsBroken) {
  const auto refused = [](const std::string& contents, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::data, parts, [&] { read_rows(contents); });
  };
  refused("a,b\n1,\"2\n3,4\n", {"a.csv:2", "does not end"});
  refused("a,b\n1,\"2\"x\n", {"a.csv:2", "field 2", "closing quote"});
  refused("a,a\n1,2\n", {"a.csv:1", "'a' twice"});
  const std::vector<RawRecord> records = read_rows("a,b\n1\n1,2,3\n\xff,1\n4,5\n");
  ASSERT_EQ(records.size(), 4u);
  EXPECT_NE(records[0].error.find("1 fields, expected 2"), std::string::npos) << records[0].error;
  EXPECT_NE(records[1].error.find("3 fields, expected 2 as in the header (a, b)"), std::string::npos);
  EXPECT_NE(records[2].error.find("column 'a' is not UTF-8"), std::string::npos);
  EXPECT_EQ(records[3].error, "");
  EXPECT_EQ(records[3].line, 5u);
}

TEST(TableReader, RowsBecomeSamples) {
  const test::DatasetFolder folder;
  const auto read = [&](const char* name, const std::string& text) {
    return test::marked_texts(folder.open(folder.spec({folder.write(name, text)})));
  };
  EXPECT_EQ(read("a.csv", "Question,Answer\nq,a\n"), Texts{"{user\nq}\n{assistant\n[a}]\n"});
  EXPECT_EQ(read("b.csv", "system,instruction,input,output\n,i,,o\n"),
            Texts{"{user\ni}\n{assistant\n[o}]\n"});
  EXPECT_EQ(read("c.tsv",
                 "id\tmessages\n7\t\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"u\"\"}, "
                 "{\"\"role\"\": \"\"assistant\"\", \"\"content\"\": \"\"b\"\"}]\"\n"),
            Texts{"{user\nu}\n{assistant\n[b}]\n"});
}

}  // namespace
}  // namespace zeno::data
