#include "zeno/data/preview/sample_list.h"

#include <algorithm>

namespace zeno::data {

SampleList::SampleList(const TokenSource& source, const PackOptions& options)
    : source_(source), packed_(source, options) {
  if (packed_.report().packing != Packing::best_fit) return;
  PackOptions alone = options;
  alone.packing = Packing::none;
  unpacked_.emplace(source, alone);
}

void SampleList::for_each(const std::function<bool(const Piece&)>& visit) const {
  const SequenceTable& table = unpacked_ ? *unpacked_ : packed_;
  const auto starts = source_.document_starts();
  std::vector<Piece> pieces;
  for (int64_t sequence = 0; sequence < table.sequences(); ++sequence) {
    table.pieces(sequence, pieces);
    for (Piece piece : pieces) {
      // A window of a stream may reach over several documents.
      const int64_t end = piece.begin + piece.length;
      for (; piece.begin < end; piece.begin += piece.length, ++piece.document) {
        piece.length = std::min(end, starts[size_t(piece.document) + 1]) - piece.begin;
        if (piece.length > 0 && !visit(piece)) return;
      }
    }
  }
}

}  // namespace zeno::data
