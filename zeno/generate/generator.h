// Text generation over token ids: prompts in, tokens out as they are chosen. Several prompts run side by
// side, so that weights are read once for all of them; a prompt that continues what a sequence has computed
// before (the next turn of a chat) is computed from there on.
//
// Owns its Decoder. Calls block. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/generate/decoder.h"
#include "zeno/generate/sampler.h"

namespace zeno::generate {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 256;
  std::vector<int32_t> stops;  // tokens that end a sequence; they are not part of it
  // Tokens from this one on are never chosen: many models have more rows than their tokenizer has tokens. 0:
  // all may be.
  int64_t vocab = 0;
};

// Why a sequence ended.
enum class Finish { stop, length, context, caller };
std::string_view name_of(Finish finish);

struct Generation {
  std::vector<int32_t> tokens;  // without the prompt
  Finish finish = Finish::length;
};

// Called for each new token with the number of its prompt; false ends that sequence after this token.
using OnToken = std::function<bool(size_t prompt, int32_t token)>;

struct GenerateStats {
  int64_t prompt_tokens = 0, reused_tokens = 0, new_tokens = 0;
  int64_t steps = 0, step_tokens = 0;  // passes with one token per sequence, and tokens in them
  double prompt_seconds = 0, step_seconds = 0;
};

class Generator {
 public:
  Generator(const model::ModelConfig& config, const model::ParameterValues& values,
            const DecoderOptions& options)
      : decoder_(config, values, options), kept_(size_t(decoder_.sequences())) {}
  // Reads the folder's config.json and weights.
  static Generator open(const Path& folder, const DecoderOptions& options);

  // In the order of the prompts. Error(usage) for a prompt that is empty or leaves no room in the context.
  std::vector<Generation> generate(const std::vector<std::vector<int32_t>>& prompts,
                                   const GenerateOptions& options, const OnToken& on_token = {});

  const Decoder& decoder() const { return decoder_; }
  const GenerateStats& stats() const { return stats_; }  // of the last call

 private:
  struct Running {
    size_t prompt;                // its number
    int32_t sequence;             // of the decoder
    std::vector<int32_t> tokens;  // prompt and the tokens after it
  };

  void check_prompts(const std::vector<std::vector<int32_t>>& prompts) const;
  // The free sequence that already holds the most of the prompt.
  int32_t choose_sequence(const std::vector<int32_t>& prompt, const std::vector<Running>& running) const;
  Running start(size_t number, const std::vector<int32_t>& prompt, const std::vector<Running>& running,
                std::span<float>& logits);
  // Takes the next token; true if the sequence continues.
  bool advance(Running& r, std::span<float> logits, const GenerateOptions& options, const OnToken& on_token,
               Generation& result);

  Decoder decoder_;
  std::vector<std::vector<int32_t>> kept_;  // tokens whose keys and values each sequence holds
  GenerateStats stats_;
};

}  // namespace zeno::generate
