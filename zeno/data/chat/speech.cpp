#include "zeno/data/chat/speech.h"

#include <algorithm>

namespace zeno::data {
namespace {

bool is_writing(const Passage& passage) { return passage.speaker == Speaker::writing; }

}  // namespace

std::vector<Speech> speeches_of(const std::vector<Passage>& passages) {
  std::vector<Speech> out;
  for (size_t i = 0; i < passages.size(); ++i) {
    if (passages[i].speaker != Speaker::assistant) continue;
    const auto begin = passages.begin() + std::ptrdiff_t(out.empty() ? 0 : out.back().last + 1);
    const bool continues = !out.empty() && out.back().message == passages[i].message &&
                           std::all_of(begin, passages.begin() + std::ptrdiff_t(i), is_writing);
    if (continues) {
      out.back().last = i;
    } else {
      out.push_back({i, i, passages[i].message});
    }
  }
  return out;
}

size_t lead_begin(const std::vector<Passage>& passages, size_t first) {
  while (first > 0 && is_writing(passages[first - 1])) --first;
  return passages[first].begin;
}

std::string tail_of(const jinja::Rendered& rendered, const std::vector<Passage>& passages) {
  const auto last = std::find_if_not(passages.rbegin(), passages.rend(), is_writing);
  return rendered.text.substr(last == passages.rend() ? 0 : last->end);
}

}  // namespace zeno::data
