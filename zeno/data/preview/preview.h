// What `zeno data` shows: samples as the model will see them, trained text told apart from the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zeno/data/preview/sample_list.h"
#include "zeno/data/tokenizer.h"

namespace zeno::data {

// A longest run of tokens that are all trained on, or all not.
struct PreviewPiece {
  std::string text;
  bool trained = false;
  bool operator==(const PreviewPiece&) const = default;
};

struct PreviewSample {
  std::string origin;         // "chat.jsonl:7"
  int64_t first_token = 0;    // where it begins in its record: what is in front was cut, or is another sample
  int64_t tokens = 0;         // of the sample
  int64_t trained = 0;        // of these
  int64_t record_tokens = 0;  // of the whole record
  bool rest_is_trained = false;  // what is missing of the record is in other samples
  std::vector<PreviewPiece> pieces;

  int64_t missing_behind() const { return record_tokens - first_token - tokens; }
};

// The first `most` samples of a list, in order, one at a time. Without a tokenizer the text is the numbers
// of the tokens.
void preview_samples(const SampleList& list, const std::optional<Tokenizer>& tokenizer, int64_t most,
                     const std::function<void(const PreviewSample&)>& show);

}  // namespace zeno::data
