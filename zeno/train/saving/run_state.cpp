#include "zeno/train/saving/run_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/json_limits.h"
#include "zeno/base/utf8.h"

namespace zeno::train {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const LoopState& loop) {
  ordered_json json = {{"steps", loop.steps},
                       {"skipped", loop.skipped},
                       {"tokens", loop.tokens},
                       {"inputs", loop.inputs},
                       {"loss", std::isfinite(loop.loss) ? loop.loss : 0},
                       {"seconds", loop.seconds},
                       {"wait_s", loop.wait_s},
                       {"recent_losses", loop.watch.recent},
                       {"bad_in_a_row", loop.watch.bad}};
  if (loop.scale) {
    json["loss_scale"] = {{"scale", loop.scale->scale},
                          {"hysteresis_left", loop.scale->hysteresis_left},
                          {"iteration", loop.scale->iteration},
                          {"last_overflow", loop.scale->last_overflow}};
  }
  return json;
}

LoopState loop_of(const ordered_json& json) {
  LoopState loop;
  loop.steps = json.at("steps");
  loop.skipped = json.at("skipped");
  loop.tokens = json.at("tokens");
  loop.inputs = json.at("inputs");
  loop.loss = json.at("loss");
  loop.seconds = json.at("seconds");
  loop.wait_s = json.at("wait_s");
  loop.watch.recent = json.at("recent_losses").get<std::deque<double>>();
  loop.watch.bad = json.at("bad_in_a_row");
  if (json.contains("loss_scale")) {
    const ordered_json& scale = json.at("loss_scale");
    loop.scale = {scale.at("scale"), scale.at("hysteresis_left"), scale.at("iteration"),
                  scale.at("last_overflow")};
  }
  return loop;
}

ordered_json json_of(const EarlyStopping::State& stopping) {
  ordered_json json = {{"reference", stopping.reference}, {"waited", stopping.waited}};
  if (stopping.best) {
    json["best"] = {
        {"step", stopping.best->step}, {"loss", stopping.best->loss}, {"accuracy", stopping.best->accuracy}};
  }
  return json;
}

EarlyStopping::State stopping_of(const ordered_json& json) {
  EarlyStopping::State state{{}, json.at("reference"), json.at("waited")};
  if (json.contains("best")) {
    const ordered_json& best = json.at("best");
    state.best = report::Evaluation{best.at("step"), best.at("loss"), best.at("accuracy")};
  }
  return state;
}

}  // namespace

std::string to_json(const RunState& state) {
  return ordered_json{{"loop", json_of(state.loop)},
                      {"stopping", json_of(state.stopping)},
                      {"evaluated", state.evaluated},
                      {"saved_step", state.saved_step},
                      {"train_batch", state.train_batch},
                      {"micro_batch", state.micro_batch},
                      {"seq_len", state.seq_len},
                      {"seed", state.seed},
                      {"sequences", state.sequences},
                      {"model", state.model},
                      {"adapter", state.adapter},
                      {"nf4", state.nf4},
                      {"optimizer", state.optimizer},
                      {"stage", state.stage},
                      {"order", state.order}}
      .dump();
}

RunState parse_run_state(std::string_view json, std::string_view where) {
  check_json_limits(json, fmt::format("[{}] state of the run", where));
  try {
    const ordered_json root = ordered_json::parse(json);
    RunState state;
    state.loop = loop_of(root.at("loop"));
    state.stopping = stopping_of(root.at("stopping"));
    state.evaluated = root.at("evaluated");
    state.saved_step = root.at("saved_step");
    state.train_batch = root.at("train_batch");
    state.micro_batch = root.at("micro_batch");
    state.seq_len = root.at("seq_len");
    state.seed = root.at("seed");
    state.sequences = root.at("sequences");
    state.model = root.at("model");
    state.adapter = root.at("adapter");
    state.nf4 = root.at("nf4");
    state.optimizer = root.value("optimizer", "");
    state.stage = root.value("stage", -1);
    state.order = root.value("order", "");
    return state;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::data, "[{}] state of the run: {}", where, shortened(error.what(), 200));
  }
}

void require_same_run(const RunState& saved, const RunState& now, std::string_view where) {
  struct Value {
    std::string_view name;
    int64_t then, now;
  };
  for (const Value& value :
       {Value{"train_batch_size", saved.train_batch, now.train_batch},
        Value{"--seq-len", saved.seq_len, now.seq_len}, Value{"--seed", saved.seed, now.seed},
        Value{"number of sequences in the data", saved.sequences, now.sequences}}) {
    require(value.then == value.now, ErrorKind::usage,
            "[resume] {}: {} is {} now, expected {} as in the saved run; use the same value and the same "
            "data, or start from the beginning in another --out",
            where, value.name, value.now, value.then);
  }
  require(saved.optimizer.empty() || saved.optimizer == now.optimizer, ErrorKind::usage,
          "[resume] {}: the optimizer is {} now, expected {} as in the saved run, whose moments have another "
          "meaning; use the same, or start from the beginning in another --out",
          where, now.optimizer, saved.optimizer);
  require(saved.adapter == now.adapter && saved.nf4 == now.nf4, ErrorKind::usage,
          "[resume] {}: what is trained (whole model, adapters and their settings) differs from the saved "
          "run; use the same flags, or start from the beginning in another --out",
          where);
}

}  // namespace zeno::train
