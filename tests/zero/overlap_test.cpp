// Lanes that drift apart and ranks that fail: nothing races, nobody hangs.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "tests/support/train_run.h"
#include "zeno/zero/engine.h"

namespace zeno::zero {
namespace {

using test::Family;

// Computation that takes its time on one rank, in turn forward and backward: a missing wait would change the
// bits.
class SlowLayer final : public test::WrappedLayer {
 public:
  SlowLayer(std::unique_ptr<nn::Layer> inner, int rank, int which)
      : WrappedLayer(std::move(inner)), rank_(rank), which_(which) {}
  void forward(const nn::ForwardArgs& args, nn::Recompute recompute) const override {
    pause(args.stream, 0);
    WrappedLayer::forward(args, recompute);
    pause(args.stream, 1);
  }
  void backward(const nn::BackwardArgs& args, nn::Recompute recompute) const override {
    pause(args.stream, 2);
    WrappedLayer::backward(args, recompute);
    pause(args.stream, 3);
  }

 private:
  void pause(StreamRef stream, int where) const {
    if (where != which_ % 4 || rank_ != which_ / 4) return;
    stream.launch([](Workers&) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
  }
  int rank_, which_;
};

TEST(Overlap, DelaysChangeNothing) {
  const auto hash_with = [&](int which) {
    uint64_t hash = 0;
    comm::run_thread_ranks(2, {}, [&](comm::World& world) {
      EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
      apply_stage(options.policy, 3);
      options.policy.prefetch = 8000;
      options.policy.reduce_bucket = 6000;
      nn::LayerList model = test::tiny_decoder(Family::gpt2);
      for (auto& layer : model.layers)
        layer = std::make_unique<SlowLayer>(std::move(layer), world.rank(), which);
      Engine engine(std::move(model), options, world);
      engine.load(test::init_values);
      for (int step = 1; step <= 3; ++step) {
        const test::OwnedBatch batch = test::make_batch(options.shape, 61, step, world.rank());
        const MicroBatch view = batch.view();
        engine.step({&view, 1}, {.hyper = {.lr = 1e-2f, .step = step}, .clip = 1});
      }
      const uint64_t mine = engine.weights_hash();
      if (world.rank() == 0) hash = mine;
    });
    return hash;
  };
  const uint64_t reference = hash_with(99);  // nobody sleeps
  for (int which = 0; which < 8; ++which) EXPECT_EQ(hash_with(which), reference) << which;
}

// An exception on one rank ends the others, naming it; nobody hangs.
TEST(Faults, ARankThatThrowsEndsAll) {
  std::mutex mutex;
  std::vector<std::string> messages(3);
  EXPECT_THROW(
      comm::run_thread_ranks(
          3, {.deadline = std::chrono::seconds(10)},
          [&](comm::World& world) {
            EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
            apply_stage(options.policy, 3);
            Engine engine(test::tiny_decoder(Family::llama), options, world);
            engine.load(test::init_values);
            const test::OwnedBatch batch = test::make_batch(options.shape, 61, 0, world.rank());
            const MicroBatch view = batch.view();
            engine.step({&view, 1}, {.hyper = {.step = 1}});
            if (world.rank() == 1) fail(ErrorKind::data, "rank one has had enough");
            try {
              engine.step({&view, 1}, {.hyper = {.step = 2}});
            } catch (const Error& error) {
              const std::scoped_lock lock(mutex);
              messages[size_t(world.rank())] = error.what();
              EXPECT_EQ(error.kind(), ErrorKind::peer);
              throw;
            }
          }),
      Error);
  for (int rank : {0, 2})
    EXPECT_NE(messages[size_t(rank)].find("rank 1"), std::string::npos) << messages[size_t(rank)];
}

TEST(Faults, DifferentProgramsAreFoundAtTheStart) {
  try {
    comm::run_thread_ranks(2, {.deadline = std::chrono::seconds(10)}, [&](comm::World& world) {
      EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
      apply_stage(options.policy, world.rank() == 0 ? 2 : 3);
      Engine engine(test::tiny_decoder(Family::llama), options, world);
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer);
    EXPECT_NE(std::string(error.what()).find("step programs of ranks"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace zeno::zero
