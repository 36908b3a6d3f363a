// The page as text: what a browser without script, a search or another program finds in it. tests/report
// looks at it in a browser.
#include "zeno/report/page/report_html.h"
#include "tests/support/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/report/example_run.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/error.h"
#include "zeno/page/html_text.h"
#include "zeno/report/page/report_json.h"
#include "zeno/report/page/report_memory.h"

namespace zeno::report {
namespace {

using nlohmann::json;
using page::html_text, page::json_in_html;

using test::has;

TEST(HtmlText, StaysText) {
  EXPECT_EQ(html_text("a < b && \"c\" > 'd'"), "a &lt; b &amp;&amp; &quot;c&quot; &gt; &#39;d&#39;");
  EXPECT_EQ(html_text("caf\xc3\xa9\n\t"), "caf\xc3\xa9\n\t");
  EXPECT_EQ(html_text("\xff\x01|"), "\xef\xbf\xbd\xef\xbf\xbd|");
  EXPECT_EQ(json_in_html(R"({"a":"</script><!--&"})"), R"({"a":"\u003c/script\u003e\u003c!--\u0026"})");
  EXPECT_EQ(json::parse(json_in_html(R"({"a":"</script>"})")).at("a"), "</script>");
}

TEST(ReportHtml, HasItsNumbersWithoutScript) {
  const std::string page = report_html(test::example_run(400, 2));
  for (const char* part :
       {"llama-160m on questions.jsonl", "Best eval loss", "Token accuracy", "81.7 %", "Memory per rank",
        "activations", "waits for gather blocks.0", "loss 3.1 is 8 deviations", "ds.json:12",
        "9f2c4be1a07d3355", "runs/answers", "prefers-color-scheme", "name=\"viewport\""}) {
    EXPECT_TRUE(has(page, part)) << part;
  }
}

TEST(ReportHtml, NeedsNoNetwork) {
  const std::string page = report_html(test::example_run(10, 1));
  EXPECT_TRUE(has(page, "Content-Security-Policy\" content=\"default-src 'none';"));
  for (const char* part : {" src=", "@import", "url(", "fetch(", "XMLHttpRequest", "<link", "https:"}) {
    EXPECT_FALSE(has(page, part)) << part;
  }
  // The one address in it is the name of the SVG namespace, which is never opened.
  const size_t first = page.find("http:");
  EXPECT_EQ(page.substr(first, 26), "http://www.w3.org/2000/svg");
  EXPECT_EQ(page.find("http:", first + 1), std::string::npos);
}

TEST(ReportHtml, LeavesOutWhatARunDoesNotKnow) {
  const std::string page = report_html({.title = "bare"});
  for (const char* part : {"<figure", "Best eval loss", "Exposed", "Settings", "Events", "Answers", "nan"}) {
    EXPECT_FALSE(has(page.substr(page.find("<body>"), page.find("<script") - page.find("<body>")), part))
        << part;
  }
  const json data = json::parse(report_json({.title = "bare"}));
  EXPECT_EQ(data, (json{{"charts", json::array()}, {"memory", json::array()}, {"timeline", nullptr}}));
}

TEST(ReportHtml, StaysSmallForLongRuns) {
  const std::string page = report_html(test::example_run(100'000, 64));
  EXPECT_LT(page.size(), size_t(1) << 20);
}

TEST(ReportHtml, ReplacesTheFileInOneStep) {
  const test::TempDir folder;
  const Path path = folder.write("report.html", "old");
  const ReportData data = test::example_run(5, 1);
  write_report(path, data);
  EXPECT_EQ(read_file(path), report_html(data));
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"report.html"});
}

TEST(ReportMemory, AnAccountTravelsBetweenRanks) {
  Ledger ledger;
  ledger.book(Tier::device, Purpose::moments, 1000);
  ledger.book(Tier::device, Purpose::gathered, 500);
  ledger.book(Tier::host, Purpose::staging, 70);
  ledger.take(Tier::device, Purpose::moments, 900);
  ledger.take(Tier::device, Purpose::gathered, 400);
  ledger.give_back(Tier::device, Purpose::gathered, 400);
  ledger.take(Tier::device, Purpose::gathered, 100);
  const RankMemory memory = unpack_memory(pack_memory(ledger));
  const auto& device = memory.by_purpose[size_t(Tier::device)];
  EXPECT_EQ(device[size_t(Purpose::moments)].planned, 1000u);
  EXPECT_EQ(device[size_t(Purpose::moments)].peak, 900u);
  EXPECT_EQ(device[size_t(Purpose::gathered)].peak, 400u);
  EXPECT_EQ(memory.total[size_t(Tier::device)].planned, 1500u);
  EXPECT_EQ(memory.total[size_t(Tier::device)].peak, 1300u);
  EXPECT_EQ(memory.total[size_t(Tier::host)].planned, 70u);
  EXPECT_EQ(memory.total[size_t(Tier::host)].peak, 0u);
  EXPECT_THROW(unpack_memory("short"), Error);

  const ReportData data{.memory = {memory, memory}};
  EXPECT_EQ(tiers_in_use(data), (std::vector{Tier::device, Tier::host}));
  const json tier = json::parse(report_json(data)).at("memory").at(0);
  EXPECT_EQ(tier.at("purposes"), (json{"moments", "gathered"}));
  EXPECT_EQ(tier.at("ranks").at(1).at("peak"), (json{900, 400}));
}

}  // namespace
}  // namespace zeno::report
