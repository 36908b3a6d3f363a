#include "zeno/checkpoint/torch_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::checkpoint {
namespace {

using test::expect_error;
using namespace std::string_literals;

const Path kTorchFile = Path(ZENO_SOURCE_DIR) / "tests/golden/torch_file.pt";

TEST(TorchFile, ReadsWhatTorchWrote) {
  const TorchFile file = TorchFile::open(kTorchFile);
  std::map<std::string, TorchTensor> found;
  for (const TorchTensor& tensor : file.tensors()) found.emplace(tensor.name, tensor);
  EXPECT_EQ(found.size(), 8u);
  std::vector<float> ramp(24);
  for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = float(i);
  EXPECT_EQ(found.at("module.weight").shape, (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(file.read(found.at("module.weight")), ramp);
  ramp.resize(6);
  EXPECT_EQ(file.read(found.at("module.half")), ramp);
  EXPECT_EQ(file.read(found.at("module.bf16")), ramp);
  EXPECT_EQ(file.read(found.at("view")), (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(file.read(found.at("parameter")), (std::vector<float>{1.5f, -2.5f}));
  EXPECT_TRUE(file.read(found.at("3.0")).empty());
  EXPECT_EQ(file.read(found.at("3.1.deep")), std::vector<float>{4});
  EXPECT_EQ(found.at("ids").dtype, DType::i64);
  expect_error(ErrorKind::data, {"ids", "no floating values"}, [&] { file.read(found.at("ids")); });
  const PickleNode* numbers = file.root().find("numbers");
  EXPECT_EQ(*numbers->find("step")->integer(), 7);
  EXPECT_EQ(*numbers->find("big")->integer(), int64_t(1) << 40);
  EXPECT_EQ(*numbers->find("negative")->integer(), -5);
  EXPECT_EQ(std::get<double>(numbers->find("lr")->value), 1e-3);
}

TEST(Pickle, RefusesWhatIsNeitherTensorNorContainer) {
  // cos\nsystem\n(X…touch /tmp/x)tR. : the classic way to run a command.
  std::string attack = "cos\nsystem\n(X";
  attack += std::string("\x08\0\0\0", 4) + "touch /x" + "tR.";
  expect_error(ErrorKind::data, {"os.system", "refused"}, [&] { parse_pickle(attack, "attack"); });
  expect_error(ErrorKind::data, {"builtins.eval"}, [] { parse_pickle("cbuiltins\neval\n.", "attack"); });
  expect_error(ErrorKind::data, {"instruction 0x69"}, [] { parse_pickle("(i.", "attack"); });
}

// What a file may say to build a tensor.
std::string text(std::string_view value) {
  return "X" + std::string{char(value.size()), '\0', '\0', '\0'} + std::string(value);
}
std::string storage() {
  return "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\x04tQ";
}
std::string tensor(const std::string& offset, const std::string& shape, const std::string& stride) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage() + offset + "(" + shape + "t(" + stride + "ttR";
}

TEST(Pickle, EveryWayToCallSomethingIsRefused) {
  const std::pair<std::string, const char*> attacks[] = {
      {"cposix\nsystem\n" + text("id") + "\x85R.", "posix.system"},
      {"cbuiltins\ngetattr\n.", "builtins.getattr"},
      {text("os") + text("system") + "\x93.", "os.system"},                    // STACK_GLOBAL
      {"cbuiltins\nexec\n)\x81.", "builtins.exec"},                            // NEWOBJ
      {"ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\n", "os.system"},  // by way of torch
      {"ctorch._tensor\n_rebuild_from_type_v2\n(h\x01", "refers to a value"},
      {"ctorch._tensor\n_rebuild_from_type_v2\nq\x01(h\x01"
       "ctorch\nTensor\n(ttR.",
       "_rebuild_from_type_v2"},
      {"(" + text("touch /x") + "ios\nsystem\n.", "instruction 0x69"},  // INST
      {"(cos\nsystem\no.", "os.system"},                                // OBJ
      {"\x82\x01.", "instruction 0x82"},                                // EXT1
      {"Pid\n.", "instruction 0x50"},                                   // PERSID
      {"]b.", "a value is missing"},
      {text("x") + ")R.", "not a known name"}};
  for (const auto& [attack, word] : attacks)
    expect_error(ErrorKind::data, {"attack", word}, [&bytes = attack] { parse_pickle(bytes, "attack"); });
}

TEST(Pickle, TensorsOfImpossibleShapeAreRefused) {
  expect_error(ErrorKind::data, {"no proper shape"},
               [] { parse_pickle(tensor("J\xff\xff\xff\xff", "K\x04", "K\x01") + ".", "attack"); });
  expect_error(ErrorKind::data, {"not a size"},
               [] { parse_pickle(tensor("K\x01", "J\xff\xff\xff\xff", "K\x01") + ".", "attack"); });
  expect_error(ErrorKind::data, {"no proper shape"},
               [] { parse_pickle(tensor("K\x01", "K\x02K\x02", "K\x01") + ".", "attack"); });
  expect_error(ErrorKind::data, {"64 bits"},
               [] { parse_pickle("\x8a\x09" + std::string(9, 'a') + ".", "attack"); });
}

TEST(Pickle, KeysAreLookedUpSoonAndTheLastOneWins) {
  std::string bytes = "}(";
  constexpr int kKeys = 100'000;
  const auto number = [](int value) {
    return "J" + std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (int i = 0; i < kKeys; ++i) {
    bytes += number(kKeys - i) + number(i);
    bytes += text("k" + std::to_string(i)) + number(-i);
  }
  bytes += "NK\x07" + text("k5") + "K\x05" + number(5) + "K\x06u.";
  const Pickle pickle = parse_pickle(bytes, "dict");
  for (int i = 6; i < kKeys; ++i) {
    ASSERT_EQ(*pickle.root->at(kKeys - i)->integer(), kKeys - i == 5 ? 6 : i);
    ASSERT_EQ(*pickle.root->find("k" + std::to_string(i))->integer(), -i);
  }
  EXPECT_EQ(*pickle.root->find("k5")->integer(), 5);
  EXPECT_EQ(pickle.root->find("k"), nullptr);
  EXPECT_EQ(pickle.root->find("5"), nullptr);
  EXPECT_EQ(pickle.root->at(-1), nullptr);
  EXPECT_EQ(pickle.root->at(kKeys + 1), nullptr);
}

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Pickle, AMillionParametersAreNotTooMany) {
  constexpr int kParameters = 1'000'000;
  std::string bytes = "}(";
  for (int i = 0; i < kParameters; ++i)
    bytes += text("p" + std::to_string(i)) + (i == 0 ? "K\x01q\x01" : "h\x01");
  const Pickle pickle = parse_pickle(bytes + "u.", "parameters");
  EXPECT_EQ(pickle.root->dict()->items.size(), size_t(kParameters));
  EXPECT_NE(pickle.root->find("p999999"), nullptr);
}

// A value takes a byte to use again: what it costs must not add up.
TEST(Pickle, SharedValuesDoNotMultiply) {
  const auto text_of = [](size_t bytes) {
    std::string length(4, '\0');
    for (int i = 0; i < 4; ++i) length[size_t(i)] = char(bytes >> 8 * i);
    return "X" + length + std::string(bytes, 'k');
  };
  const auto refused = [](const std::string& pickle, const char* word) {
    expect_error(ErrorKind::data, {"attack", word}, [&] { parse_pickle(pickle, "attack"); });
  };
  constexpr size_t kMany = size_t(1) << 22;
  refused("N" + std::string(kMany, '\x94') + ".", "too many values");  // remembered
  refused(std::string(kMany, '('), "too many values");                 // marks
  refused(std::string(kMany, 'N') + ".", "too many values");
  refused("(" + text("storage") + "ctorch\nFloatStorage\n" + text_of(1 << 20) + text("cpu") + "K\x04tQ.",
          "storage is not described");
  std::string one_key = text_of(1 << 24) + "q\x01" + "}(";  // compared with itself again and again
  for (int i = 0; i < 100'000; ++i) one_key += "h\x01N";
  EXPECT_EQ(parse_pickle(one_key + "u\x86.", "key").root->list()->items[1]->dict()->items.size(), 100'000u);
  // Items of one list or dict after the other, some bytes for each.
  std::string keys = text_of(500) + "q\x01", list = "N" + keys;
  for (int i = 0; i < 9; ++i) {
    keys += "}(" + repeated("h\x01h\x01", 500'000) + "u0";
    list += "](" + repeated("h\x01", 1'000'000) + "e0";
  }
  refused(keys + ".", "too many values in lists and dicts");
  refused(list + ".", "too many values in lists and dicts");
  std::string sizes;
  for (int i = 0; i < 65; ++i) sizes += "K\x01";
  refused(tensor("K\x01", sizes, sizes) + ".", "too many dimensions");
}

// An archive as torch.save makes it, with one storage of 16 bytes.
struct ZipFile {
  std::string bytes, directory;
  int entries = 0;

  template <class T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static void header(std::string& to, std::string_view name, uint16_t method, uint32_t packed,
                     uint32_t size) {
    put<uint16_t>(to, method);
    for (int i = 0; i < 2; ++i) put<uint16_t>(to, 0);  // time
    put<uint32_t>(to, 0);                              // checksum
    put<uint32_t>(to, packed);
    put<uint32_t>(to, size);
    put<uint16_t>(to, uint16_t(name.size()));
    put<uint16_t>(to, 0);
  }
  // The directory may lie: about where the entry is, its method and its size.
  void add(std::string_view name, std::string_view data, uint32_t size, uint16_t method = 0) {
    const uint32_t at = uint32_t(bytes.size());
    put<uint32_t>(bytes, 0x04034b50);
    put<uint32_t>(bytes, 0);
    header(bytes, name, method, uint32_t(data.size()), size);
    bytes += name;
    bytes += data;
    list(name, at, uint32_t(data.size()), size, method);
  }
  void list(std::string_view name, uint32_t at, uint32_t packed, uint32_t size, uint16_t method = 0) {
    put<uint32_t>(directory, 0x02014b50);
    put<uint32_t>(directory, 0);
    put<uint16_t>(directory, 0);
    header(directory, name, method, packed, size);
    for (int i = 0; i < 5; ++i) put<uint16_t>(directory, 0);  // comment, disk, attributes
    put<uint32_t>(directory, at);
    directory += name;
    ++entries;
  }
  std::string finish() const {
    std::string all = bytes + directory;
    put<uint32_t>(all, 0x06054b50);
    put<uint32_t>(all, 0);
    put<uint16_t>(all, uint16_t(entries));
    put<uint16_t>(all, uint16_t(entries));
    put<uint32_t>(all, uint32_t(directory.size()));
    put<uint32_t>(all, uint32_t(bytes.size()));
    put<uint16_t>(all, 0);
    return all;
  }
};

std::string archive_of(const std::string& pickle) {
  ZipFile zip;
  zip.add("a/data.pkl", pickle, uint32_t(pickle.size()));
  zip.add("a/data/0", std::string(16, '\0'), 16);
  return zip.finish();
}

void read_all(const Path& path) {
  const TorchFile file = TorchFile::open(path);
  for (const TorchTensor& found : file.tensors()) file.read(found);
}

TEST(TorchFile, HostilePicklesAreRefused) {
  const test::TempDir dir;
  const std::string four = "K\x04", one = "K\x01", zero = "K\0"s,
                    largest = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  std::string laughs = "]q\0000"s, deep;
  for (char i = 1; i < 60; ++i)
    laughs += "]q" + std::string{i} + "(h" + std::string{char(i - 1)} + "h" + std::string{char(i - 1)} + "e0";
  for (int i = 0; i < 1000; ++i) deep += "]";
  const std::pair<std::string, const char*> attacks[] = {
      {tensor(zero, four, one) + ".", ""},  // as it should be
      {tensor(largest, four, one) + ".", "beyond its storage"},
      {tensor(one, four, one) + ".", "beyond its storage"},
      {tensor(zero, largest, one) + ".", "too large"},
      {tensor(zero, largest + largest, one + one) + ".", "too large"},
      {tensor(zero, largest + zero, one + one) + ".", "too large"},
      {tensor(zero, four + four, zero + zero) + ".", "not contiguous"},
      {laughs + "h\x3b.", "holds too much"},
      {"}X" + "\0\0\x10\0"s + std::string(1 << 20, 'k') + "]" + tensor(zero, four, one) + "as.",
       "holds too much"},  // a name of 1 MiB
      {deep + std::string(999, 'a') + ".", "nested too deeply"},
      {"]q" + zero.substr(1) + "h" + zero.substr(1) + "a.", "nested too deeply"}};
  for (const auto& [pickle, word] : attacks) {
    const Path path = dir.write("hostile.pt", archive_of(pickle));
    if (std::string_view(word).empty()) {
      EXPECT_NO_THROW(read_all(path));
    } else {
      expect_error(ErrorKind::data, {"hostile.pt", word}, [&] { read_all(path); });
    }
  }
}

TEST(ZipArchive, ArchivesThatLieAreRefused) {
  const test::TempDir dir;
  const auto refused = [&](const ZipFile& zip, const char* word) {
    const Path path = dir.write("hostile.zip", zip.finish());
    expect_error(ErrorKind::data, {"hostile.zip", word}, [&] { ZipArchive::open(path); });
  };
  ZipFile bomb;  // a few bytes that would unpack to many
  bomb.add("a/data.pkl", "xx", 1u << 30, 8);
  refused(bomb, "compressed");
  ZipFile claims;
  claims.add("a/data.pkl", "xx", 1u << 30);
  refused(claims, "outside");
  ZipFile beyond;
  beyond.add("a/data.pkl", "xx", 2);
  beyond.list("a/data/0", 0xfffffff0, 16, 16);
  refused(beyond, "outside");
  ZipFile overlap;  // two entries of the same bytes
  overlap.add("a/data/0", std::string(64, 'x'), 64);
  overlap.list("b", 0, 64, 64);
  refused(overlap, "overlap");
  ZipFile twice;
  twice.add("a/data/0", "x", 1);
  twice.add("a/data/0", "y", 1);
  refused(twice, "twice");
  ZipFile nothing;
  nothing.list("a/data/0", 7, 1, 1);
  refused(nothing, "no header");
}

TEST(Pickle, SurvivesAListThatHoldsItself) {
  const Pickle pickle = parse_pickle(std::string("]q\0h\0a.", 7), "circle");
  EXPECT_EQ(pickle.root->list()->items.at(0), pickle.root);
}

// Whatever byte is wrong, reading ends with values or with an Error that names the file.
TEST(TorchFile, DamageIsAnErrorNeverACrash) {
  std::ifstream in(kTorchFile, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  std::mt19937 random(3);
  const test::TempDir dir;
  int refused = 0;
  for (int i = 0; i < (ZENO_FULL_TESTS ? 3000 : 500); ++i) {
    std::string bytes = good;
    for (int k = 0; k < 1 + i % 3; ++k) bytes[random() % bytes.size()] ^= char(1 << random() % 8);
    if (i % 5 == 0) bytes.resize(random() % bytes.size());
    const Path path = dir.write("damaged.pt", bytes);
    try {
      const TorchFile file = TorchFile::open(path);
      for (const TorchTensor& tensor : file.tensors()) {
        if (is_float(tensor.dtype)) file.read(tensor);
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(int(error.kind()), int(ErrorKind::data)) << error.what();
      EXPECT_NE(std::string(error.what()).find("damaged.pt"), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace zeno::checkpoint
