#include "tests/faults/hostile_input.h"

#include <fstream>
#include <sstream>

namespace zeno::test {
namespace fs = std::filesystem;

void HostileFolder::write(const std::string& name, std::string_view contents) const {
  fs::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary).write(contents.data(), std::streamsize(contents.size()));
}

void HostileFolder::write_sparse(const std::string& name, std::string_view start, uint64_t bytes) const {
  write(name, start);
  fs::resize_file(path_ / name, start.size() + bytes);
}

std::string HostileFolder::read(const std::string& name) const {
  std::ostringstream text;
  text << std::ifstream(path_ / name, std::ios::binary).rdbuf();
  return text.str();
}

void HostileFolder::copy(const std::string& from, const std::string& to) const {
  fs::remove_all(path_ / to);
  fs::copy(path_ / from, path_ / to, fs::copy_options::recursive);
}

}  // namespace zeno::test
