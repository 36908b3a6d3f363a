// The page of a plan in a real browser: what is drawn, what pointer, keys and switches do, nothing cut off.
// Skipped where Chromium is not installed.
#include "zeno/plan/report/plan_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/file.h"

namespace zeno::plan {
namespace {

using nlohmann::json;

PlanRow row(Setting setting, size_t scale, bool fits) {
  PlanRow row;
  row.setting = setting;
  for (int p = 0; p < kPurposes; ++p)
    row.bytes.by_purpose[size_t(Tier::device)][size_t(p)] = scale * size_t(p + 1) << 30;
  if (setting.homes != Homes::device)
    row.bytes.by_purpose[size_t(Tier::host)][size_t(Purpose::moments)] = size_t(100) << 30;
  row.missing_device = fits ? 0 : 1;
  return row;
}

PlanReport example() {
  PlanReport report;
  report.title = "model </script><script>window.hacked=1</script>";
  report.command = "zeno plan";
  report.params = 7.5e9;
  report.ranks = 64;
  report.limits.device = size_t(160) << 30;
  using nn::Recompute;
  report.rows = {row({1, Homes::device, Recompute::none, 8}, 2, true),
                 row({1, Homes::device, Recompute::selective, 8}, 1, true),
                 row({3, Homes::all_host, Recompute::selective, 64}, 1, true),
                 row({0, Homes::device, Recompute::full, 1}, 30, false)};
  report.chosen = report.rows[0];
  return report;
}

constexpr const char* kProbe = R"js(
async function probe(width) {
  const frame = document.createElement('iframe');
  frame.style = `border:0;width:${width}px;height:900px`;
  frame.src = 'plan.html';
  document.body.append(frame);
  await new Promise(done => { frame.onload = done; });
  const page = frame.contentDocument, figure = page.getElementById('plan-device'), plot = figure.querySelector('.plot');
  const cut = () => [...page.querySelectorAll('svg text')].filter(text => {
    const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
    return box.left < svg.left - 1 || box.right > svg.right + 1;
  }).map(text => text.textContent);
  const rows = () => figure.querySelectorAll('.row').length, answers = { rows: rows(), cut: cut() };
  const box = plot.getBoundingClientRect();
  plot.dispatchEvent(new frame.contentWindow.PointerEvent('pointermove', { clientX: box.left + 90, clientY: box.top + 30 }));
  const tip = figure.querySelector('.tip');
  answers.tip = tip.hidden ? '' : tip.textContent;
  answers.tip_inside = tip.getBoundingClientRect().right <= page.documentElement.clientWidth + 1;
  plot.dispatchEvent(new frame.contentWindow.KeyboardEvent('keydown', { key: 'End' }));
  answers.last = figure.querySelector('.readout').textContent;
  figure.querySelector('input[name=all]').click();
  answers.all = rows();
  figure.querySelector('input[name=fits]').click();
  answers.fitting = rows();
  answers.host = page.querySelectorAll('#plan-host .row').length;
  answers.limits = page.querySelectorAll('.limit').length;
  answers.errors = page.documentElement.dataset.errors;
  answers.ready = page.documentElement.dataset.ready;
  answers.hacked = 'hacked' in frame.contentWindow;
  answers.overflow = page.documentElement.scrollWidth - page.documentElement.clientWidth;
  return answers;
}
Promise.all([1280, 800, 360].map(probe)).then(answers => {
  const text = document.createElement('pre');
  text.id = 'answers';
  text.textContent = JSON.stringify(answers);
  document.body.append(text);
});
)js";

TEST(PlanPageInABrowser, DrawsAndAnswers) {
  std::string browser = test::run_command("command -v chromium || command -v chromium-browser").output;
  while (!browser.empty() && browser.back() == '\n') browser.pop_back();
  if (browser.empty()) GTEST_SKIP() << "Chromium is not installed";
  const test::TempDir folder;
  write_page(folder.path() / "plan.html", example());
  const Path index =
      folder.write("index.html", fmt::format("<!doctype html><body><script>{}</script>", kProbe));
  const test::CommandResult result = test::run_command(
      fmt::format("timeout 60 {} --headless --no-sandbox --disable-gpu --allow-file-access-from-files "
                  "--virtual-time-budget=5000 --user-data-dir={}/profile --dump-dom file://{}",
                  browser, folder.path().string(), index.string()));
  const std::string open = "<pre id=\"answers\">";
  const size_t begin = result.output.find(open), end = result.output.find("</pre>", begin);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << result.output;
  for (const json& page : json::parse(result.output.substr(begin + open.size(), end - begin - open.size()))) {
    EXPECT_EQ(page.at("errors"), "0");
    EXPECT_EQ(page.at("ready"), "1");
    EXPECT_EQ(page.at("hacked"), false);
    EXPECT_EQ(page.at("cut"), json::array());
    EXPECT_LE(page.at("overflow"), 0);
    EXPECT_EQ(page.at("rows"), 3) << "the best of each stage and home";
    EXPECT_EQ(page.at("all"), 4);
    EXPECT_EQ(page.at("fitting"), 3);
    EXPECT_EQ(page.at("host"), 1);
    EXPECT_EQ(page.at("limits"), 1);
    EXPECT_NE(page.at("tip").get<std::string>().find("stage 1batch 8, fits"), std::string::npos)
        << page.at("tip");
    EXPECT_EQ(page.at("tip_inside"), true);
    EXPECT_EQ(page.at("last").get<std::string>().find("stage 0, batch 1, recompute full: 2.29 TiB"), 0u)
        << page.at("last");
  }
}

}  // namespace
}  // namespace zeno::plan
