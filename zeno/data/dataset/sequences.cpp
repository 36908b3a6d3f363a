#include "zeno/data/dataset/sequences.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/base/quantity.h"
#include "zeno/base/rng.h"
#include "zeno/data/dataset/best_fit.h"
#include "zeno/data/sampler.h"

namespace zeno::data {
namespace {

constexpr uint64_t kHoldOutStream = 0x401d, kPackStream = 0x9ac4;

// Which of n things belong to a part: exactly as many as asked for, without a list.
class Selection {
 public:
  Selection(int64_t n, const PackOptions& options)
      : n_(uint64_t(n)), part_(options.part), key_(random_bits(options.seed, kHoldOutStream, 0)) {
    if (part_ == SamplePart::all) return;
    const double share = options.hold_out;
    require(share > 0, ErrorKind::usage, "[data] got an evaluation split of {}, expected more than 0", share);
    held_out_ = int64_t(share >= 1 ? share : std::max(1.0, std::round(share * double(n))));
    require(held_out_ < n, ErrorKind::data,
            "[data] an evaluation split of {} takes {} of {} samples, expected some left to train on; lower "
            "--eval-split or add data",
            share, held_out_, n);
  }
  bool contains(int64_t i) const {
    if (part_ == SamplePart::all) return true;
    const bool held_out = int64_t(permute(uint64_t(i), n_, key_)) < held_out_;
    return held_out == (part_ == SamplePart::held_out);
  }
  bool all() const { return part_ == SamplePart::all; }

 private:
  uint64_t n_;
  SamplePart part_;
  uint64_t key_;
  int64_t held_out_ = 0;
};

}  // namespace

std::string PackReport::text() const {
  const std::string verb = packing == Packing::none      ? "padded"
                           : packing == Packing::wrapped ? "cut"
                                                         : "packed";
  std::string out = fmt::format("{} {} samples {} {} sequences of {}, {:.1f} % filled", verb,
                                format_count(samples), packing == Packing::none ? "to" : "into",
                                format_count(sequences), format_count(seq_len), 100 * fill());
  if (cut > 0) out += fmt::format("; {} too long: cut", format_count(cut));
  if (dropped > 0) out += fmt::format("; {} too long: dropped", format_count(dropped));
  if (nothing_to_learn > 0) {
    out += fmt::format("; {} left out: nothing to train on after cutting", format_count(nothing_to_learn));
  }
  return out;
}

SequenceTable::SequenceTable(const TokenSource& source, const PackOptions& options)
    : source_(source), options_(options) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  require(options.seq_len >= 1 && options.seq_len <= kMax, ErrorKind::usage,
          "[data] got sequence length {}, expected 1..{}", options.seq_len, kMax);
  require(source.documents() < kMax * 2, ErrorKind::data, "[data] got {} samples, expected fewer than {}",
          source.documents(), kMax * 2);
  if (options_.packing == Packing::automatic) {
    options_.packing = source.whole_texts() ? Packing::wrapped : Packing::best_fit;
  }
  report_.packing = options_.packing;
  report_.seq_len = options_.seq_len;
  if (options_.packing == Packing::wrapped) {
    cut_windows();
  } else {
    collect_slots();
    pack_slots();
  }
  if (report_.sequences == 0) fail_empty();
}

// Says which of the settings has left nothing.
void SequenceTable::fail_empty() const {
  const int64_t T = options_.seq_len;
  require(
      report_.dropped == 0, ErrorKind::data,
      "[data] every sample was left out by --too-long drop: {} are longer than --seq-len {}; raise --seq-len "
      "or choose another --too-long",
      format_count(report_.dropped), T);
  require(report_.cut == 0, ErrorKind::data,
          "[data] --seq-len {} cut away every sample: {} are longer, and their {} {} tokens have nothing to "
          "train on; raise --seq-len or choose another --too-long",
          T, format_count(report_.cut), options_.too_long == TooLong::keep_end ? "last" : "first", T);
  fail(ErrorKind::data,
       "[data] nothing to train on: got {} tokens in {} samples, expected at least one sample of two tokens; "
       "add data",
       source_.tokens(), source_.documents());
}

bool SequenceTable::targets_continue() const {
  return options_.packing == Packing::wrapped || options_.too_long == TooLong::split;
}

// The last token has no target, so a window of it alone would teach nothing.
void SequenceTable::cut_windows() {
  const int64_t T = options_.seq_len;
  const int64_t windows = div_ceil(std::max<int64_t>(0, source_.tokens() - 1), T);
  if (windows == 0) return;
  const Selection selection(windows, options_);
  const int64_t most = options_.max_samples > 0 ? options_.max_samples : windows;
  report_.samples = source_.documents();
  report_.sequences = std::min(windows, most);
  if (!selection.all()) {
    require(windows < int64_t(std::numeric_limits<uint32_t>::max()), ErrorKind::data,
            "[data] got {} windows of {} tokens; an evaluation split needs fewer", windows, T);
    for (int64_t w = 0; w < windows && int64_t(windows_.size()) < most; ++w) {
      if (selection.contains(w)) windows_.push_back(uint32_t(w));
    }
    report_.sequences = int64_t(windows_.size());
  }
  report_.tokens = report_.sequences * T;
  const bool has_last = selection.all() ? report_.sequences == windows
                                        : !windows_.empty() && int64_t(windows_.back()) == windows - 1;
  if (has_last) report_.tokens -= std::max<int64_t>(0, windows * T - source_.tokens());
}

void SequenceTable::collect_slots() {
  const int64_t documents = source_.documents();
  const Selection selection(documents, options_);
  if (selection.all()) slots_.reserve(size_t(documents));
  int64_t taken = 0;
  for (int64_t document = 0; document < documents; ++document) {
    if (!selection.contains(document)) continue;
    if (options_.max_samples > 0 && ++taken > options_.max_samples) break;
    add_document(document);
  }
}

void SequenceTable::add_document(int64_t document) {
  const int64_t T = options_.seq_len;
  const auto starts = source_.document_starts();
  const int64_t length = starts[size_t(document) + 1] - starts[size_t(document)];
  if (length <= T) return slots_.push_back({uint32_t(document), 0});
  require(options_.too_long != TooLong::error, ErrorKind::data,
          "[data] {}: got a sample of {} tokens, expected at most {}; raise --seq-len or choose --too-long",
          source_.origin(document), length, T);
  if (options_.too_long == TooLong::drop) {
    ++report_.dropped;
    return;
  }
  ++report_.cut;
  const int64_t parts = options_.too_long == TooLong::split ? div_ceil(length, T) : 1;
  bool kept = false;
  for (int64_t part = 0; part < parts; ++part) {
    const Slot slot{uint32_t(document), uint32_t(part)};
    if (!has_target(piece_of(slot))) continue;
    slots_.push_back(slot);
    kept = true;
  }
  report_.nothing_to_learn += !kept;
}

bool SequenceTable::has_target(const Piece& piece) const {
  const int64_t end = source_.document_starts()[size_t(piece.document) + 1];
  const int64_t last =
      targets_continue() ? std::min(end, piece.begin + piece.length + 1) : piece.begin + piece.length;
  if (last - piece.begin < 2) return false;
  std::vector<uint8_t> learned(size_t(last - piece.begin - 1));
  source_.copy_learned(piece.begin + 1, learned);
  return std::ranges::find(learned, uint8_t(1)) != learned.end();
}

Piece SequenceTable::piece_of(Slot slot) const {
  const auto starts = source_.document_starts();
  const int64_t begin = starts[slot.document], end = starts[size_t(slot.document) + 1];
  const int64_t T = options_.seq_len;
  if (options_.too_long == TooLong::keep_end) {
    const int64_t from = std::max(begin, end - T);
    return {from, end - from, slot.document};
  }
  const int64_t from = begin + int64_t(slot.part) * T;
  return {from, std::min(T, end - from), slot.document};
}

void SequenceTable::pack_slots() {
  for (const Slot& slot : slots_) report_.tokens += piece_of(slot).length;
  report_.samples = int64_t(slots_.size());
  report_.sequences = report_.samples;
  if (options_.packing != Packing::best_fit || slots_.empty()) return;

  // In file order, neighbours of equal length would share their sequence in every epoch.
  const size_t n = slots_.size();
  for (size_t i = options_.shuffle ? n : 0; i > 1; --i) {
    std::swap(slots_[i - 1], slots_[random_bits(options_.seed, kPackStream, i) % i]);
  }
  std::vector<uint32_t> lengths(n);
  for (size_t i = 0; i < n; ++i) lengths[i] = uint32_t(piece_of(slots_[i]).length);
  Bins bins = best_fit(lengths, uint32_t(options_.seq_len));
  std::vector<Slot> packed(n);
  for (size_t i = 0; i < n; ++i) packed[i] = slots_[bins.items[i]];
  slots_ = std::move(packed);
  starts_ = std::move(bins.starts);
  report_.sequences = int64_t(starts_.size()) - 1;
}

void SequenceTable::pieces(int64_t sequence, std::vector<Piece>& out) const {
  ensure(sequence >= 0 && sequence < sequences(), "[data] got sequence {} of {}", sequence, sequences());
  out.clear();
  if (options_.packing == Packing::wrapped) {
    const int64_t window = windows_.empty() ? sequence : int64_t(windows_[size_t(sequence)]);
    const int64_t begin = window * options_.seq_len;
    const auto starts = source_.document_starts();
    const auto document = std::ranges::upper_bound(starts, begin) - starts.begin() - 1;
    out.push_back({begin, std::min(options_.seq_len, source_.tokens() - begin), document});
    return;
  }
  const size_t first = starts_.empty() ? size_t(sequence) : starts_[size_t(sequence)];
  const size_t last = starts_.empty() ? first + 1 : starts_[size_t(sequence) + 1];
  for (size_t i = first; i < last; ++i) out.push_back(piece_of(slots_[i]));
}

size_t SequenceTable::host_bytes() const {
  return slots_.capacity() * sizeof(Slot) + (starts_.capacity() + windows_.capacity()) * sizeof(uint32_t);
}

}  // namespace zeno::data
