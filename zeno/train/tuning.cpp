#include "zeno/train/tuning.h"

#include "zeno/base/error.h"
#include "zeno/model/adapter.h"

namespace zeno::train {

model::Tuning tuning_of(const TrainConfig& config) {
  const LoraConfig& lora = config.lora;
  model::Tuning tuning{.lora = {}, .neftune_alpha = config.data.neftune_alpha};
  require(!lora.dora, ErrorKind::usage,
          "[train] --dora: adapters with magnitudes are not part of this version; leave it out");
  if (!lora.adapter.empty()) {
    tuning.lora = model::adapter_options(lora.adapter);
    require(lora.rank == 0 || lora.rank == tuning.lora->rank, ErrorKind::usage,
            "[train] --lora-rank {}: the adapter in {} has rank {}; leave --lora-rank out", lora.rank,
            lora.adapter, tuning.lora->rank);
    if (lora.dropout > 0) tuning.lora->dropout = lora.dropout;
  } else if (lora.rank > 0) {
    tuning.lora = model::LoraOptions{.rank = lora.rank,
                                     .alpha = lora.alpha > 0 ? lora.alpha : 2 * double(lora.rank),
                                     .dropout = lora.dropout,
                                     .rslora = lora.rslora,
                                     .targets = lora.targets};
  }
  return tuning;
}

}  // namespace zeno::train
