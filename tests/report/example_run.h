// Made-up runs for the report page: what a real one provides, in sizes and shapes that a page must survive.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>

#include "zeno/report/page/report_data.h"

namespace zeno::test {

// A noise in [-1, 1] that is the same everywhere.
inline double noise(int64_t i) {
  uint64_t bits = uint64_t(i + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  return double(bits >> 11) / double(uint64_t(1) << 52) - 1;
}

// Step `i` of `steps`.
inline report::ReportStep example_step(int64_t i, int64_t steps) {
  const double t = double(i) / double(steps);
  return {.step = i,
          .loss = 0.8 + 4 * std::exp(-5 * t) + 0.25 * noise(i) * std::exp(-t),
          .grad_norm = 0.4 + 2 * std::exp(-4 * t) + 0.2 * std::fabs(noise(7 * i)),
          .lr = 3e-4 * (t < 0.1 ? 10 * t : 0.5 * (1 + std::cos(3.14159 * (t - 0.1) / 0.9))),
          .tokens_per_s = 18000 + 900 * noise(3 * i) - (i % 50 == 0 ? 6000 : 0),
          .step_ms = 228 + 12 * noise(3 * i),
          .exposed_ms = 21 + 4 * noise(5 * i)};
}

inline void add_steps(report::ReportData& data, int64_t steps) {
  for (int64_t i = 1; i <= steps; ++i) data.steps.add(example_step(i, steps));
}

inline void add_evals(report::ReportData& data, int64_t steps, int64_t every) {
  for (int64_t i = 0; i <= steps; i += every) {
    const double t = double(i) / double(steps), loss = 0.95 + 3.8 * std::exp(-5 * t);
    data.evals.push_back({.step = i,
                          .loss = loss,
                          .perplexity = std::exp(loss),
                          .token_accuracy = 0.83 - 0.7 * std::exp(-4 * t)});
  }
}

inline void add_memory(report::ReportData& data, int ranks) {
  constexpr uint64_t kMiB = 1 << 20;
  const uint64_t planned[kPurposes] = {86, 43, 172, 344, 190, 64, 410, 130, 96, 24, 3, 0};
  for (int r = 0; r < ranks; ++r) {
    report::RankMemory memory;
    for (size_t p = 0; p < size_t(kPurposes); ++p) {
      const uint64_t bytes = planned[p] * kMiB + uint64_t(r % 5) * (p == 6 ? 6 * kMiB : 0);
      auto& cell = memory.by_purpose[size_t(Tier::device)][p];
      cell = {bytes, p == size_t(Purpose::activations) ? bytes - bytes / 9 : bytes};
      memory.total[size_t(Tier::device)].planned += cell.planned;
      memory.total[size_t(Tier::device)].peak += cell.peak;
    }
    data.memory.push_back(memory);
  }
  data.memory_limit = 2048 * kMiB;
}

// Twelve layers under stage 3: gathers run ahead, the first one and some reductions do not hide.
inline void add_timeline(report::ReportData& data) {
  report::Timeline& timeline = data.timeline;
  timeline.step = data.steps.count();
  timeline.lanes = {"compute", "gather", "reduce"};
  double compute = 0, gather = 0, reduce = 0;
  std::vector<report::TimelineSpan> gathers, reduces;
  const auto layer = [&](const char* op, int i, double ms) {
    const std::string unit = fmt::format("blocks.{}", i);
    gathers.push_back({"gather", "gather " + unit, gather, gather + 4.5 + noise(i)});
    gather = gathers.back().end_ms;
    if (gather > compute) {
      timeline.waits.push_back({"compute", "waits for gather " + unit, compute, gather});
      compute = gather;
    }
    timeline.spans.push_back({"compute", fmt::format("{} {} mb0", op, unit), compute, compute + ms});
    compute += ms;
    if (std::string(op) != "backward") return;
    reduce = std::max(reduce, compute);
    reduces.push_back({"reduce", "reduce " + unit, reduce, reduce + 7});
    reduce += 7;
  };
  for (int i = 0; i < 12; ++i) layer("forward", i, 5 + 0.5 * noise(11 * i));
  for (int i = 11; i >= 0; --i) {
    layer("recompute", i, 4.6);
    layer("backward", i, 9.5 + noise(13 * i));
  }
  timeline.waits.push_back({"compute", "waits for reduce blocks.0", compute, reduce});
  timeline.spans.push_back({"compute", "update blocks.0", reduce, reduce + 6});
  timeline.duration_ms = reduce + 6;
  for (auto* more : {&gathers, &reduces}) {
    timeline.spans.insert(timeline.spans.end(), more->begin(), more->end());
  }
}

inline report::ReportData example_run(int64_t steps, int ranks) {
  report::ReportData data{
      .title = "llama-160m on questions.jsonl",
      .command =
          "zeno train --model models/llama-160m --data questions.jsonl --stage 3 --ranks 4 "
          "--epochs 3 --lr 3e-4 --out runs/answers",
      .model = "LlamaForCausalLM, 162 417 408 parameters, 12 layers",
      .machine = "4 ranks on CPU, ZeRO stage 3, bf16",
      .made = "2025-11-15 15:04"};
  data.settings = {{"optimizer.params.lr", "0.0003", "--lr"},
                   {"zero_optimization.stage", "3", "ds.json:12"},
                   {"seed", "1234", "default"}};
  add_steps(data, steps);
  if (steps >= 10) add_evals(data, steps, steps / 10);
  add_memory(data, ranks);
  add_timeline(data);
  data.events = {{steps / 2, report::ReportEvent::Kind::checkpoint, "saved to runs/answers/step_200"},
                 {steps * 3 / 5, report::ReportEvent::Kind::spike, "loss 3.1 is 8 deviations above its mean"},
                 {steps, report::ReportEvent::Kind::checkpoint, "best eval loss 0.976"}};
  data.advice =
      "Computation bounds the step: 91 % of it. 1.2 GiB of 8 GiB are in use: a larger micro-batch, "
      "--micro-batch 2 "
      "(more work per pass), may compute faster.";
  data.result = {.status = "finished",
                 .weights_hash = "9f2c4be1a07d3355",
                 .out_folder = "runs/answers",
                 .duration_s = 91,
                 .tokens = steps * 4096};
  return data;
}

}  // namespace zeno::test
