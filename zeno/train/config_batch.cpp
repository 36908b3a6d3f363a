// The batch trio: train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × ranks.
#include "zeno/base/error.h"
#include "zeno/train/config_resolve.h"

namespace zeno::train {
namespace {

using Kind = ValueOrigin::Kind;
constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccum = "gradient_accumulation_steps";

Kind kind_of(const ParsedConfig& parsed, const char* key) {
  const auto found = parsed.origins.find(key);
  return found == parsed.origins.end() ? Kind::by_default : found->second.kind;
}

// A flag wins over the file: when all three are given and do not fit, one value of the file makes room.
void drop_overridden(ParsedConfig& parsed, int64_t world) {
  BatchConfig& b = parsed.config.batch;
  const bool all = b.train_batch > 0 && b.micro_batch > 0 && b.grad_accum > 0;
  if (!all || b.train_batch == b.micro_batch * b.grad_accum * world) return;
  const bool some_flag = kind_of(parsed, kTrain) == Kind::flag || kind_of(parsed, kMicro) == Kind::flag ||
                         kind_of(parsed, kAccum) == Kind::flag;
  if (!some_flag) return;
  struct Value {
    const char* key;
    int64_t* field;
  };
  for (const Value& value :
       {Value{kTrain, &b.train_batch}, Value{kAccum, &b.grad_accum}, Value{kMicro, &b.micro_batch}}) {
    if (kind_of(parsed, value.key) != Kind::file) continue;
    parsed.warnings.push_back(
        fmt::format("{}: {}: overridden by the flags", parsed.origins.at(value.key).text, value.key));
    *value.field = 0;
    parsed.origins.erase(value.key);
    return;
  }
}

}  // namespace

bool batch_can_be_resolved(const ParsedConfig& parsed) {
  const BatchConfig& b = parsed.config.batch;
  return b.train_batch > 0 || b.micro_batch > 0 || !parsed.from_file || parsed.is_auto(kMicro) ||
         parsed.is_auto(kTrain);
}

void resolve_batch(TrainConfig& config, int64_t world) {
  constexpr auto kUsage = ErrorKind::usage;
  ensure(world > 0, "[batch] world size: got {}, expected > 0", world);
  BatchConfig& b = config.batch;
  require(b.train_batch >= 0 && b.micro_batch >= 0 && b.grad_accum >= 0, kUsage,
          "[batch] got train {}, micro {}, accumulation {}, expected positive numbers", b.train_batch,
          b.micro_batch, b.grad_accum);
  require(b.train_batch > 0 || b.micro_batch > 0, kUsage,
          "[batch] neither train_batch_size nor train_micro_batch_size_per_gpu is given; add one, or "
          "--micro-batch N");
  const BatchConfig given = b;
  if (b.train_batch == 0 || b.micro_batch == 0) {
    if (b.grad_accum == 0) b.grad_accum = 1;
  } else if (b.grad_accum == 0) {
    b.grad_accum = b.train_batch / b.micro_batch / world;
  }
  if (b.micro_batch == 0) b.micro_batch = b.train_batch / world / b.grad_accum;
  if (b.train_batch == 0) b.train_batch = b.micro_batch * b.grad_accum * world;
  const bool fits =
      b.micro_batch > 0 && b.grad_accum > 0 && b.train_batch == b.micro_batch * b.grad_accum * world;
  const auto shown = [](int64_t value) { return value == 0 ? std::string("?") : std::to_string(value); };
  require(fits, kUsage,
          "[batch] got train_batch_size {}, expected train_micro_batch_size_per_gpu {} × "
          "gradient_accumulation_steps {} "
          "× {} ranks; change one of them",
          shown(given.train_batch), shown(given.micro_batch), shown(given.grad_accum), world);
}

void resolve_batch(ParsedConfig& parsed, int64_t world) {
  BatchConfig& b = parsed.config.batch;
  drop_overridden(parsed, world);
  if (b.train_batch == 0 && b.micro_batch == 0 && batch_can_be_resolved(parsed)) {
    b.micro_batch = 1;
    if (parsed.from_file) {
      parsed.warnings.push_back(fmt::format("{}: \"auto\" is read as 1; choose with --micro-batch", kMicro));
    }
  }
  const BatchConfig before = b;
  try {
    resolve_batch(parsed.config, world);
  } catch (const Error& error) {
    std::string places;
    for (const char* key : {kTrain, kMicro, kAccum}) {
      if (parsed.given(key))
        places += fmt::format("{}{}", places.empty() ? " (" : ", ", parsed.origins.at(key).text);
    }
    fail(error.kind(), "{}{}", error.what(), places.empty() ? "" : places + ")");
  }
  if (before.train_batch == 0) parsed.derive(kTrain, "micro × accumulation × ranks");
  if (before.micro_batch == 0) parsed.derive(kMicro, "train / (accumulation × ranks)");
  if (before.grad_accum == 0) parsed.derive(kAccum, "train / (micro × ranks)");
}

}  // namespace zeno::train
