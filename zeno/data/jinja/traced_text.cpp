#include "zeno/data/jinja/traced_text.h"

#include <algorithm>

namespace zeno::data::jinja {

TracedText TracedText::lent(const std::string& text, Origin origin) {
  TracedText out;
  out.lent_ = &text;
  out.origin_ = origin;
  return out;
}

TracedText TracedText::with_room(size_t bytes) const {
  TracedText out;
  out.text_.reserve(size() + bytes);
  out.text_ = str();
  out.origin_ = origin_;
  out.stretches_ = stretches_;
  return out;
}

std::vector<Stretch> TracedText::stretches() const {
  if (!stretches_.empty()) return stretches_;
  return {{size(), origin_}};
}

Origin TracedText::origin() const {
  if (stretches_.empty()) return origin_;
  Origin common = stretches_.front().origin;
  for (const Stretch& stretch : stretches_) {
    if (stretch.origin.source != common.source) common.source = kManySources;
    if (stretch.origin.frame != common.frame) common.frame = 0;
  }
  return common;
}

// The bytes from the last stretch to `end` have come.
void TracedText::extend(size_t end, Origin origin) {
  const size_t begin = stretches_.empty() ? size() : stretches_.back().end;
  const bool nothing = end == begin && origin.source == 0;
  if (nothing || (stretches_.empty() && origin == origin_)) return;
  if (stretches_.empty()) {
    if (begin == 0 && origin_.source == 0) {
      origin_ = origin;
      return;
    }
    stretches_.push_back({begin, origin_});
  }
  if (stretches_.back().origin == origin) {
    stretches_.back().end = end;
  } else {
    stretches_.push_back({end, origin});
  }
}

void TracedText::append(std::string_view text, Origin origin) {
  if (lent_ != nullptr) *this = with_room(text.size());
  extend(text_.size() + text.size(), origin);
  text_ += text;
}

void TracedText::append(const TracedText& other, uint32_t frame) {
  if (&other == this) return append(TracedText(other), frame);
  const auto framed = [frame](Origin origin) {
    if (origin.frame == 0) origin.frame = frame;
    return origin;
  };
  if (other.stretches_.empty()) return append(std::string_view(other.str()), framed(other.origin_));
  size_t begin = 0;
  for (const Stretch& stretch : other.stretches_) {
    append(std::string_view(other.str()).substr(begin, stretch.end - begin), framed(stretch.origin));
    begin = stretch.end;
  }
}

TracedText TracedText::part(size_t begin, size_t size) const {
  begin = std::min(begin, str().size());
  size = std::min(size, str().size() - begin);
  if (stretches_.empty()) return TracedText(str().substr(begin, size), origin_);
  auto stretch = std::ranges::lower_bound(stretches_, begin, {}, &Stretch::end);
  TracedText out;
  size_t from = stretch == stretches_.begin() ? 0 : std::prev(stretch)->end;
  for (; stretch != stretches_.end() && from <= begin + size; from = stretch++->end) {
    const size_t first = std::max(from, begin), last = std::min(stretch->end, begin + size);
    const bool was_empty = from == stretch->end;
    if (first < last || was_empty)
      out.append(std::string_view(str()).substr(first, last - first), stretch->origin);
  }
  return out;
}

TracedText TracedText::part(std::string_view piece) const {
  const char* const begin = str().data();
  if (piece.data() < begin || piece.data() > begin + str().size()) return part(0, 0);
  return part(size_t(piece.data() - begin), piece.size());
}

}  // namespace zeno::data::jinja
