// A text that carries the origin of each of its bytes. Every operation of a template on texts keeps it, so
// that in the result the text of one message can be told from that of another and from the template's own,
// whatever the template did with it. A value: copy and move it freely; what a lent text is copied from must
// outlive all copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zeno::data::jinja {

struct Origin {
  // Number of a part of the variables (trace.h). 0: the template itself; kManySources: several parts, which
  // an operation has mixed byte by byte.
  uint32_t source = 0;
  // The source of the list element that the template was looping over when it wrote the text; 0: none.
  uint32_t frame = 0;
  bool operator==(const Origin&) const = default;
};
inline constexpr uint32_t kManySources = UINT32_MAX;

// From the end of the previous range to `end`.
struct Stretch {
  size_t end = 0;
  Origin origin;
  bool operator==(const Stretch&) const = default;
};

class TracedText {
 public:
  TracedText() = default;
  explicit TracedText(std::string text, Origin origin = {}) : text_(std::move(text)), origin_(origin) {}
  // The text stays where it is until something is appended.
  static TracedText lent(const std::string& text, Origin origin);
  // A copy with room for `bytes` more.
  TracedText with_room(size_t bytes) const;

  const std::string& str() const& { return lent_ != nullptr ? *lent_ : text_; }
  std::string str() && { return lent_ != nullptr ? *lent_ : std::move(text_); }
  size_t size() const { return str().size(); }
  bool empty() const { return str().empty(); }
  // Bytes that it stands for, for the budget of a rendering.
  size_t memory() const { return size() + stretches_.size() * sizeof(Stretch); }
  // In order, covering all bytes. An empty range means that an empty text of that origin was written there.
  std::vector<Stretch> stretches() const;
  // The origin of all bytes; kManySources where they differ.
  Origin origin() const;

  void append(std::string_view text, Origin origin = {});
  // Stretches of `other` without a frame get this one.
  void append(const TracedText& other, uint32_t frame = 0);
  TracedText part(size_t begin, size_t size = std::string::npos) const;
  // `piece` is a view into str().
  TracedText part(std::string_view piece) const;
  // change(text), where `change` works on characters: with the origins of the characters if they are known.
  template <class Change>
  TracedText changed(Change change) const {
    TracedText out(change(std::string_view(str())), origin());
    if (stretches_.empty()) return out;
    TracedText pieces;
    size_t begin = 0;
    for (const Stretch& stretch : stretches_) {
      pieces.append(change(std::string_view(str()).substr(begin, stretch.end - begin)), stretch.origin);
      begin = stretch.end;
    }
    return pieces.text_ == out.text_ ? pieces : out;
  }

 private:
  void extend(size_t end, Origin origin);

  const std::string* lent_ = nullptr;  // instead of text_
  std::string text_;
  Origin origin_;                   // of all of it, where there are no stretches
  std::vector<Stretch> stretches_;  // two or more; or none
};

}  // namespace zeno::data::jinja
