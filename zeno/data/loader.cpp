#include "zeno/data/loader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/math.h"

namespace zeno::data {
namespace {

const LoaderOptions& checked(const LoaderOptions& options, int64_t seq_len) {
  require(options.micro_batch >= 1 && options.grad_accum >= 1, ErrorKind::usage,
          "[loader] got micro-batch {}, accumulation {}, expected at least 1 each", options.micro_batch,
          options.grad_accum);
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();  // rows of a batch are counted in 32 bits
  require(
      seq_len <= kMax / options.micro_batch && options.grad_accum <= kMax, ErrorKind::usage,
      "[loader] got {} sequences of {} tokens, {} times a step, expected at most {} tokens in a micro-batch",
      options.micro_batch, seq_len, options.grad_accum, kMax);
  ensure(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks,
         "[loader] got rank {} of {}", options.rank, options.ranks);
  return options;
}

}  // namespace

// The T rows of one sequence in a batch.
struct Loader::Row {
  std::span<int32_t> tokens, targets, positions, doc_start;
};

Loader::Loader(const TokenSource& source, const SequenceTable& table, const LoaderOptions& options)
    : source_(source),
      table_(table),
      options_(checked(options, table.seq_len())),
      seq_len_(table.seq_len()),
      per_step_(options.micro_batch * options.grad_accum * options.ranks),
      sampler_(table.sequences(), per_step_, options.seed, options.shuffle) {
  if (options_.shuffle && table.sequences() < per_step_ && options_.rank == 0) {
    log_warning(
        "[loader] the data has {} sequences of {} tokens and a step takes {}: the rest of every step is "
        "padding; add data or reduce the global batch",
        table.sequences(), seq_len_, per_step_);
  }
}

int64_t Loader::first_place(int64_t step, int64_t micro_batch) const {
  ensure(step >= 0, "[loader] got step {}, expected 0 or more", step);
  const int64_t logical = options_.rank * options_.grad_accum + micro_batch;
  return step * per_step_ + logical * options_.micro_batch;
}

std::vector<HostBatch> Loader::step(int64_t step) const {
  std::vector<HostBatch> batches;
  for (int64_t k = 0; k < options_.grad_accum; ++k) batches.push_back(micro_batch(first_place(step, k)));
  return batches;
}

std::string Loader::origins(int64_t step, size_t most) const {
  std::string out;
  size_t named = 0, further = 0;
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < options_.grad_accum * options_.micro_batch; ++i) {
    const int64_t sequence = sampler_.sequence(first_place(step, 0) + i);
    if (sequence == Sampler::kEmpty) continue;
    table_.pieces(sequence, pieces);
    for (const Piece& piece : pieces) {
      if (named == most) {
        ++further;
      } else {
        out += (named++ == 0 ? "" : ", ") + source_.origin(piece.document);
      }
    }
  }
  if (further > 0) out += fmt::format(", … {} more", further);
  return out;
}

HostBatch Loader::micro_batch(int64_t first_place) const {
  HostBatch out;
  out.batch = options_.micro_batch;
  out.seq = seq_len_;
  const size_t rows = size_t(out.batch * out.seq);
  out.tokens.resize(rows);
  out.targets.resize(rows);
  out.positions.resize(rows);
  out.doc_start.resize(rows);
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < out.batch; ++row) {
    fill_row(out, row, sampler_.sequence(first_place + row), pieces);
  }
  if (options_.vocab_size > 0) {
    const int32_t largest = *std::ranges::max_element(out.tokens);
    require(largest < options_.vocab_size, ErrorKind::data,
            "[loader] got token id {}, expected below the vocabulary size {}; the dataset cache is damaged: "
            "remove it",
            largest, options_.vocab_size);
  }
  keep_slice(out);
  out.valid_rows.reserve(out.targets.size());
  for (size_t row = 0; row < out.targets.size(); ++row) {
    if (out.targets[row] >= 0) out.valid_rows.push_back(int32_t(row));
  }
  return out;
}

// Targets reach into the next slice: so they are cut after they were made.
void Loader::keep_slice(HostBatch& out) const {
  out.seq = slice_len();
  for (std::vector<int32_t>* rows : {&out.tokens, &out.targets, &out.positions}) {
    for (int64_t b = 0; b < out.batch; ++b) {
      const auto from = rows->begin() + b * seq_len_ + options_.slice * out.seq;
      std::copy(from, from + out.seq, rows->begin() + b * out.seq);
    }
    rows->resize(size_t(out.batch * out.seq));
  }
}

void Loader::fill_row(HostBatch& out, int64_t row, int64_t sequence, std::vector<Piece>& pieces) const {
  const auto part = [&](std::vector<int32_t>& all) {
    return std::span(all).subspan(size_t(row * seq_len_), size_t(seq_len_));
  };
  const Row rows{part(out.tokens), part(out.targets), part(out.positions), part(out.doc_start)};
  int64_t at = 0;
  pieces.clear();
  if (sequence != Sampler::kEmpty) table_.pieces(sequence, pieces);
  for (const Piece& piece : pieces) {
    fill_piece(rows, at, piece);
    at += piece.length;
  }
  out.filled += std::clamp<int64_t>(at - options_.slice * slice_len(), 0, slice_len());
  fill_padding(rows, at);
}

void Loader::fill_piece(const Row& row, int64_t at, const Piece& piece) const {
  const auto starts = source_.document_starts();
  const auto first = size_t(at), length = size_t(piece.length);
  const int64_t end = piece.begin + piece.length;
  // Targets reach one token further if the text continues after the piece.
  const bool further = table_.targets_continue() && end < source_.tokens();
  const auto tokens = row.tokens.subspan(first, length), targets = row.targets.subspan(first, length);
  source_.copy(piece.begin, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  targets.back() = -1;
  if (further) source_.copy(end, targets.last(1));
  std::vector<uint8_t> learned(length - (further ? 0 : 1));
  source_.copy_learned(piece.begin + 1, learned);
  for (size_t i = 0; i < learned.size(); ++i) {
    if (learned[i] == 0) targets[i] = -1;
  }

  // A document that began before the piece starts anew here: its first part is not in sight.
  int64_t begin = piece.begin;
  for (auto document = size_t(piece.document); begin < end; ++document) {
    const int64_t stop = std::min(end, starts[document + 1]);
    const auto from = size_t(at + begin - piece.begin), count = size_t(stop - begin);
    const auto positions = row.positions.subspan(from, count);
    std::iota(positions.begin(), positions.end(), 0);
    std::ranges::fill(row.doc_start.subspan(from, count), int32_t(from));
    if (stop == starts[document + 1] && count > 0) row.targets[from + count - 1] = -1;
    begin = stop;
  }
}

// Padding has documents of its own, so that no sample sees it. Several of them: attention costs the square of
// a document's length; not too many: each is an entry of the GPU's ragged attention.
void Loader::fill_padding(const Row& row, int64_t at) const {
  constexpr int64_t kDocuments = 8, kShortest = 64;
  const int64_t length = std::max(kShortest, div_ceil(seq_len_ - at, kDocuments));
  for (int64_t begin = at; begin < seq_len_; begin += length) {
    const auto from = size_t(begin), count = size_t(std::min(length, seq_len_ - begin));
    std::ranges::fill(row.tokens.subspan(from, count), 0);
    std::ranges::fill(row.targets.subspan(from, count), -1);
    const auto positions = row.positions.subspan(from, count);
    std::iota(positions.begin(), positions.end(), 0);
    std::ranges::fill(row.doc_start.subspan(from, count), int32_t(from));
  }
}

}  // namespace zeno::data
