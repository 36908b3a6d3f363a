// `--recompute auto`: the least recomputation with which a rank fits its memory.
#pragma once

#include "zeno/zero/engine.h"

namespace zeno::plan {

// Sets the recompute fields of `options.policy`: none if it fits; else selective (element-wise results only)
// for as few blocks as it takes; else full for as few as it takes, the others selective. When nothing fits,
// the setting that needs least; require_fit() then says what else to change.
void choose_recompute(const nn::LayerList& model, zero::EngineOptions& options, size_t limit);

std::string_view name_of(nn::Recompute mode);  // "none", "selective", "full"

// "recompute: full for 5 of 32 blocks, selective for the others".
std::string describe_recompute(const nn::LayerList& model, const zero::Policy& policy);

}  // namespace zeno::plan
