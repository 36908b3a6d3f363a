#include "zeno/device/memory.h"

namespace zeno {

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::disk:
      return "disk";
  }
  return "?";
}

std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::parameters:
      return "parameters";
    case Purpose::gradients:
      return "gradients";
    case Purpose::masters:
      return "masters";
    case Purpose::moments:
      return "moments";
    case Purpose::gathered:
      return "gathered";
    case Purpose::buckets:
      return "buckets";
    case Purpose::activations:
      return "activations";
    case Purpose::logits:
      return "logits";
    case Purpose::workspace:
      return "workspace";
    case Purpose::staging:
      return "staging";
    case Purpose::inputs:
      return "inputs";
    case Purpose::libraries:
      return "libraries";
  }
  return "?";
}

}  // namespace zeno
