#include "zeno/generate/generator.h"

#include <algorithm>
#include <chrono>

#include "zeno/base/error.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"

namespace zeno::generate {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::string_view name_of(Finish finish) {
  switch (finish) {
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::context:
      return "context";
    case Finish::caller:
      return "caller";
  }
  return "?";
}

Generator Generator::open(const Path& folder, const DecoderOptions& options) {
  const model::ModelConfig config = model::load_config(folder);
  const model::WeightReader weights(folder, model::parameter_table(model::build_layers(config, 1)));
  const auto values = [&](const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) {
    weights.read(parameter, begin, end, out);
  };
  return Generator(config, values, options);
}

void Generator::check_prompts(const std::vector<std::vector<int32_t>>& prompts) const {
  for (size_t i = 0; i < prompts.size(); ++i) {
    require(!prompts[i].empty(), ErrorKind::usage, "[generate] prompt {}: has no tokens, expected at least 1",
            i + 1);
    require(int64_t(prompts[i].size()) < decoder_.context(), ErrorKind::usage,
            "[generate] prompt {}: has {} tokens, expected less than {}, the context; shorten it", i + 1,
            prompts[i].size(), decoder_.context());
    for (const int32_t token : prompts[i]) {
      require(token >= 0 && token < decoder_.vocab(), ErrorKind::data,
              "[generate] prompt {}: has token {}, expected 0 to {}; the tokenizer is not that of the model",
              i + 1, token, decoder_.vocab() - 1);
    }
  }
}

int32_t Generator::choose_sequence(const std::vector<int32_t>& prompt,
                                   const std::vector<Running>& running) const {
  int32_t best = -1;
  int64_t most = -1;
  for (int32_t s = 0; s < int32_t(kept_.size()); ++s) {
    if (std::ranges::find(running, s, &Running::sequence) != running.end()) continue;
    const auto& kept = kept_[size_t(s)];
    const int64_t same = std::ranges::mismatch(kept, prompt).in1 - kept.begin();
    if (same > most) best = s, most = same;
  }
  return best;
}

Generator::Running Generator::start(size_t number, const std::vector<int32_t>& prompt,
                                    const std::vector<Running>& running, std::span<float>& logits) {
  const auto begin = Clock::now();
  const int32_t sequence = choose_sequence(prompt, running);
  auto& kept = kept_[size_t(sequence)];
  // At least one token is computed: its logits are wanted.
  const size_t same =
      std::min(size_t(std::ranges::mismatch(kept, prompt).in1 - kept.begin()), prompt.size() - 1);
  kept.resize(same);
  logits = decoder_.feed(sequence, int64_t(same), std::span(prompt).subspan(same));
  kept = prompt;
  stats_.prompt_tokens += int64_t(prompt.size() - same);
  stats_.reused_tokens += int64_t(same);
  stats_.prompt_seconds += seconds_since(begin);
  return {number, sequence, prompt};
}

bool Generator::advance(Running& r, std::span<float> logits, const GenerateOptions& options,
                        const OnToken& on_token, Generation& result) {
  if (options.vocab > 0) logits = logits.first(std::min(logits.size(), size_t(options.vocab)));
  const int32_t token = pick_token(logits, r.tokens, options.sampling, r.prompt);
  if (std::ranges::find(options.stops, token) != options.stops.end()) {
    result.finish = Finish::stop;
    return false;
  }
  r.tokens.push_back(token);
  result.tokens.push_back(token);
  ++stats_.new_tokens;
  if (on_token && !on_token(r.prompt, token)) {
    result.finish = Finish::caller;
    return false;
  }
  const bool full = int64_t(r.tokens.size()) >= decoder_.context();
  const bool enough = int64_t(result.tokens.size()) >= options.max_new_tokens;
  if (full || enough) result.finish = enough ? Finish::length : Finish::context;
  return !full && !enough;
}

std::vector<Generation> Generator::generate(const std::vector<std::vector<int32_t>>& prompts,
                                            const GenerateOptions& options, const OnToken& on_token) {
  check_sampling(options.sampling);
  check_prompts(prompts);
  require(options.max_new_tokens >= 1, ErrorKind::usage,
          "[generate] max-new-tokens: got {}, expected at least 1", options.max_new_tokens);
  stats_ = {};
  std::vector<Generation> results(prompts.size());
  std::vector<Running> running;
  size_t next = 0;
  while (next < prompts.size() || !running.empty()) {
    while (next < prompts.size() && running.size() < kept_.size()) {
      std::span<float> logits;
      Running started = start(next, prompts[next], running, logits);
      if (advance(started, logits, options, on_token, results[next])) running.push_back(std::move(started));
      ++next;
    }
    if (running.empty()) continue;
    std::vector<Decoder::Next> inputs;
    for (const Running& r : running) {
      inputs.push_back({r.sequence, int32_t(r.tokens.size() - 1), r.tokens.back()});
      kept_[size_t(r.sequence)].push_back(r.tokens.back());
    }
    const auto begin = Clock::now();
    const std::span<float> logits = decoder_.step(inputs);
    stats_.step_seconds += seconds_since(begin);
    ++stats_.steps;
    stats_.step_tokens += int64_t(running.size());
    std::vector<Running> going_on;
    for (size_t i = 0; i < running.size(); ++i) {
      const size_t vocab = size_t(decoder_.vocab());
      Running& r = running[i];
      if (advance(r, logits.subspan(i * vocab, vocab), options, on_token, results[r.prompt]))
        going_on.push_back(std::move(r));
    }
    running = std::move(going_on);
  }
  return results;
}

}  // namespace zeno::generate
