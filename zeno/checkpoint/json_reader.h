// Reader of JSON that programs write and that may be large: headers of safetensors files, their index,
// manifests. The caller takes one value after the other, so that nothing is kept but what the caller keeps;
// one pass over the text, in linear time and with bounded nesting. The text is not trusted: what is wrong
// with it is an Error(data) that says at which byte.
//
// Views `text`, which outlives it. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeno::checkpoint {

class JsonReader {
 public:
  // `where` begins every message: "[safetensors] model.safetensors".
  JsonReader(std::string_view text, std::string where);

  // Also named in messages, such as a tensor. It must live until the next call.
  void about(std::string_view subject) { subject_ = subject; }

  // An object: enter, then while next_key() take its value; an array likewise. `what` is for the message when
  // the next value is something else.
  void enter_object(std::string_view what);
  bool next_key(std::string& key);
  void enter_array(std::string_view what);
  bool next_item();
  void string(std::string_view what, std::string& out);
  uint64_t size(std::string_view what);          // an integer >= 0
  int64_t integer(std::string_view what);        // any
  std::string_view skip(std::string_view what);  // any value: its text
  // Nothing but white space may follow.
  void end();

  // Error(data) with `where` and the subject before `problem`.
  [[noreturn]] void fail(std::string_view problem) const;

 private:
  static constexpr int kMaxDepth = 64;

  char peek();  // of the next token; 0 at the end
  [[noreturn]] void malformed(std::string_view expected);
  [[noreturn]] void mismatch(std::string_view what, std::string_view expected);
  bool next(char closing);
  std::string_view number(std::string_view what, std::string_view expected);
  void escape(std::string& out);
  unsigned four_digits();
  void skip_value(int depth);

  std::string_view text_;
  std::string where_;
  std::string_view subject_;
  std::string scratch_;  // texts that are not kept
  size_t at_ = 0;
  bool first_ = true;  // no member of the object or array has been taken yet
};

}  // namespace zeno::checkpoint
