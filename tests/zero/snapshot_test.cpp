// The image of a rank's states that a save writes.
#include "zeno/zero/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "tests/support/idle_layer.h"
#include "tests/support/train_run.h"
#include "zeno/zero/engine.h"

namespace zeno::zero {
namespace {

// Masters of two bytes beside moments of four, in a parameter with an odd number of elements: then those of
// four do not begin at multiples of four.
class StreamedSnapshot : public testing::TestWithParam<DType> {
 protected:
  void run(const std::function<void(Engine&)>& body) const {
    EngineOptions options{.shape = {2, 12}, .threads = 1, .snapshot_piece = 1 << 20};
    options.policy.compute = options.policy.states = DType::bf16;
    options.policy.moments = GetParam();
    options.policy.offload.optimizer = Tier::host;
    options.policy.offload.far_host = true;
    options.policy.offload.chunk = 1024;
    options.policy.offload.device_window = 4096;
    comm::run_thread_ranks(1, {}, [&](comm::World& world) {
      nn::LayerList model = test::tiny_decoder(test::Family::llama, {});
      model.layers.insert(model.layers.begin() + 1, std::make_unique<test::IdleLayer>());
      Engine engine(std::move(model), options, world);
      engine.load(test::init_values);
      const test::OwnedBatch batch = test::make_batch(options.shape, 61, 0, 0);
      const MicroBatch view = batch.view();
      engine.step({&view, 1}, {.hyper = {.step = 1}});
      body(engine);
    });
  }
};

TEST_P(StreamedSnapshot, MayBeCutAnywhere) {
  run([](Engine& engine) {
    Snapshot& snapshot = engine.snapshot();
    ASSERT_LT(snapshot.size(), Snapshot::kPart);
    engine.take_snapshot();
    const std::span<const std::byte> all = snapshot.part(0, snapshot.size());
    const std::vector<std::byte> whole(all.begin(), all.end());
    std::vector<std::byte> cut;
    while (cut.size() < whole.size()) {
      const auto part = snapshot.part(cut.size(), std::min(cut.size() + 101, whole.size()));
      cut.insert(cut.end(), part.begin(), part.end());
    }
    snapshot.release();
    EXPECT_TRUE(cut == whole);
  });
}

// One after the other without a step between them: nobody waits for a release that has been.
TEST_P(StreamedSnapshot, MayBeTakenAgainAtOnce) {
  run([](Engine& engine) {
    for (int i = 0; i < 20; ++i) {
      engine.take_snapshot();
      EXPECT_EQ(engine.snapshot().part(0, 8).size(), 8u);
      engine.snapshot().release();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Moments, StreamedSnapshot, testing::Values(DType::f32, DType::u8),
                         [](const auto& test) {
                           return std::string(test.param == DType::u8 ? "cells" : "f32");
                         });

// A checkpoint and a copy for a partner may be written of the same image at the same time.
TEST(Snapshot, SeveralMayReadSplitMastersAtOnce) {
  EngineOptions options{.shape = {2, 12}, .threads = 1, .snapshot_piece = 256};
  options.policy.compute = DType::bf16;
  comm::run_thread_ranks(1, {}, [&](comm::World& world) {
    Engine engine(test::tiny_decoder(test::Family::llama), options, world);
    engine.load(test::init_values);
    Snapshot& snapshot = engine.snapshot();
    const auto image = [&](size_t cut) {
      std::vector<std::byte> bytes;
      while (bytes.size() < snapshot.size()) {
        const auto part = snapshot.part(bytes.size(), std::min(bytes.size() + cut, snapshot.size()));
        bytes.insert(bytes.end(), part.begin(), part.end());
      }
      return bytes;
    };
    engine.take_snapshot();
    const std::vector<std::byte> expected = image(4096);
    for (int turn = 0; turn < 200; ++turn) {
      engine.take_snapshot();
      std::vector<std::byte> other;
      std::thread reader([&] { other = image(1000); });
      const std::vector<std::byte> mine = image(1000);
      reader.join();
      ASSERT_TRUE(mine == expected && other == expected) << turn;
    }
  });
}

// Copied at once, or, with moments in cells, read as they are written.
TEST(Snapshot, HasWholeMastersWhereTheyAreSplit) {
  for (const DType moments : {DType::f32, DType::u8}) {
    EngineOptions options{.mesh = comm::Mesh::flat(2), .shape = {2, 12}, .threads = 1, .snapshot_piece = 256};
    options.policy.compute = DType::bf16;
    options.policy.moments = moments;
    apply_stage(options.policy, 3);
    comm::run_thread_ranks(2, {}, [&](comm::World& world) {
      Engine engine(test::tiny_decoder(test::Family::llama), options, world);
      engine.load(test::init_values);
      const test::OwnedBatch batch = test::make_batch(options.shape, 61, 0, world.rank());
      const MicroBatch view = batch.view();
      engine.step({&view, 1}, {.hyper = {.step = 1}});
      Snapshot& snapshot = engine.snapshot();
      engine.take_snapshot();
      std::vector<float> image(snapshot.size() / sizeof(float));
      for (size_t at = 0; at < snapshot.size(); at += 1001) {
        const auto part = snapshot.part(at, std::min(at + 1001, snapshot.size()));
        std::memcpy(reinterpret_cast<std::byte*>(image.data()) + at, part.data(), part.size());
      }
      snapshot.release();
      std::map<int, std::vector<float>> masters;
      for (int p = 0; p < int(engine.units().params.size()); ++p) {
        masters[p].resize(size_t(engine.units().params[size_t(p)].count()));
        engine.read(State::master, p, 0, masters[p]);
      }
      int64_t at = 0, seen = 0;
      for (const Snapshot::Piece& piece : snapshot.pieces()) {
        const std::span<const float> saved(&image[size_t(at)], size_t(piece.count));
        at += piece.count;
        if (piece.state != State::master) continue;
        seen += piece.count;
        const std::span<const float> live(&masters[piece.param][size_t(piece.begin)], saved.size());
        EXPECT_TRUE(std::ranges::equal(saved, live)) << engine.units().params[size_t(piece.param)].name;
      }
      EXPECT_GT(seen, 0);
    });
  }
}

}  // namespace
}  // namespace zeno::zero
