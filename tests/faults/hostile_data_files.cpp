#include <filesystem>

#include "tests/faults/hostile_input.h"

namespace zeno::test {
namespace {

struct DataFile {
  std::string name;  // of the file: how it ends says how it is read
  std::string what;
  std::set<int> exits;
  std::function<void(const HostileFolder&, const std::string& name)> write;
};

std::function<void(const HostileFolder&, const std::string&)> holding(std::string contents) {
  return [contents](const HostileFolder& folder, const std::string& name) { folder.write(name, contents); };
}
std::function<void(const HostileFolder&, const std::string&)> made_by(std::function<std::string()> contents) {
  return [contents](const HostileFolder& folder, const std::string& name) { folder.write(name, contents()); };
}
std::function<void(const HostileFolder&, const std::string&)> linked_to(std::string target) {
  return [target](const HostileFolder& folder, const std::string& name) {
    std::filesystem::create_symlink(target, folder / name);
  };
}
// What a shell command writes to standard output.
std::function<void(const HostileFolder&, const std::string&)> printed_by(std::string command) {
  return [command](const HostileFolder& folder, const std::string& name) {
    if (std::system(("{ " + command + "; } > '" + folder / name + "'").c_str()) != 0)
      throw std::runtime_error(command);
  };
}

std::vector<DataFile> special_files() {
  const auto pipe = [](const HostileFolder& folder, const std::string& name) {
    if (std::system(("mkfifo '" + folder / name + "'").c_str()) != 0) throw std::runtime_error("mkfifo");
  };
  const auto folder_of_that_name = [](const HostileFolder& folder, const std::string& name) {
    std::filesystem::create_directories(folder / name);
  };
  std::vector<DataFile> files;
  for (const char* name : {"bad.jsonl", "bad.txt", "bad.bin", "bad.parquet", "bad.jsonl.gz"}) {
    files.push_back({name, "a pipe that nobody writes to", {3, 5}, pipe});
    files.push_back({name, "a folder of its name", {3, 5}, folder_of_that_name});
    files.push_back({name, "a device without end", {3, 5}, linked_to("/dev/zero")});
    files.push_back({name, "a device without contents", {3, 5}, linked_to("/dev/null")});
    files.push_back({name, "a link to itself", {3, 5}, linked_to(name)});
    files.push_back({name, "a link to nothing", {3, 5}, linked_to("nothing")});
    files.push_back({name, "an empty file", {3}, holding("")});
    files.push_back({name, "NULs", {0, 3}, holding(std::string(1000, '\0'))});
    files.push_back({name, "garbage", {0, 3}, printed_by("head -c 100000 $(command -v zstd sh | head -1)")});
  }
  files.push_back(
      {"bad.jsonl", "2 GB of NULs", {3}, [](const HostileFolder& folder, const std::string& name) {
         folder.write_sparse(name, "", uint64_t(2) << 30);
       }});
  return files;
}

std::vector<DataFile> json_files() {
  return {
      {"bad.json", "deep arrays", {3}, made_by([] { return nested("[", "", "]", 100'000); })},
      {"bad.json", "an array that ends early", {3}, holding(R"([{"text": "a"}, {"text": )")},
      {"bad.json", "commas only", {3}, made_by([] { return "[" + repeated(",", 1'000'000) + "]"; })},
      {"bad.json", "an object of objects", {0, 3}, holding(R"({"train": {"data": [{"text": "a"}]}})")},
      {"bad.json", "a record of 30 MB", {0}, made_by([] {
         return R"([{"text": ")" + repeated("word ", 6'000'000) + "\"}]";
       })},
      {"bad.jsonl", "a million empty lines", {3}, made_by([] { return repeated("\n", 1'000'000); })},
      {"bad.jsonl", "lines of carriage returns", {3}, made_by([] { return repeated("\r", 1'000'000); })},
      {"bad.jsonl", "a line without end", {3}, made_by([] {
         return R"({"text": ")" + repeated("x", 30'000'000);
       })},
  };
}

std::vector<DataFile> table_files() {
  return {
      {"bad.csv", "a quote without end", {3}, made_by([] {
         return "text,score\n\"" + repeated("word, ", 5'000'000);
       })},
      {"bad.csv", "100,000 columns", {0, 3}, made_by([] {
         return "text" + repeated(",c", 100'000) + "\nx" + repeated(",1", 100'000) + "\n";
       })},
      {"bad.csv", "a header only", {3}, holding("text,score\n")},
      {"bad.csv", "rows of odd lengths", {0, 3}, holding("text,score\na\nb,1,2,3\n")},
      {"bad.csv", "columns of one name", {0, 3}, holding("text,text\na,b\n")},
      {"bad.csv", "a name of a megabyte", {0, 3}, made_by([] { return repeated("n", 1 << 20) + "\na\n"; })},
      {"bad.tsv", "NULs", {0, 3}, holding(std::string("text\nab\0c\n", 10))},
      {"bad.txt", "a paragraph of 30 MB", {0, 3}, made_by([] { return repeated("word ", 6'000'000); })},
      {"bad.txt", "lines of 30 MB", {0, 3}, made_by([] { return repeated("\n", 30'000'000); })},
      {"bad.txt", "bytes that are not UTF-8", {0, 3}, holding("a\xff\xfe\n")},
  };
}

// The end of a Parquet file whose footer says that it has this many bytes.
std::string parquet_end(uint32_t footer) {
  return std::string(reinterpret_cast<const char*>(&footer), 4) + "PAR1";
}

std::vector<DataFile> packed_files() {
  return {
      {"bad.jsonl.gz", "10 GB of NULs in 10 MB", {3}, printed_by("head -c 10000000000 /dev/zero | gzip -1")},
      {"bad.jsonl.gz", "cut", {3}, printed_by("yes '{\"text\": \"a\"}' | head -100000 | gzip | head -c 300")},
      {"bad.jsonl.gz",
       "text that is not packed",
       {0, 3},
       holding(R"({"text": "a"})"
               "\n")},
      {"bad.jsonl.gz", "packed twice", {3}, printed_by("echo '{\"text\": \"a\"}' | gzip | gzip")},
      {"bad.jsonl.gz",
       "garbage behind it",
       {0, 3},
       printed_by("echo '{\"text\": \"a\"}' | gzip; echo garbage")},
      {"bad.txt.gz", "1 GB of NULs", {0, 3}, printed_by("head -c 1000000000 /dev/zero | gzip -1")},
      {"bad.jsonl", "packed, but not by its name", {0, 3}, printed_by("echo '{\"text\": \"a\"}' | gzip")},
      {"bad.parquet", "its marks only", {3}, holding("PAR1PAR1")},
      {"bad.parquet", "a footer longer than the file", {3}, holding("PAR1" + parquet_end(1000))},
      {"bad.parquet", "a footer of 4 GB", {3}, holding("PAR1" + parquet_end(0xffffffff))},
      {"bad.parquet", "a footer of NULs", {3}, made_by([] {
         return "PAR1" + std::string(5000, '\0') + parquet_end(5000);
       })},
      {"bad.parquet", "a footer of deep structs", {3}, made_by([] {
         return "PAR1" + std::string(100'000, '\x1c') + parquet_end(100'000);
       })},
      {"bad.parquet", "a footer of long lists", {3}, made_by([] {
         return "PAR1" + repeated("\x19\xfc\xff\xff\xff\xff\x0f", 1000) + parquet_end(7000);
       })},
      {"bad.bin", "a token file that is cut", {3}, holding("ZENOTOK1")},
      {"bad.bin", "odd bytes", {0, 3}, holding("abc")},
  };
}

HostileInput input_of(const DataFile& file) {
  return {file.name + ": " + file.what, file.exits, file.name, [file](const HostileFolder& folder) {
            file.write(folder, file.name);
            return "data --chat-template chatml --seq-len 64 --model " + folder / "model" + " --data " +
                   folder / file.name;
          }};
}

}  // namespace

HostileInputs hostile_data_files() {
  HostileInputs inputs;
  for (const auto& files : {special_files(), json_files(), table_files(), packed_files()}) {
    for (const DataFile& file : files) inputs.push_back(input_of(file));
  }
  return inputs;
}

}  // namespace zeno::test
