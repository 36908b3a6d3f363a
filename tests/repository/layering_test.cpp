// The architecture as a test: includes point one way, files stay small, every source and test is built.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = ZENO_SOURCE_DIR;

// What each layer includes besides itself: all of it, and nothing more. Each names only layers above it here.
const std::vector<std::pair<std::string, std::set<std::string>>> kLayers{
    {"base", {}},
    {"device", {"base"}},
    {"kernels", {"base", "device"}},
    {"comm", {"base", "device"}},
    {"nn", {"base", "device", "kernels"}},
    {"zero", {"base", "device", "kernels", "comm", "nn"}},
    {"checkpoint", {"base", "device"}},
    {"model", {"base", "device", "kernels", "nn", "checkpoint"}},
    {"generate", {"base", "device", "kernels", "nn", "model"}},
    {"data", {"base"}},
    {"page", {}},
    {"config", {"base", "device", "kernels", "comm", "zero", "checkpoint", "model", "data"}},
    {"plan", {"base", "device", "kernels", "comm", "nn", "zero", "model", "page", "config"}},
    {"report", {"base", "device", "comm", "zero", "data", "page", "config"}},
    {"train",
     {"base", "device", "kernels", "comm", "nn", "zero", "checkpoint", "model", "data", "config", "plan",
      "report"}},
};

std::vector<fs::path> sources(const fs::path& below) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(below)) {
    const std::string extension = entry.path().extension().string();
    if (entry.is_regular_file() &&
        (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh")) {
      files.push_back(entry.path());
    }
  }
  return files;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Which other layers the files of a layer include; "top/" for what is not of zeno.
std::map<std::string, fs::path> included_by(const std::string& layer) {
  const std::regex include("#include \"([a-z_]+)/([a-z_]+)/");
  std::map<std::string, fs::path> found;  // and a file that does
  for (const fs::path& file : sources(kRoot / "zeno" / layer)) {
    const std::string text = text_of(file);
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      const std::string top = (*it)[1], other = (*it)[2];
      if (top != "zeno" || other != layer) found.emplace(top == "zeno" ? other : top + "/", file);
    }
  }
  return found;
}

TEST(Layering, IncludesAreThoseOfTheLayers) {
  for (const auto& [layer, allowed] : kLayers) {
    const std::map<std::string, fs::path> found = included_by(layer);
    for (const auto& [other, file] : found)
      EXPECT_TRUE(allowed.count(other)) << file << " must not include " << other << "/";
    for (const std::string& other : allowed)
      EXPECT_TRUE(found.count(other)) << layer << " does not include " << other << "/: take it off the list";
  }
}

TEST(Layering, LayersPointOneWay) {
  std::set<std::string> below;
  for (const auto& [layer, allowed] : kLayers) {
    for (const std::string& other : allowed) EXPECT_TRUE(below.count(other)) << layer << " before " << other;
    below.insert(layer);
  }
}

TEST(Layering, EveryFolderIsALayer) {
  std::set<std::string> layers;
  for (const auto& [layer, allowed] : kLayers) layers.insert(layer);
  for (const auto& entry : fs::directory_iterator(kRoot / "zeno")) {
    EXPECT_TRUE(!entry.is_directory() || layers.count(entry.path().filename().string())) << entry.path();
  }
}

TEST(Layering, NoFileOver500Lines) {
  for (const char* folder : {"zeno", "cli", "tests", "bench", "examples"}) {
    for (const fs::path& file : sources(kRoot / folder)) {
      const std::string text = text_of(file);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 500) << file;
    }
  }
}

TEST(Layering, HeadersStartWithACommentAndAreGuarded) {
  for (const fs::path& file : sources(kRoot / "zeno")) {
    const std::string text = text_of(file);
    if (file.extension() != ".h") continue;
    EXPECT_EQ(text.substr(0, 2), "//") << file << " does not say what it is";
    const bool reincluded = text.find("HWY_TARGET_TOGGLE") != std::string::npos;
    EXPECT_TRUE(reincluded || text.find("#pragma once") != std::string::npos) << file;
  }
}

// Options belong in the config: only the launcher's variables are read from the environment.
TEST(Layering, EnvironmentIsReadInOnePlace) {
  for (const fs::path& file : sources(kRoot / "zeno")) {
    if (file == kRoot / "zeno/comm/launch.cpp") continue;
    EXPECT_EQ(text_of(file).find("getenv"), std::string::npos) << file;
  }
}

// A test file that no target builds would pass for ever.
TEST(Layering, EveryTestFileIsBuilt) {
  const std::string cmake = text_of(kRoot / "tests" / "CMakeLists.txt");
  for (const fs::path& file : sources(kRoot / "tests")) {
    if (file.string().find("_test.cpp") == std::string::npos) continue;
    const std::string folder = file.parent_path().filename().string();
    EXPECT_NE(cmake.find("zeno_tests(" + folder + " "), std::string::npos) << file << " is built by nobody";
  }
}

}  // namespace
