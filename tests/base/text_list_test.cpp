#include "zeno/base/text_list.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace zeno {
namespace {

TEST(TextList, GivesBackAnyBytes) {
  const std::vector<std::string> texts{"a", "", "two\nlines", std::string("a\0b", 3), "3:abc", "é中"};
  EXPECT_EQ(unpack_texts(pack_texts(texts)), texts);
  EXPECT_EQ(unpack_texts(pack_texts({})), std::vector<std::string>{});
  EXPECT_EQ(unpack_texts(pack_texts({""})), std::vector<std::string>{""});
  const std::vector<std::string> nested{pack_texts(texts), pack_texts({})};
  EXPECT_EQ(unpack_texts(unpack_texts(pack_texts(nested))[0]), texts);
}

TEST(TextList, NothingElseIsTaken) {
  for (const char* bad : {"a", "3", "3:ab", ":", "1:a2", "99999999999999999999:a"})
    test::expect_error(ErrorKind::internal, {"not a list of texts"}, [&] { unpack_texts(bad); });
}

}  // namespace
}  // namespace zeno
