// Parquet files written by pyarrow (tools/golden_parquet.py) read as pyarrow reads them: types × encodings ×
// codecs × page versions, nested values, several row groups and pages.
#include "zeno/data/parquet/row_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"

namespace zeno::data::parquet {
namespace {

Path golden(const std::string& name) { return Path(ZENO_SOURCE_DIR) / "tests/golden/parquet" / name; }

std::vector<Json> rows_of(const std::string& name, const Limits& limits = {}) {
  RowReader reader(golden(name + ".parquet"), limits);
  std::vector<Json> rows(1);
  while (reader.next(rows.back())) rows.emplace_back();
  rows.pop_back();
  EXPECT_EQ(reader.rows(), rows.size());
  EXPECT_EQ(reader.rows_read(), rows.size());
  return rows;
}

// As texts, which show the order of columns and the kind of every number.
void expect_rows(const std::string& file, const std::string& expected) {
  SCOPED_TRACE(file);
  std::ifstream text(golden(expected + ".json"));
  const auto want = Json::parse(text);
  const std::vector<Json> got = rows_of(file);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    ASSERT_EQ(got[i].size(), want[i].size());
    for (auto a = got[i].begin(), b = want[i].begin(); b != want[i].end(); ++a, ++b) {
      EXPECT_EQ(a.key(), b.key());
      EXPECT_EQ(a->dump(), b->dump()) << a.key();
    }
  }
}

TEST(ParquetRows, EveryTypeCodecAndPageVersion) {
  for (const char* codec : {"none", "snappy", "gzip", "zstd"}) {
    for (const char* version : {"1", "2"}) {
      expect_rows(std::string("types_") + codec + "_v" + version, "types");
    }
  }
}

TEST(ParquetRows, EveryEncoding) {
  for (const char* version : {"1", "2"}) {
    expect_rows(std::string("encodings_zstd_v") + version, "encodings");
  }
}

TEST(ParquetRows, ListsStructsAndMapsWithNullsEverywhere) {
  for (const char* codec : {"none", "snappy", "gzip", "zstd"}) {
    for (const char* version : {"1", "2"}) {
      expect_rows(std::string("nested_") + codec + "_v" + version, "nested");
    }
  }
}

TEST(ParquetRows, ChatsAsTheHubKeepsThem) {
  expect_rows("chats", "chats");
  expect_rows("chats_small", "chats_small");
}

TEST(ParquetRows, ListsOfOlderWriters) { expect_rows("two_levels", "two_levels"); }
TEST(ParquetRows, TimestampsOfOlderWriters) { expect_rows("int96", "int96"); }
TEST(ParquetRows, NoRows) { expect_rows("empty", "empty"); }

TEST(ParquetRows, WhatIsNotReadIsRefusedByName) {
  const auto refused = [](const std::string& name, const std::vector<std::string>& parts) {
    test::expect_error(ErrorKind::data, parts, [&] { rows_of(name); });
  };
  refused("brotli",
          {"brotli.parquet: row group 1, column 'id'", "compression brotli", "snappy, gzip or zstd"});
  refused("lz4", {"compression lz4"});
  refused("encrypted_footer", {"encrypted_footer.parquet", "is encrypted"});
  refused("encrypted_column", {"encrypted_column.parquet", "encrypted"});
}

TEST(ParquetRows, LimitsOnMemoryHold) {
  test::expect_error(ErrorKind::data, {"encodings_zstd_v1.parquet", "row group 1", "pages need more than"},
                     [] { rows_of("encodings_zstd_v1", {.page_bytes = 2000}); });
  test::expect_error(ErrorKind::data, {"row group 1", "row 1 ", "more than 100 bytes"},
                     [] { rows_of("types_none_v1", {.row_bytes = 100}); });
  EXPECT_EQ(rows_of("chats", {.page_bytes = 4096, .row_bytes = 4096}).size(), 6u);
}

}  // namespace
}  // namespace zeno::data::parquet
