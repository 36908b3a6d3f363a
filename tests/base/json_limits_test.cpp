#include "zeno/base/json_limits.h"

#include <gtest/gtest.h>

namespace zeno {
namespace {

constexpr JsonLimits kSmall{.depth = 2, .values = 6, .nodes = 5, .keys = 3};

TEST(JsonLimits, TakeWhatIsWithinThem) {
  for (const char* text : {"", "1", "[]", R"({"a": [1, 2]})", "[1, 2, 3, 4]", R"({"a": 1, "b": 2, "c": 3})",
                           R"(["a", "b", "c", "d"])", R"("[[[[,,,,,,,,")", R"({"a\"[[[": "[[[,,,,,,"})"})
    EXPECT_EQ(json_excess(text, kSmall), "") << text;
}

TEST(JsonLimits, NameTheOneThatIsExceeded) {
  EXPECT_EQ(json_excess("[[[1]]]", kSmall), "nested deeper than 2 levels");
  EXPECT_EQ(json_excess(R"({"a": {"b": {}}})", kSmall), "nested deeper than 2 levels");
  EXPECT_EQ(json_excess("[1, 2, 3, 4, 5, 6]", kSmall), "it has more than 6 values");
  EXPECT_EQ(json_excess("[[], [], []]", kSmall), "it has more than 6 values");
  EXPECT_EQ(json_excess(R"(["a", "b", "c", "d", "e"])", kSmall),
            "it has more than 5 texts, lists and objects");
  EXPECT_EQ(json_excess(R"({"a": 1, "b": 2, "c": 3, "d": 4})", kSmall), "an object has more than 3 keys");
}

// A parser stops at the first mistake, or goes on to the end of a text that is cut.
TEST(JsonLimits, FollowBrokenText) {
  for (const char* text : {"]]]]", "}[[[[", "\"", "\"\\", "[\"[[[[", "{{"})
    EXPECT_EQ(json_excess(text, kSmall), "") << text;
  EXPECT_NE(json_excess("{{{", kSmall), "");
  EXPECT_NE(json_excess(",,,,,,,", kSmall), "");
}

TEST(JsonLimits, ErrorsSayWhere) {
  try {
    check_json_limits("[[[]]]", "[model] config.json", kSmall, ErrorKind::usage);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[model] config.json: nested deeper than 2 levels");
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

}  // namespace
}  // namespace zeno
