#include "zeno/report/page/report_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "zeno/base/error.h"

namespace zeno::report {
namespace {

constexpr double kUsPerMs = 1000;
constexpr double kNoticeableMs = 0.001;  // shorter waits are the cost of looking at an event

// "waits for gather blocks.3": the instruction that a wait was for is the last one of its list to end.
std::string wait_name(const zero::Program& program, const zero::UnitTable& units, const zero::Instruction& in,
                      std::span<const zero::InstructionTime> times) {
  if (in.waits.empty()) return "waits";
  const int last = *std::max_element(in.waits.begin(), in.waits.end(), [&](int a, int b) {
    return times[size_t(a)].end < times[size_t(b)].end;
  });
  return fmt::format("waits for {}", zero::describe(program.instructions[size_t(last)], units));
}

}  // namespace

Timeline timeline_of(const zero::Program& program, const zero::UnitTable& units,
                     std::span<const zero::InstructionTime> times) {
  Timeline timeline;
  if (times.empty()) return timeline;
  ensure(times.size() == program.instructions.size(), "[report] got {} times for {} instructions",
         times.size(), program.instructions.size());
  double begin = std::numeric_limits<double>::max(), end = 0;
  for (const zero::InstructionTime& time : times) {
    if (time.end == 0) continue;  // on a lane of the host, beside a GPU: not timed
    begin = std::min(begin, time.start);
    end = std::max(end, time.end);
  }
  timeline.duration_ms = (end - begin) / kUsPerMs;
  const auto ms = [&](double us) { return std::max(0.0, us - begin) / kUsPerMs; };
  for (const zero::Lane lane : {zero::Lane::compute, zero::Lane::gather, zero::Lane::reduce}) {
    const std::string name(zero::name_of(lane));
    timeline.lanes.push_back(name);
    for (size_t i = 0; i < times.size(); ++i) {
      const zero::Instruction& in = program.instructions[i];
      if (in.lane != lane) continue;
      const zero::InstructionTime& time = times[i];
      timeline.spans.push_back({name, zero::describe(in, units), ms(time.start), ms(time.end)});
      // Without overlap, ranks talk on the compute lane itself.
      if (lane == zero::Lane::compute && (in.is<zero::Gather>() || in.is<zero::Reduce>()))
        timeline.waits.push_back({name, zero::describe(in, units), ms(time.start), ms(time.end)});
      if (lane != zero::Lane::compute || ms(time.start) - ms(time.ready) < kNoticeableMs) continue;
      timeline.waits.push_back({name, wait_name(program, units, in, times), ms(time.ready), ms(time.start)});
    }
  }
  return timeline;
}

std::vector<TimelineSpan> merge_narrow(std::vector<TimelineSpan> spans, double duration_ms, int pixels) {
  const double pixel = duration_ms / pixels;
  std::vector<TimelineSpan> merged;
  std::string first;  // name of the last span's first member
  int others = 0;
  for (TimelineSpan& span : spans) {
    TimelineSpan* last = merged.empty() ? nullptr : &merged.back();
    if (last == nullptr || last->lane != span.lane || span.end_ms - last->begin_ms >= pixel) {
      first = span.name;
      others = 0;
      merged.push_back(std::move(span));
      continue;
    }
    last->end_ms = span.end_ms;
    last->name = fmt::format("{} and {} more", first, ++others);
  }
  return merged;
}

}  // namespace zeno::report
