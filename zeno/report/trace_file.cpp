#include "zeno/report/trace_file.h"

#include <fmt/core.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/report/json_text.h"

namespace zeno::report {
namespace {

// The format numbers its tracks: ids by (rank, stream), in the order of first use within a rank.
using Tracks = std::map<std::pair<int, std::string>, int>;

Tracks number_tracks(std::span<const TraceSpan> spans) {
  Tracks tracks;
  std::map<int, int> used;
  for (const TraceSpan& span : spans) {
    const auto [track, added] = tracks.try_emplace({span.rank, span.stream}, 0);
    if (added) track->second = ++used[span.rank];
  }
  return tracks;
}

std::string metadata(std::string_view what, int rank, int track, const std::string& value) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, rank, track, value);
}

// Times to the nanosecond, written plainly: not every viewer reads exponents.
std::string event(const TraceSpan& span, int track) {
  std::string args;
  if (!span.unit.empty()) args += fmt::format(R"("unit":{})", json_string(span.unit));
  if (span.micro_batch >= 0) {
    args += fmt::format(R"({}"micro_batch":{})", args.empty() ? "" : ",", span.micro_batch);
  }
  return fmt::format(
      R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
      json_string(span.name), json_string(span.category), span.rank, track, span.start_us, span.duration_us,
      args);
}

}  // namespace

void write_trace(const Path& path, std::span<const TraceSpan> spans) {
  const Tracks tracks = number_tracks(spans);
  std::set<int> ranks;
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  auto add = [&, first = true](const std::string& line) mutable {
    text += std::exchange(first, false) ? "\n" : ",\n";
    text += line;
  };
  for (const auto& [key, track] : tracks) {
    const auto& [rank, stream] = key;
    if (ranks.insert(rank).second) {
      add(metadata("process_name", rank, 0, fmt::format(R"("name":"rank {}")", rank)));
      add(metadata("process_sort_index", rank, 0, fmt::format(R"("sort_index":{})", rank)));
    }
    add(metadata("thread_name", rank, track, fmt::format(R"("name":{})", json_string(stream))));
    add(metadata("thread_sort_index", rank, track, fmt::format(R"("sort_index":{})", track)));
  }
  for (const TraceSpan& span : spans) {
    ensure(std::isfinite(span.start_us) && std::isfinite(span.duration_us) && span.duration_us >= 0,
           "[trace] {} of rank {}: got start {} and duration {}, expected finite times", span.name, span.rank,
           span.start_us, span.duration_us);
    add(event(span, tracks.at({span.rank, span.stream})));
  }
  text += "\n]}\n";
  replace_file(path, text);
}

}  // namespace zeno::report
