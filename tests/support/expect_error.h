// Checks that a call throws an Error of a kind and that its message names everything the user needs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "zeno/base/error.h"

namespace zeno::test {

template <class F>
void expect_error(ErrorKind kind, const std::vector<std::string>& parts, F&& f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(int(error.kind()), int(kind)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is missing in: " << error.what();
    }
  }
}

}  // namespace zeno::test
