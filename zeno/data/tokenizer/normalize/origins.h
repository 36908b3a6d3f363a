// Which part of the input each character of a rewritten text represents, as runs: characters that were copied
// one after the other are one run, however many they are, and so are characters that represent the same part.
// A run takes 2 or 3 bytes in most cases, so the origins of a text take less memory than the text. A value;
// reading moves a cursor, so it is for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/text_span.h"

namespace zeno::data::tokenizer {

class Origins {
 public:
  // Bytes [begin, end) of the text. Copied: they stand in the input from from.begin on. Else each of their
  // characters represents all of `from`.
  struct Run {
    size_t begin = 0, end = 0;
    TextSpan from;
    bool copied = true;

    // What the character at `at`, of `bytes` bytes, represents.
    TextSpan of(size_t at, size_t bytes) const {
      if (!copied) return from;
      return {from.begin + (at - begin), from.begin + (at - begin) + bytes};
    }
  };

  // The next characters of the text, each of which represents `from`.
  void add(std::string_view characters, TextSpan from);
  // The next bytes of the text are whole characters of the input, from `begin` on.
  void add_copied(size_t bytes, size_t begin);
  // Bytes [begin, end) of a run of another text.
  void add_part(const Run& run, size_t begin, size_t end);

  // The run that byte `at` of the text belongs to. Fast where `at` is not before the last one asked for.
  const Run& run_at(size_t at) const;

 private:
  // Where the codes of a run start, and what it follows.
  struct Mark {
    size_t code = 0, text = 0, input = 0;
  };
  static constexpr size_t kMarkEvery = 64;  // bytes of codes

  void start(Run run);
  void put(uint64_t number);
  uint64_t get() const;
  void read_next() const;
  void go_back(size_t at) const;

  std::string codes_;        // all runs but the last
  Run last_;                 // empty: there is none
  size_t input_ = 0;         // where the input goes on behind the runs in codes_
  std::vector<Mark> marks_;  // ascending
  // Of reading: the current run, and where the next one is.
  mutable Run run_;
  mutable Mark next_;
};

}  // namespace zeno::data::tokenizer
