#include "zeno/data/tokenizer/normalize/origins.h"

#include <algorithm>

#include "zeno/base/utf8.h"

namespace zeno::data::tokenizer {
namespace {

// Small numbers of either sign as small numbers without one.
uint64_t fold_sign(int64_t value) { return uint64_t(value) << 1 ^ uint64_t(value >> 63); }
int64_t unfold_sign(uint64_t value) { return int64_t(value >> 1) ^ -int64_t(value & 1); }

}  // namespace

void Origins::add(std::string_view characters, TextSpan from) {
  const size_t bytes = characters.size();
  if (bytes == 0) return;
  // A character in the place of one of the same size reads like a copy.
  if (bytes == from.end - from.begin && decode_char(characters, 0).bytes == bytes) {
    return add_copied(bytes, from.begin);
  }
  const bool joins = last_.end > last_.begin && !last_.copied && last_.from == from;
  if (!joins) start({.begin = last_.end, .end = last_.end, .from = from, .copied = false});
  last_.end += bytes;
}

void Origins::add_copied(size_t bytes, size_t begin) {
  if (bytes == 0) return;
  const bool joins = last_.end > last_.begin && last_.copied && last_.from.end == begin;
  if (!joins) start({.begin = last_.end, .end = last_.end, .from = {begin, begin}, .copied = true});
  last_.end += bytes;
  last_.from.end += bytes;
}

void Origins::add_part(const Run& run, size_t begin, size_t end) {
  if (run.copied) return add_copied(end - begin, run.from.begin + (begin - run.begin));
  const bool joins = last_.end > last_.begin && !last_.copied && last_.from == run.from;
  if (!joins) start({.begin = last_.end, .end = last_.end, .from = run.from, .copied = false});
  last_.end += end - begin;
}

// Writes the last run; another one follows it.
void Origins::start(Run run) {
  if (last_.end > last_.begin) {
    if (marks_.empty() || codes_.size() >= marks_.back().code + kMarkEvery) {
      marks_.push_back({.code = codes_.size(), .text = last_.begin, .input = input_});
    }
    put((last_.end - last_.begin) << 1 | uint64_t(last_.copied));
    put(fold_sign(int64_t(last_.from.begin) - int64_t(input_)));
    if (!last_.copied) put(last_.from.end - last_.from.begin);
    input_ = last_.from.end;
  }
  last_ = run;
}

// Seven bits in a byte, the lowest first; the eighth: more follow.
void Origins::put(uint64_t number) {
  for (; number >= 0x80; number >>= 7) codes_ += char(number | 0x80);
  codes_ += char(number);
}

uint64_t Origins::get() const {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = uint8_t(codes_[next_.code++]);
    number |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80) return number;
  }
}

void Origins::read_next() const {
  if (next_.code == codes_.size()) {
    run_ = last_;
    return;
  }
  const uint64_t head = get();
  run_.begin = next_.text;
  run_.end = run_.begin + size_t(head >> 1);
  run_.copied = (head & 1) != 0;
  run_.from.begin = size_t(int64_t(next_.input) + unfold_sign(get()));
  run_.from.end = run_.from.begin + (run_.copied ? run_.end - run_.begin : size_t(get()));
  next_.text = run_.end;
  next_.input = run_.from.end;
}

void Origins::go_back(size_t at) const {
  const auto behind = std::ranges::upper_bound(marks_, at, {}, &Mark::text);
  next_ = behind == marks_.begin() ? Mark() : *std::prev(behind);
  read_next();
}

const Origins::Run& Origins::run_at(size_t at) const {
  if (at < run_.begin) go_back(at);
  while (at >= run_.end && run_.end < last_.end) read_next();
  return run_;
}

}  // namespace zeno::data::tokenizer
