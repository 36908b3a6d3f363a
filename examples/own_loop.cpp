// A loop of one's own around a run: a new model learns generated text on two ranks under ZeRO stage 2, is
// evaluated whenever the loss of training has fallen by a tenth, keeps the model of each, and stops when it
// is good enough. train::Trainer has done everything else: data, schedule, sharding, metrics and the report.
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "zeno/zeno.h"

using namespace zeno;

constexpr double kGoodEnough = 3.5;  // loss on the samples held out

void make_model(const Path& folder) {
  const model::InitOptions options{.hidden = 64, .layers = 2, .vocab = 300};
  model::init_folder(options, {data::byte_tokenizer_json(options.vocab), ""}, folder);
}

// Keys of a DeepSpeed config, and Zeno's own under "zeno": docs/config.md has all of them.
config::ParsedConfig make_config(const Path& folder) {
  const char* text = R"({
    train_micro_batch_size_per_gpu: 4,
    optimizer: {type: "AdamW", params: {lr: 3e-3}},
    zero_optimization: {stage: 2},
    zeno: {data: ["generated"], eval_split: 16, seq_len: 64, steps: 400, ranks: 2, device: "cpu"},
    steps_per_print: 1000,
  })";
  const std::vector<config::FlagOverride> paths{{"zeno.model", folder / "model", "model"},
                                                {"zeno.out", folder / "tuned", "out"},
                                                {"zeno.cache", folder / "cache", "cache"}};
  return config::parse_config({config::parse_relaxed_json(text, "own_loop"), "own_loop"}, paths);
}

// Every rank runs this, and all see the same losses: what one does, all do.
void loop(train::Trainer& trainer) {
  double goal = INFINITY;
  while (!trainer.done()) {
    trainer.step();
    if (trainer.result().loss > goal) continue;
    goal = trainer.result().loss * 0.9;
    const auto held_out = trainer.evaluate();
    if (!held_out) return;  // Ctrl-C
    trainer.save_model(Path(trainer.config().config.run.out) / fmt::format("loss-{:.1f}", held_out->loss));
    if (held_out->loss < kGoodEnough) return;
  }
}

int main(int argc, char** argv) {
  if (argc != 2 || std::filesystem::exists(argv[1])) {
    std::fprintf(stderr, "usage: own_loop NEW_FOLDER\n");
    return 2;
  }
  try {
    make_model(Path(argv[1]) / "model");
    const report::RunSummary result = train::train(make_config(argv[1]), loop);
    std::printf("%lld steps, the model is in %s\n", static_cast<long long>(result.steps), result.out.c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
