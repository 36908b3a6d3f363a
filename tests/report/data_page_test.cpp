// The page of `zeno data --html` in a real browser: what is marked, nothing cut off, nothing run that a text
// holds. Skipped where Chromium is not installed.
#include "zeno/report/data_page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/temp_dir.h"

namespace zeno::report {
namespace {

using nlohmann::json;

DataPage example() {
  DataPage page;
  page.title = "chat </script><script>window.hacked=1</script>";
  page.command = "zeno data --model m --data chat.jsonl";
  data::PreviewSample sample;
  sample.origin = "a/very/long/path/that/does/not/fit/a/telephone/at/all/whatever/you/try/chat.jsonl:7";
  sample.tokens = 30;
  sample.trained = 7;
  sample.record_tokens = 42;
  sample.pieces = {{"<img src=x onerror=window.hacked=1>\nHi & bye\n", false},
                   {"An answer\nof two lines", true},
                   {std::string(300, 'x'), false}};
  page.samples = {sample, sample};
  page.counts.total = {.samples = 9, .tokens = 2000, .trained = 500, .cut = 1, .cut_tokens = 40};
  page.counts.files = {page.counts.total, page.counts.total};
  page.counts.files[0].path = "a.jsonl";
  page.counts.files[1].path = "<b>.jsonl";
  page.counts.lengths = {
      .median = 20, .p90 = 30, .p99 = 40, .longest = 50, .histogram = {0, 1, 8, 0, 3, 2, 1}};
  page.counts.packing = {.seq_len = 16, .samples = 9, .sequences = 150, .tokens = 2000};
  page.counts.build.unused["<i>id"] = 1200;
  page.counts.build.records = 1300;
  page.counts.build.nothing_to_learn = 4;
  return page;
}

constexpr const char* kProbe = R"js(
const luminance = text => {
  const [r, g, b] = text.match(/\d+/g).map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
async function probe(width) {
  const frame = document.createElement('iframe');
  frame.style = `border:0;width:${width}px;height:900px`;
  frame.src = 'data.html';
  document.body.append(frame);
  await new Promise(done => { frame.onload = done; });
  const page = frame.contentDocument, window = frame.contentWindow, style = e => window.getComputedStyle(e);
  const text = e => e.textContent, mark = page.querySelector('.sample mark');
  const [low, high] = [luminance(style(mark).color), luminance(style(mark).backgroundColor)].sort((a, b) => a - b);
  return {
    errors: page.documentElement.dataset.errors, hacked: 'hacked' in window, images: page.querySelectorAll('img').length,
    loaded: window.performance.getEntriesByType('resource').length,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    samples: page.querySelectorAll('.sample').length, trained: text(mark), whole: text(page.querySelector('.sample pre')),
    sections: [...page.querySelectorAll('h2')].map(text), items: [...page.querySelectorAll('li')].map(text),
    bars: [...page.querySelectorAll('.bars div')].map(e => Math.round(100 * e.offsetWidth / e.parentElement.clientWidth)),
    long: page.querySelectorAll('.long').length, contrast: (high + 0.05) / (low + 0.05),
    numbers: text(page.querySelector('.tiles')),
  };
}
Promise.all([1280, 360].map(probe)).then(answers => {
  const text = document.createElement('pre');
  text.id = 'answers';
  text.textContent = JSON.stringify(answers).replace(/[<>&]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  document.body.append(text);
});
)js";

TEST(DataPageInABrowser, MarksTrainedText) {
  std::string browser = test::run_command("command -v chromium || command -v chromium-browser").output;
  while (!browser.empty() && browser.back() == '\n') browser.pop_back();
  if (browser.empty()) GTEST_SKIP() << "Chromium is not installed";
  const test::TempDir folder;
  write_data_page(folder.path() / "data.html", example());
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
    EXPECT_EQ(page.at("hacked"), false);
    EXPECT_EQ(page.at("images"), 0);
    EXPECT_EQ(page.at("loaded"), 0);
    EXPECT_LE(page.at("overflow"), 0);
    EXPECT_EQ(page.at("samples"), 2);
    EXPECT_EQ(page.at("trained"), "An answer\nof two lines");
    EXPECT_EQ(page.at("whole"), "<img src=x onerror=window.hacked=1>\nHi & bye\nAn answer\nof two lines" +
                                    std::string(300, 'x') + "✂ 12 tokens cut off");
    EXPECT_EQ(page.at("sections"),
              json::parse(R"(["Left out", "Unused fields", "Files", "Lengths", "Samples"])"));
    EXPECT_EQ(page.at("items"),
              json::parse(R"(["4 with nothing to train on", "'<i>id' in 1,200 of 1,300 records"])"));
    EXPECT_EQ(page.at("bars").size(), 6u);
    EXPECT_EQ(page.at("bars").at(1), *std::ranges::max_element(page.at("bars")));
    EXPECT_EQ(page.at("long"), 2) << "records of more than 16 tokens";
    EXPECT_GE(page.at("contrast"), 4.5);
    EXPECT_NE(page.at("numbers").get<std::string>().find("25.0 %"), std::string::npos);
  }
}

}  // namespace
}  // namespace zeno::report
