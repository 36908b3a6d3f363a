#include "zeno/base/python_json.h"

#include <gtest/gtest.h>

namespace zeno {
namespace {

TEST(PythonJson, SpecialNumbersBecomeStringsAndComeBack) {
  for (const char* text :
       {R"({"a": Infinity, "b": [-Infinity, NaN,1], "c": {"NaN": NaN}})", "NaN",
        R"(["Infinity", "-Infinity"])", R"({"a \" NaN": "\\", "b": NaN, "c": "Infinity \\\" -Infinity"})",
        R"({"plain": 1.5})", ""}) {
    EXPECT_EQ(unquote_special_numbers(quote_special_numbers(text)), text);
  }
  EXPECT_EQ(quote_special_numbers(R"([Infinity, "Infinity", -Infinity])"),
            "[\"python:Infinity\", \"Infinity\", \"python:-Infinity\"]");
  EXPECT_EQ(quote_special_numbers(R"({"x\"": NaN, "y": "NaN"})"),
            "{\"x\\\"\": \"python:NaN\", \"y\": \"NaN\"}");
}

TEST(PythonJson, ManyOfThemTakeLinearTime) {
  std::string many = "[";
  for (int i = 0; i < 300'000; ++i) many += "NaN,-Infinity,";
  EXPECT_EQ(unquote_special_numbers(quote_special_numbers(many)), many);
}

// Broken text stays broken, and ends.
TEST(PythonJson, TakesAnyText) {
  for (const char* text : {"\"", "\\", "\"\\", "Infinit", "\"NaN", "NaN\\"})
    EXPECT_EQ(unquote_special_numbers(quote_special_numbers(text)), text);
}

}  // namespace
}  // namespace zeno
