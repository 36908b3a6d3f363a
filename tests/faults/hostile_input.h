// Inputs that no honest tool writes, for every file and flag that a user can hand to zeno. Each has to end
// soon, in little memory, with the right exit code and one line that says what is wrong and where.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/temp_dir.h"

namespace zeno::test {

// Where an input lies, beside a good model and a good checkpoint of it.
class HostileFolder {
 public:
  explicit HostileFolder(const std::filesystem::path& path) : path_(path) {}

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, std::string_view contents) const;
  // Of `bytes` NULs after `start`, which take no room on the disk.
  void write_sparse(const std::string& name, std::string_view start, uint64_t bytes) const;
  std::string read(const std::string& name) const;
  // A copy of a folder that stays as it is, to be spoilt.
  void copy(const std::string& from, const std::string& to) const;

 private:
  std::filesystem::path path_;
};

struct HostileInput {
  std::string name;
  std::set<int> exits;   // exit codes that are right; 0: it may also be harmless
  std::string mentions;  // stands in the error: the file, or the flag
  std::function<std::string(const HostileFolder&)> make;  // writes it; the words after `zeno`
};

using HostileInputs = std::vector<HostileInput>;

HostileInputs hostile_records();     // samples of JSON
HostileInputs hostile_data_files();  // other formats, and what is no file of data
HostileInputs hostile_configs();     // config.json and what else stands in a model folder
HostileInputs hostile_weights();
HostileInputs hostile_tokenizers();
HostileInputs hostile_templates();
HostileInputs hostile_flags();
HostileInputs hostile_deepspeed_configs();
HostileInputs hostile_checkpoints();

inline std::string repeated(std::string_view text, size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}
inline std::string nested(std::string_view open, std::string_view core, std::string_view close,
                          size_t depth) {
  return repeated(open, depth) + std::string(core) + repeated(close, depth);
}

// Texts of JSON values that are wrong nearly everywhere.
inline std::vector<std::string> hostile_values() {
  return {"null",   "-1",           "1e30", "9223372036854775808", R"("text\u0000\n\u001b[31m")",
          "[[[]]]", R"({"a": {}})", "1.5"};
}

}  // namespace zeno::test
