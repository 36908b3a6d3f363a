// Damaged Parquet files: rows or an Error(data), never anything else.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temp_dir.h"
#include "zeno/base/error.h"
#include "zeno/data/parquet/row_reader.h"

namespace zeno::data::parquet {
namespace {

constexpr Limits kSmall{.page_bytes = 1 << 20, .row_bytes = 1 << 20};
constexpr int kMaxRows = 1000;  // a few bytes can claim billions

std::string bytes_of(const std::string& name) {
  return read_file(Path(ZENO_SOURCE_DIR) / "tests/golden/parquet" / (name + ".parquet"));
}

// Did it give rows to its end?
bool survives(const test::TempDir& folder, const std::string& bytes) {
  const Path path = folder.write("x.parquet", bytes);
  try {
    RowReader reader(path, kSmall);
    Json row;
    for (int i = 0; i < kMaxRows && reader.next(row); ++i) row.dump();
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(int(error.kind()), int(ErrorKind::data)) << error.what();
    EXPECT_NE(std::string(error.what()).find("x.parquet"), std::string::npos) << error.what();
    EXPECT_LT(std::string(error.what()).size(), 600u);
    return false;
  }
}

class ParquetDamage : public testing::TestWithParam<const char*> {
 protected:
  test::TempDir folder_{test::memory_folder()};
};

TEST_P(ParquetDamage, EveryTruncationIsAnError) {
  const std::string bytes = bytes_of(GetParam());
  ASSERT_TRUE(survives(folder_, bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(survives(folder_, bytes.substr(0, size))) << "cut at " << size;
  }
}

TEST_P(ParquetDamage, EveryByteFlippedGivesRowsOrAnError) {
  const std::string bytes = bytes_of(GetParam());
  int errors = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const uint8_t change : {0x01, 0xff}) {
      std::string damaged = bytes;
      damaged[at] = char(uint8_t(damaged[at]) ^ change);
      errors += !survives(folder_, damaged);
    }
  }
  EXPECT_GT(errors, int(bytes.size()) / 2);
}

INSTANTIATE_TEST_SUITE_P(Files, ParquetDamage,
                         testing::Values("chats_small", "two_levels", "nested_snappy_v2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace zeno::data::parquet
