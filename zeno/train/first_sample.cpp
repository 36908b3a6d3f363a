#include "zeno/train/first_sample.h"

#include <unistd.h>

#include <cstdio>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/data/preview/preview_text.h"

namespace zeno::train {
namespace {

constexpr data::PreviewStyle kStyle{.colour = true, .max_chars = 1500};

}  // namespace

void show_first_sample(const config::TrainConfig& config, const RunData& data, int64_t seq_len) try {
  if (::isatty(STDERR_FILENO) == 0 || is_generated(config)) return;
  std::optional<data::Tokenizer> tokenizer;
  if (data::Tokenizer::exists(config.run.model)) tokenizer = data::Tokenizer::open(config.run.model);
  data::PackOptions pack = training_pack(config, seq_len);
  // Which samples share a sequence does not matter here, and would take time to compute.
  const bool windows = data.train_report().packing == data::Packing::wrapped;
  pack.packing = windows ? data::Packing::wrapped : data::Packing::none;
  const data::SampleList list(data.source(), pack);
  data::preview_samples(list, tokenizer, 1, [](const data::PreviewSample& sample) {
    std::string text = data::sample_text(sample, kStyle);
    while (text.ends_with('\n')) text.pop_back();
    log_info("first sample ({}; zeno data shows more):\n{}", data::style_note(kStyle), text);
  });
} catch (const Error& error) {
  log_warning("[data] the first sample cannot be shown: {}", error.what());
}

}  // namespace zeno::train
