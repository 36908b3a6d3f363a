// Parquet and compressed files as datasets: the same samples as from the plain file, places in errors, and
// names and contents that do not go together.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "tests/dataset/dataset_folder.h"
#include "tests/support/expect_error.h"
#include "zeno/data/dataset/input_files.h"
#include "zeno/data/dataset/record_reader.h"

namespace zeno::data {
namespace {

using Json = nlohmann::ordered_json;

const Path kGolden = Path(ZENO_SOURCE_DIR) / "tests/golden/parquet";

// gzip's own way to files.
Path write_gzip(const test::DatasetFolder& folder, const std::string& name, const std::string& text) {
  const Path path = folder.path() / name;
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), unsigned(text.size()));
  gzclose(file);
  return path;
}

// Records of the golden file one per line.
std::string chat_lines() {
  std::string lines;
  for (const Json& row : Json::parse(read_file(kGolden / "chats.json"))) lines += row.dump() + "\n";
  return lines;
}

TEST(ParquetRows, AreJsonOfTheSameRows) {
  for (const char* name : {"types", "nested"}) {
    const Json expected = Json::parse(read_file(kGolden / (std::string(name) + ".json")));
    const Path path = kGolden / (std::string(name) + "_zstd_v2.parquet");
    const InputFile file{path, FileKind::parquet, read_file(path).size()};
    const auto reader = open_records(file, {.piece_bytes = 1000});
    std::vector<RawRecord> records;
    uint32_t row = 0;
    for (reader->next(records); !records.empty(); reader->next(records)) {
      for (const RawRecord& record : records) {
        ASSERT_LT(row, expected.size());
        EXPECT_EQ(Json::parse(record.text).dump(), expected[row].dump());
        EXPECT_EQ(record.line, ++row);
      }
      EXPECT_LE(reader->bytes_read(), file.bytes);
    }
    EXPECT_EQ(row, expected.size());
    EXPECT_EQ(reader->bytes_read(), file.bytes);
  }
}

TEST(PackedFiles, GiveTheSamplesOfThePlainFile) {
  const test::DatasetFolder folder;
  const std::string lines = chat_lines();
  const auto samples = [&](const Path& path) { return test::marked_texts(folder.open(folder.spec({path}))); };
  const std::vector<std::string> plain = samples(folder.write("plain.jsonl", lines));
  ASSERT_EQ(plain.size(), 6u);
  EXPECT_EQ(samples(write_gzip(folder, "packed.jsonl.gz", lines)), plain);
  std::string zstd(ZSTD_compressBound(lines.size()), '\0');
  zstd.resize(ZSTD_compress(zstd.data(), zstd.size(), lines.data(), lines.size(), 3));
  EXPECT_EQ(samples(folder.write("packed.jsonl.zst", zstd)), plain);
  EXPECT_EQ(samples(write_gzip(folder, "upper.JSONL.GZ", lines)), plain);
  EXPECT_EQ(samples(write_gzip(folder, "misnamed.jsonl", lines)), plain);
  EXPECT_EQ(samples(kGolden / "chats.parquet"), plain);
  const std::string table = "prompt,completion\none,two\n";
  EXPECT_EQ(samples(write_gzip(folder, "packed.csv.gz", table)), samples(folder.write("plain.csv", table)));
  EXPECT_EQ(samples(write_gzip(folder, "packed.txt.gz", "words")),
            samples(folder.write("plain.txt", "words")));
}

TEST(PackedFiles, ErrorsNameLineOrRow) {
  const test::DatasetFolder folder;
  const auto build = [&](const Path& path) { folder.open(folder.spec({path})); };
  const Path lines = write_gzip(folder, "bad.jsonl.gz", chat_lines() + "{\"messages\": [1]}\n");
  test::expect_error(ErrorKind::data, {"bad.jsonl.gz:7: "}, [&] { build(lines); });
  test::expect_error(ErrorKind::data, {"types_none_v1.parquet:4: no 'text'", "the fields are flag, int8"},
                     [&] { build(kGolden / "types_none_v1.parquet"); });
  const std::string whole = read_file(write_gzip(folder, "whole.jsonl.gz", chat_lines()));
  const Path cut = folder.write("cut.jsonl.gz", whole.substr(0, whole.size() - 9));
  test::expect_error(ErrorKind::data, {"cut.jsonl.gz", "ends early"}, [&] { build(cut); });
}

TEST(PackedFiles, NamesMustNotContradictTheContents) {
  const test::DatasetFolder folder;
  const auto find = [&](const Path& path) { return find_input_files(folder.spec({path})); };
  const auto refused = [&](const Path& path, const std::vector<std::string>& parts) {
    test::expect_error(ErrorKind::data, parts, [&] { find(path); });
  };
  refused(folder.write("plain.jsonl.gz", chat_lines()), {"plain.jsonl.gz", "does not start like a .gz"});
  refused(folder.write("pointer.jsonl.zst", "version https://git-lfs.github.com/spec/v1\n"),
          {"git lfs pull"});
  refused(write_gzip(folder, "x.parquet.gz", "PAR1"), {"x.parquet.gz", "unpack it first"});
  refused(folder.write("x.jsonl.xz", "\xfd\x37zXZ"),
          {"x.jsonl.xz", "xz files are not supported", "gzip or zstd"});
  refused(folder.write("x.zip", "PK\x03\x04"), {"x.zip", "zip files"});
  refused(folder.write("data-00000-of-00001.arrow", "\xff\xff\xff\xff"), {"Arrow", "to_parquet"});
  EXPECT_TRUE(find(write_gzip(folder, "empty.jsonl.gz", "")).to_build.empty());
  EXPECT_EQ(find(folder.write("no_name", read_file(kGolden / "chats.parquet"))).to_build.at(0).kind,
            FileKind::parquet);
}

}  // namespace
}  // namespace zeno::data
