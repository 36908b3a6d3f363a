#include "zeno/data/preview/preview.h"

#include <algorithm>
#include <span>

#include "zeno/base/error.h"
#include "zeno/data/preview/piece_text.h"

namespace zeno::data {
namespace {

// "12 345 6"
std::string numbers(std::span<const int32_t> ids) {
  std::string out;
  for (const int32_t id : ids) out += fmt::format("{} ", id);
  return out;
}

std::vector<std::string> number_texts(std::span<const int32_t> ids, std::span<const size_t> ends) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (const size_t end : ends) {
    out.push_back(numbers(ids.subspan(begin, end - begin)));
    begin = end;
  }
  return out;
}

// Tokens of the user's own making may be none of the tokenizer's.
std::vector<std::string> texts_of(const std::optional<Tokenizer>& tokenizer, std::span<const int32_t> ids,
                                  std::span<const size_t> ends) {
  if (!tokenizer) return number_texts(ids, ends);
  try {
    return piece_texts(*tokenizer, ids, ends);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    return number_texts(ids, ends);
  }
}

PreviewSample sample_of(const SampleList& list, const std::optional<Tokenizer>& tokenizer,
                        const Piece& piece) {
  const TokenSource& source = list.source();
  std::vector<int32_t> ids(size_t(piece.length));
  std::vector<uint8_t> marks(ids.size());
  source.copy(piece.begin, ids);
  source.copy_learned(piece.begin, marks);

  const int64_t begin = source.document_starts()[size_t(piece.document)];
  PreviewSample sample{.origin = source.origin(piece.document),
                       .first_token = piece.begin - begin,
                       .tokens = piece.length,
                       .trained = std::ranges::count(marks, uint8_t(1)),
                       .record_tokens = source.document_starts()[size_t(piece.document) + 1] - begin,
                       .rest_is_trained = list.keeps_all_parts(),
                       .pieces = {}};
  std::vector<size_t> ends;
  for (size_t i = 1; i <= marks.size(); ++i) {
    if (i == marks.size() || marks[i] != marks[i - 1]) ends.push_back(i);
  }
  const std::vector<std::string> texts = texts_of(tokenizer, ids, ends);
  for (size_t p = 0; p < ends.size(); ++p) sample.pieces.push_back({texts[p], marks[ends[p] - 1] != 0});
  return sample;
}

}  // namespace

void preview_samples(const SampleList& list, const std::optional<Tokenizer>& tokenizer, int64_t most,
                     const std::function<void(const PreviewSample&)>& show) {
  int64_t shown = 0;
  if (most <= 0) return;
  list.for_each([&](const Piece& piece) {
    show(sample_of(list, tokenizer, piece));
    return ++shown < most;
  });
}

}  // namespace zeno::data
