// A model as generation runs it: weights on one device, the keys and values of the sequences under way, and
// one forward pass for new tokens. Every byte is booked in a ledger before it is allocated; nothing is
// allocated afterwards.
//
// Owns all memory and one stream. Calls block. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "zeno/device/buffer.h"
#include "zeno/device/ledger.h"
#include "zeno/device/stream.h"
#include "zeno/model/config.h"
#include "zeno/model/export.h"
#include "zeno/nn/layer.h"

namespace zeno::generate {

struct DecoderOptions {
  Device device;
  std::optional<DType> dtype;  // of weights and activations; default: as in the folder
  int64_t sequences = 1;       // that can be generated at the same time
  int64_t context = 0;         // tokens each of them can have; 0: all that the model takes
  int threads = 0;             // CPU: 0: all cores of this process
};

class Decoder {
 public:
  // Error(memory) with the numbers if it does not fit.
  Decoder(const model::ModelConfig& config, const model::ParameterValues& values,
          const DecoderOptions& options);
  ~Decoder();

  int64_t vocab() const { return model_.vocab; }
  int64_t context() const { return cache_.capacity; }
  int64_t sequences() const { return cache_.sequences; }
  DType dtype() const { return dtype_; }
  size_t weight_bytes() const { return weights_.bytes(); }
  const Ledger& ledger() const { return *ledger_; }

  // Feeds `tokens` to a sequence, from `position` on: what it had from there on is discarded. Returns the
  // logits after the last of them [V], to be read (or changed) until the next call.
  std::span<float> feed(int32_t sequence, int64_t position, std::span<const int32_t> tokens);

  struct Next {
    int32_t sequence, position, token;
  };
  // One token for each of several different sequences; logits [n][V].
  std::span<float> step(std::span<const Next> next);

 private:
  nn::BatchShape shape(int64_t batch, int64_t seq) const;
  void book(const std::vector<nn::Parameter>& table, const DecoderOptions& options);
  void require_fit(const DecoderOptions& options) const;
  void allocate(const std::vector<nn::Parameter>& table);
  void load(const nn::Parameter& parameter, const model::ParameterValues& values, Workers& workers);
  void put_inputs(std::span<const int32_t> tokens, std::span<const int32_t> positions,
                  std::span<const int32_t> sequences);
  // All layers over rows given to put_inputs(); the result is the last of the two activations it swaps.
  Tensor run(int64_t batch, int64_t seq);
  std::span<float> logits_of(Tensor rows);

  DType dtype_;
  Device device_;
  int threads_ = 1;
  int64_t rows_ = 0;  // most rows of one pass
  nn::CacheShape cache_;
  nn::LayerList model_;
  size_t workspace_bytes_ = 0, cache_bytes_ = 0;
  std::unique_ptr<Ledger> ledger_;  // buffers point to it
  Buffer weights_, caches_, activations_, workspace_, inputs_, logits_, scratch_, staging_;
  std::map<std::string, Tensor> parameters_;           // by name
  std::vector<std::vector<Tensor>> layer_parameters_;  // the last entry: of the loss
  std::vector<Tensor> layer_caches_;
  std::optional<Stream> stream_;
};

}  // namespace zeno::generate
