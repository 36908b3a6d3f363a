#include "zeno/report/trace_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::report {
namespace {

using nlohmann::json;

json written(const std::vector<TraceSpan>& spans) {
  const test::TempDir folder;
  const Path path = folder.write("trace.json", "old");
  write_trace(path, spans);
  return json::parse(read_file(path)).at("traceEvents");
}

TraceSpan span(int rank, std::string stream, double start) {
  return {.name = "forward",
          .category = "compute",
          .rank = rank,
          .stream = std::move(stream),
          .start_us = start,
          .duration_us = 2.5,
          .unit = "blocks.3",
          .micro_batch = 1};
}

TEST(Trace, HasAProcessPerRankAndAThreadPerStream) {
  const json events =
      written({span(0, "compute", 0), span(1, "compute", 1), span(0, "gather", 2), span(0, "compute", 3)});
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  std::vector<std::string> used;
  for (const json& event : events) {
    const std::pair<int, int> track{event.at("pid"), event.at("tid")};
    if (event.at("name") == "process_name") processes[track.first] = event.at("args").at("name");
    if (event.at("name") == "thread_name") threads[track] = event.at("args").at("name");
    if (event.at("ph") == "X") used.push_back(processes.at(track.first) + "/" + threads.at(track));
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}}));
  EXPECT_EQ(threads.size(), 3u);
  EXPECT_EQ(used, (std::vector<std::string>{"rank 0/compute", "rank 1/compute", "rank 0/gather",
                                            "rank 0/compute"}));
}

TEST(Trace, KeepsTheValuesOfASpan) {
  TraceSpan odd = span(0, "a \"stream\"\n", 1e12 + 0.125);
  odd.name = "gather \\ \xff";
  const json events = written({odd});
  const json& event = events.back();
  EXPECT_EQ(event.at("ph"), "X");
  EXPECT_EQ(event.at("name"), "gather \\ \ufffd");
  EXPECT_EQ(event.at("cat"), "compute");
  EXPECT_EQ(event.at("ts").get<double>(), 1e12 + 0.125);
  EXPECT_EQ(event.at("dur").get<double>(), 2.5);
  EXPECT_EQ(event.at("args"), (json{{"unit", "blocks.3"}, {"micro_batch", 1}}));

  odd.unit.clear();
  EXPECT_EQ(written({odd}).back().at("args"), (json{{"micro_batch", 1}}));
  odd.micro_batch = -1;
  EXPECT_EQ(written({odd}).back().at("args"), json::object());
}

TEST(Trace, AnEmptyTraceIsValid) { EXPECT_TRUE(written({}).empty()); }

TEST(Trace, RefusesTimesThatAreNotTimes) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    test::expect_error(ErrorKind::internal, {"forward"}, [&] { written({span(0, "s", bad)}); });
  }
  test::expect_error(ErrorKind::io, {"/no/such"}, [] { write_trace("/no/such/trace.json", {}); });
}

}  // namespace
}  // namespace zeno::report
