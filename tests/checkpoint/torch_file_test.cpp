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

const Path kGolden = Path(ZENO_SOURCE_DIR) / "tests/golden/torch_file.pt";

TEST(TorchFile, ReadsWhatTorchWrote) {
  const TorchFile file = TorchFile::open(kGolden);
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

TEST(Pickle, SurvivesAListThatHoldsItself) {
  const Pickle pickle = parse_pickle(std::string("]q\0h\0a.", 7), "circle");
  EXPECT_EQ(pickle.root->list()->items.at(0), pickle.root);
}

// Whatever byte is wrong, reading ends with values or with an Error that names the file.
TEST(TorchFile, DamageIsAnErrorNeverACrash) {
  std::ifstream in(kGolden, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  std::mt19937 random(3);
  const test::TempDir dir;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
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
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace zeno::checkpoint
