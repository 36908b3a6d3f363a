#include "cli/text_stream.h"

#include <algorithm>

namespace zeno::cli {

std::string TextStream::advance(const std::string& more, bool all) {
  if (stopped_) return {};
  held_ += more;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  stopped_ = end != std::string::npos;
  if (!stopped_) {
    // The longest tail that a stop string begins with has to wait.
    size_t tail = 0;
    for (const std::string& stop : stops_) {
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > tail; --n) {
        if (held_.ends_with(std::string_view(stop).substr(0, n))) tail = n;
      }
    }
    end = held_.size() - (all ? 0 : tail);
  }
  std::string text = held_.substr(0, end);
  held_.erase(0, end);
  return text;
}

}  // namespace zeno::cli
