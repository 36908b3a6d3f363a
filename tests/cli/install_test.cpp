// What `make install` installs is enough to build against: the examples, with find_package and with
// pkg-config.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/command.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {
namespace {

const std::string kExamples = std::string(ZENO_SOURCE_DIR) + "/examples";

class Install : public testing::Test {
 protected:
  void SetUp() override {
    // Their programs would have to be built with the sanitizer too, which pkg-config does not say.
    if (kSanitized) GTEST_SKIP();
    expect_ok("cmake --install " + std::string(ZENO_BINARY_DIR) + " --prefix " + path("usr"));
  }
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  std::string expect_ok(const std::string& command) const {
    const CommandResult result = run_command(command);
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.output;
    return result.output;
  }
  void expect_trains(const std::string& program) const {
    expect_ok(program + " " + program + ".run");
    EXPECT_TRUE(std::filesystem::exists(program + ".run/tuned/model.safetensors"));
  }

  TempDir dir_;
};

TEST_F(Install, ProgramsBuildAgainstIt) {
  EXPECT_NE(expect_ok(path("usr") + "/bin/zeno --version").find("zeno"), std::string::npos);

  expect_ok("cmake -S " + kExamples + " -B " + path("build") + " -DCMAKE_PREFIX_PATH=" + path("usr") +
            " -DCMAKE_CXX_FLAGS=-O0 && cmake --build " + path("build") + " --parallel 2");
  EXPECT_NE(expect_ok(path("build") + "/own_model").find("step 200"), std::string::npos);
  expect_trains(path("build") + "/own_loop");

  // From another place than it was installed in, as a package would be.
  expect_ok("mv " + path("usr") + " " + path("moved"));
  expect_ok("cd " + path("") + " && c++ -O0 " + kExamples +
            "/own_loop.cpp $(PKG_CONFIG_PATH=moved/lib/pkgconfig pkg-config --cflags --libs zeno) -o own");
  expect_trains(path("own"));
}

}  // namespace
}  // namespace zeno::test
