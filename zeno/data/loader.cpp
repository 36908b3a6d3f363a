#include "zeno/data/loader.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "zeno/base/error.h"
#include "zeno/base/log.h"

namespace zeno::data {
namespace {

const LoaderOptions& checked(const LoaderOptions& options) {
  require(options.seq_len >= 1 && options.micro_batch >= 1 && options.grad_accum >= 1, ErrorKind::usage,
          "[loader] got sequence length {}, micro-batch {}, accumulation {}, expected at least 1 each",
          options.seq_len, options.micro_batch, options.grad_accum);
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();  // rows of a batch are counted in 32 bits
  require(
      options.seq_len <= kMax / options.micro_batch && options.grad_accum <= kMax, ErrorKind::usage,
      "[loader] got {} sequences of {} tokens, {} times a step, expected at most {} tokens in a micro-batch",
      options.micro_batch, options.seq_len, options.grad_accum, kMax);
  ensure(options.world >= 1 && options.rank >= 0 && options.rank < options.world,
         "[loader] got rank {} of {}", options.rank, options.world);
  return options;
}

// The last token of a window needs its target: a token after the window.
int64_t count_sequences(const TokenSource& source, int64_t seq_len) {
  const int64_t sequences = std::max<int64_t>(0, source.tokens() - 1) / seq_len;
  require(sequences >= 1, ErrorKind::data,
          "[loader] too little data: got {} tokens, expected at least {} for one sequence of {}; add data or "
          "shorten "
          "--seq-len",
          source.tokens(), seq_len + 1, seq_len);
  return sequences;
}

}  // namespace

Loader::Loader(const TokenSource& source, const LoaderOptions& options)
    : source_(source),
      options_(checked(options)),
      sequences_(count_sequences(source, options.seq_len)),
      per_step_(options.micro_batch * options.grad_accum * options.world),
      sampler_(sequences_, per_step_, options.seed, options.shuffle) {
  if (sequences_ < per_step_ && options_.rank == 0) {
    log_warning(
        "[loader] the data has {} sequences of {} tokens and a step takes {}: sequences repeat within a "
        "step; add "
        "data ({} tokens for one step) or make the global batch smaller",
        sequences_, options_.seq_len, per_step_, per_step_ * options_.seq_len + 1);
  }
}

std::vector<HostBatch> Loader::step(int64_t step) const {
  ensure(step >= 0, "[loader] got step {}, expected 0 or more", step);
  std::vector<HostBatch> batches;
  for (int64_t k = 0; k < options_.grad_accum; ++k) {
    const int64_t logical = options_.rank * options_.grad_accum + k;
    batches.push_back(micro_batch(step * per_step_ + logical * options_.micro_batch));
  }
  return batches;
}

HostBatch Loader::micro_batch(int64_t first_sample) const {
  HostBatch out;
  out.batch = options_.micro_batch;
  out.seq = options_.seq_len;
  const size_t rows = size_t(out.batch * out.seq);
  out.tokens.resize(rows);
  out.targets.resize(rows);
  out.positions.resize(rows);
  if (options_.separate_documents) out.doc_start.resize(rows);
  for (int64_t row = 0; row < out.batch; ++row) fill_row(out, row, sampler_.sequence(first_sample + row));
  out.valid_rows.reserve(rows);
  for (size_t row = 0; row < rows; ++row) {
    if (out.targets[row] >= 0) out.valid_rows.push_back(int32_t(row));
  }
  return out;
}

void Loader::fill_row(HostBatch& out, int64_t row, int64_t sequence) const {
  const int64_t T = options_.seq_len;
  const int64_t begin = sequence * T;
  const auto part = [&](std::vector<int32_t>& all) {
    return std::span(all).subspan(size_t(row * T), size_t(T));
  };
  const auto tokens = part(out.tokens), targets = part(out.targets), positions = part(out.positions);
  source_.copy(begin, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  source_.copy(begin + T, targets.last(1));
  std::iota(positions.begin(), positions.end(), 0);
  if (!options_.separate_documents) return;

  // A document that began in an earlier window starts anew here: its first part is not in sight.
  const auto doc_start = part(out.doc_start);
  std::ranges::fill(doc_start, 0);
  const auto starts = source_.document_starts();
  for (auto next = std::ranges::upper_bound(starts, begin); next != starts.end() && *next <= begin + T;
       ++next) {
    const int64_t at = *next - begin;
    const int64_t end = next + 1 == starts.end() ? T : std::min(T, next[1] - begin);
    targets[size_t(at - 1)] = -1;
    const auto document = positions.subspan(size_t(at), size_t(end - at));
    std::iota(document.begin(), document.end(), 0);
    std::ranges::fill(doc_start.subspan(size_t(at), size_t(end - at)), int32_t(at));
  }
}

}  // namespace zeno::data
