// report.html in a real browser, without a window: what is drawn, what keys and switches do, no overflow on a
// telephone, no network, no errors, enough contrast in both schemes. Skipped where Chromium is not installed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/report/example_run.h"
#include "tests/support/command.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/file.h"
#include "zeno/report/page/report_html.h"

namespace zeno::report {
namespace {

using nlohmann::json;

std::string browser() {
  std::string path = test::run_command("command -v chromium || command -v chromium-browser").output;
  while (!path.empty() && path.back() == '\n') path.pop_back();
  return path;
}

struct PageCase {
  std::string name;
  ReportData data;
  int width = 1280;
};

enum class Scheme { dark = 0, light = 1 };  // numbers of the browser's setting

// Opens all pages in one browser and returns probe.js's answers by name.
json open_pages(const std::vector<PageCase>& pages, Scheme scheme) {
  const test::TempDir folder;
  json cases = json::array();
  for (const PageCase& page : pages) {
    write_report(folder.path() / (page.name + ".html"), page.data);
    cases.push_back({{"name", page.name}, {"file", page.name + ".html"}, {"width", page.width}});
  }
  const std::string probe = read_file(Path(ZENO_SOURCE_DIR) / "tests/report/probe.js");
  const Path index = folder.write("index.html", "<!doctype html><body><script>const cases = " + cases.dump() +
                                                    ";</script><script>" + probe + "</script>");
  const test::CommandResult result = test::run_command(
      fmt::format("timeout 60 {} --headless --no-sandbox --disable-gpu --allow-file-access-from-files "
                  "--enable-logging=stderr "
                  "--user-data-dir={}/profile --blink-settings=preferredColorScheme={} --dump-dom file://{}",
                  browser(), folder.path().string(), int(scheme), index.string()));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output.find(":CONSOLE"), std::string::npos) << result.output;
  const std::string open = "<pre id=\"answers\">";
  const size_t begin = result.output.find(open), end = result.output.find("</pre>", begin);
  if (begin == std::string::npos || end == std::string::npos) {
    ADD_FAILURE() << "no answers from the pages:\n" << result.output;
    return {};
  }
  return json::parse(result.output.substr(begin + open.size(), end - begin - open.size()));
}

// What holds for every page.
void expect_sound(const std::string& name, const json& page) {
  SCOPED_TRACE(name);
  EXPECT_EQ(page.at("ready"), true);
  EXPECT_EQ(page.at("errors"), "0");
  EXPECT_EQ(page.at("errors_after"), "0");
  EXPECT_EQ(page.at("loaded"), 0);
  EXPECT_EQ(page.at("images"), 0);
  EXPECT_EQ(page.at("scripts"), 2);  // data and drawing
  EXPECT_EQ(page.at("injected"), false);
  EXPECT_LE(page.at("content_width"), page.at("width"));
  EXPECT_EQ(page.at("bad_labels"), json::array());
  EXPECT_GE(page.at("contrasts").at("text"), 4.5);
  EXPECT_GE(page.at("contrasts").at("marks"), 3.0);
}

ReportData run_with_gaps() {
  ReportData data = test::example_run(60, 2);
  data.steps = {};
  for (int64_t i = 1; i <= 60; ++i) {
    ReportStep step = test::example_step(i, 60);
    if (i > 20 && i <= 26) step.loss = step.grad_norm = std::nan("");
    if (i == 41) step.grad_norm = INFINITY;
    data.steps.add(step);
  }
  data.evals.clear();
  return data;
}

// Names that would be markup if anybody let them.
ReportData hostile_run() {
  const std::string bad =
      "</script><script>window.hacked=1</script><img src=x onerror=hacked=1>\" onload=\"hacked=1 ]]> <!-- "
      "\xff\x01";
  ReportData data = test::example_run(30, 2);
  data.title = data.command = data.model = data.machine = data.made = bad;
  data.settings = {{bad, bad, bad}};
  data.events = {{10, ReportEvent::Kind::warning, bad}};
  data.result.status = data.result.out_folder = data.result.weights_hash = bad;
  for (TimelineSpan& span : data.timeline.spans) span.name += bad;
  for (TimelineSpan& span : data.timeline.waits) span.name += bad;
  return data;
}

class ReportPage : public testing::Test {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "Chromium is not installed";
  }
};

TEST_F(ReportPage, DrawsWhatTheRunDid) {
  const json pages = open_pages({{"typical", test::example_run(400, 4)},
                                 {"narrow", test::example_run(400, 4), 360},
                                 {"one_step", test::example_run(1, 1), 700},
                                 {"gaps", run_with_gaps()},
                                 {"hostile", hostile_run(), 360},
                                 {"long", test::example_run(100000, 64), 360},
                                 {"empty", ReportData{.title = "nothing"}, 360}},
                                Scheme::light);
  ASSERT_EQ(pages.size(), 7u);
  for (const auto& [name, page] : pages.items()) expect_sound(name, page);

  const json& typical = pages.at("typical");
  EXPECT_EQ(typical.at("contrasts").at("dark"), false);
  const json& loss = typical.at("curves").at("loss");
  EXPECT_EQ(loss.at("points"), (json{{"training", 400}, {"training, smoothed", 400}, {"evaluation", 11}}));
  EXPECT_EQ(loss.at("events"), 3);
  EXPECT_EQ(typical.at("curves").size(), 6u);
  EXPECT_EQ(typical.at("curves").at("lr").at("points").at("learning rate"), 400);
  EXPECT_EQ(typical.at("planned"), 4 * 11);  // purposes in use
  EXPECT_EQ(typical.at("peak"), 4 * 11);
  EXPECT_EQ(typical.at("limits"), 1);
  EXPECT_EQ(typical.at("lanes"), 3);
  const Timeline timeline = test::example_run(400, 4).timeline;
  EXPECT_EQ(typical.at("spans"), timeline.spans.size());
  EXPECT_EQ(typical.at("waits"), timeline.waits.size());
  EXPECT_GE(typical.at("bare"), timeline.waits.size());

  const json& one = pages.at("one_step");
  EXPECT_EQ(one.at("curves").at("loss").at("points").at("training"), 1);
  EXPECT_EQ(one.at("curves").at("loss").at("dots"), 1);  // a line of one point would not be seen

  const json& gaps = pages.at("gaps").at("curves");
  EXPECT_EQ(gaps.at("loss").at("points").at("training"), 54);
  EXPECT_EQ(gaps.at("loss").at("crosses"), 6);
  EXPECT_EQ(gaps.at("loss").at("pieces"), (json{2, 2}));
  EXPECT_EQ(gaps.at("grad_norm").at("crosses"), 7);
  EXPECT_EQ(gaps.count("accuracy"), 0u);

  EXPECT_NE(pages.at("hostile").at("heading").get<std::string>().find("</script><script>"),
            std::string::npos);

  const json& many = pages.at("long");
  EXPECT_LE(many.at("curves").at("loss").at("points").at("training"), 1510);
  EXPECT_GE(many.at("curves").at("loss").at("points").at("training"), 1000);
  EXPECT_EQ(many.at("peak"), 64 * 11);
  EXPECT_EQ(many.at("plan_lines"), 64);  // no room for a bar of its own
  EXPECT_TRUE(pages.at("empty").at("curves").empty());
}

TEST_F(ReportPage, AnswersKeysAndSwitches) {
  const ReportData data = test::example_run(400, 4);
  const json pages = open_pages({{"typical", data}, {"narrow", data, 360}}, Scheme::dark);
  for (const char* name : {"typical", "narrow"}) {
    expect_sound(name, pages.at(name));
    const json& use = pages.at(name).at("use");
    EXPECT_EQ(pages.at(name).at("contrasts").at("dark"), true);
    EXPECT_EQ(use.at("first").get<std::string>().find("step 1  "), 0u) << use.at("first");
    EXPECT_EQ(use.at("second").get<std::string>().find("step 2  "), 0u) << use.at("second");
    const std::string last = use.at("last");
    EXPECT_EQ(last.find("step 400"), 0u) << last;
    EXPECT_NE(last.find(fmt::format("{:.4g}", data.steps.samples().back().loss)), std::string::npos) << last;
    EXPECT_NE(last.find(fmt::format("evaluation {:.4g}", data.evals.back().loss)), std::string::npos) << last;
    EXPECT_EQ(use.at("log_changes_axis"), true);
    EXPECT_EQ(use.at("curves_lost"), 1);
    EXPECT_NE(use.at("first_span").get<std::string>().find("waits for gather blocks.0"), std::string::npos)
        << use.at("first_span");
    EXPECT_GT(use.at("zoom_hides"), 0);
    EXPECT_EQ(use.at("zoom_all"), 0);
    EXPECT_NE(use.at("first_rank").get<std::string>().find("rank 0: peak "), std::string::npos);
  }
}

}  // namespace
}  // namespace zeno::report
