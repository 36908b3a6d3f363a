// The purpose of memory and its tier: the vocabulary of the ledger, the planner and every report.
#pragma once

#include <array>
#include <string_view>

namespace zeno {

enum class Tier { device, host, disk };
inline constexpr std::array kTiers{Tier::device, Tier::host, Tier::disk};

// Purpose of a byte. Every allocation carries one.
enum class Purpose {
  parameters,   // compute-precision weights, replicated or sharded
  gradients,    // gradients that live from backward to the optimizer
  masters,      // fp32 weights
  moments,      // optimizer state
  gathered,     // units assembled for use and released after it
  buckets,      // gradients on their way into a reduction
  activations,  // outputs and saved tensors of layers
  logits,       // the chunk of logits alive in the loss
  workspace,    // scratch of kernels
  staging,      // copies between ranks or tiers
  inputs,       // tokens, targets, positions
  libraries,    // what the driver and its libraries keep: context, kernels, handles
};
inline constexpr int kPurposes = int(Purpose::libraries) + 1;

std::string_view name_of(Tier tier);
std::string_view name_of(Purpose purpose);

}  // namespace zeno
