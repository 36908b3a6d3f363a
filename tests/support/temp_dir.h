// A folder of its own for a test, removed with everything in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace zeno::test {

// Where there is no disk behind the files, so that many small transfers and syncs take no time.
inline std::filesystem::path memory_folder() {
  const std::filesystem::path shared = "/dev/shm";
  return std::filesystem::exists(shared) ? shared : std::filesystem::temp_directory_path();
}

class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "zeno_test_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes a file into the folder and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view contents) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary).write(contents.data(), std::streamsize(contents.size()));
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace zeno::test
