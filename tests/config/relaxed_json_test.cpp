#include "zeno/config/relaxed_json.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "zeno/base/error.h"

namespace zeno::config {
namespace {

using Type = JsonValue::Type;

JsonValue parse_json(std::string_view text) { return parse_relaxed_json(text, "t.json"); }

std::string json_error(std::string_view text) {
  try {
    parse_json(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

TEST(RelaxedJson, PlainJson) {
  const JsonValue v = parse_json(R"({"a": [1, -2.5, true, false, null, "x\ty"], "b": {"c": {}}, "d": []})");
  ASSERT_EQ(v.members.size(), 3u);
  const JsonValue& a = *v.find("a");
  ASSERT_EQ(a.items.size(), 6u);
  EXPECT_EQ(a.items[0].integer, 1);
  EXPECT_EQ(a.items[1].number, -2.5);
  EXPECT_FALSE(a.items[1].integer);
  EXPECT_TRUE(a.items[2].boolean);
  EXPECT_TRUE(a.items[3].is(Type::boolean));
  EXPECT_TRUE(a.items[4].is(Type::null));
  EXPECT_EQ(a.items[5].text, "x\ty");
  EXPECT_TRUE(v.find("b")->find("c")->members.empty());
  EXPECT_EQ(v.find("nothing"), nullptr);
  EXPECT_EQ(to_text(v), "{a: [1, -2.5, true, false, null, \"x\ty\"], b: {c: {}}, d: []}");
}

TEST(RelaxedJson, WhatUsersWrite) {
  const JsonValue v = parse_json(R"(# a comment
  {
    // another
    stage: 3,            /* and
                            another */
    'single': 'q"q',
    "no_comma": 1
    "next-key": [1 // one
                 2,],
  })");
  EXPECT_EQ(v.find("stage")->integer, 3);
  EXPECT_EQ(v.find("single")->text, "q\"q");
  EXPECT_EQ(v.find("no_comma")->integer, 1);
  ASSERT_EQ(v.find("next-key")->items.size(), 2u);
  EXPECT_EQ(v.find("next-key")->items[1].integer, 2);
}

TEST(RelaxedJson, Numbers) {
  const std::pair<const char*, int64_t> whole[] = {{"5e8", 500000000},
                                                   {"1e12", 1000000000000},
                                                   {"+7", 7},
                                                   {"2.0", 2},
                                                   {"9223372036854775807", INT64_MAX},
                                                   {"-9223372036854775808", INT64_MIN},
                                                   {"1E3", 1000},
                                                   {"0.9e1", 9}};
  for (const auto& [text, expected] : whole) EXPECT_EQ(parse_json(text).integer, expected) << text;
  EXPECT_EQ(parse_json("9223372036854775808").integer, std::nullopt);
  EXPECT_EQ(parse_json("1e-5").number, 1e-5);
  EXPECT_EQ(parse_json(".5").number, 0.5);
  for (const char* bad : {"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "1e999", "0x10", "1..2",
                          "1-2", "--1", "-", "1e", "1_000", "5e8x"}) {
    EXPECT_NE(json_error(bad), "no error") << bad;
  }
}

TEST(RelaxedJson, Strings) {
  EXPECT_EQ(parse_json(R"("\u00e9\u20ac\ud83d\ude00 é")").text, "é€😀 é");
  EXPECT_EQ(parse_json(R"("\"\'\\\/\b\f\n\r\t")").text, "\"'\\/\b\f\n\r\t");
  for (const char* bad : {R"("\ud83d")", R"("\ude00")", R"("\ud83d\u0041")", R"("\u12g4")", R"("\x41")",
                          "\"a\nb\"", "\"abc", "'abc\"", "\"\\", "\"\\u12"}) {
    EXPECT_NE(json_error(bad), "no error") << bad;
  }
}

TEST(RelaxedJson, ErrorsNameThePlace) {
  EXPECT_NE(json_error("{\n  \"a\": 1,\n  \"a\": 2\n}").find("t.json:3:3: key \"a\" is given twice"),
            std::string::npos);
  EXPECT_NE(json_error("{\"a\": 1 \"b\": 2}").find("t.json:1:9"), std::string::npos);
  EXPECT_NE(json_error("{a: True}").find("Python"), std::string::npos);
  EXPECT_NE(json_error("{a: AdamW}").find("strings need quotes"), std::string::npos);
  EXPECT_NE(json_error("{a 1}").find("expected ':'"), std::string::npos);
  EXPECT_NE(json_error("{a: 1} x").find("after the end"), std::string::npos);
  EXPECT_NE(json_error("/* x").find("never ends"), std::string::npos);
  for (const char* bad :
       {"", "{", "[", "{a", "{a:", "{a:1", "[1,", "[1,,2]", "{,}", "[,]", "}", ":", "\x01", "{\"a\":}"}) {
    EXPECT_NE(json_error(bad), "no error") << bad;
  }
}

TEST(RelaxedJson, DeepNestingIsAnErrorNotACrash) {
  EXPECT_NE(json_error(std::string(100000, '[')).find("nested deeper"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 50000; ++i) deep += "{a:";
  EXPECT_NE(json_error(deep).find("nested deeper"), std::string::npos);
  EXPECT_EQ(json_error(std::string(50, '[') + std::string(50, ']')), "no error");
}

TEST(RelaxedJson, LargeTextsAndTheirErrorsAreShort) {
  EXPECT_NE(json_error(std::string(1 << 20, ' ') + "{}").find("at most 1048576"), std::string::npos);
  const std::string key(100'000, 'k');
  EXPECT_LT(json_error("{" + key + ": 1, " + key + ": 2}").size(), 200u);
  EXPECT_LT(json_error("{" + key + " 1}").size(), 200u);
}

TEST(RelaxedJson, LinesOfKeysAndValues) {
  const JsonValue v = parse_json("\xEF\xBB\xBF{\n\n  a:\n    5}");
  EXPECT_EQ(v.members[0].line, 3);
  EXPECT_EQ(v.members[0].column, 3);
  EXPECT_EQ(v.members[0].value.line, 4);
  EXPECT_EQ(v.members[0].value.column, 5);
}

TEST(RelaxedJson, Base64AndFiles) {
  EXPECT_EQ(decode_base64("eyJhIjogMX0="), "{\"a\": 1}");
  EXPECT_EQ(decode_base64("eyJhIjogMX0"), "{\"a\": 1}");
  EXPECT_EQ(decode_base64("_-8"), "\xff\xef");
  EXPECT_EQ(decode_base64("/+8="), "\xff\xef");
  EXPECT_EQ(decode_base64("a b"), std::nullopt);
  EXPECT_EQ(decode_base64("abcde"), std::nullopt);
  const JsonDocument from_text = load_relaxed_json("eyJhIjogMX0=");
  EXPECT_EQ(from_text.source, "<base64>");
  EXPECT_EQ(from_text.root.find("a")->integer, 1);

  const std::string path = testing::TempDir() + "zeno_relaxed.json";
  std::ofstream(path) << "{a: 1}";
  EXPECT_EQ(load_relaxed_json(path).root.find("a")->integer, 1);
  std::remove(path.c_str());
  EXPECT_THROW(load_relaxed_json(path), Error);
  EXPECT_THROW(load_relaxed_json("abcd"), Error);
}

}  // namespace
}  // namespace zeno::config
