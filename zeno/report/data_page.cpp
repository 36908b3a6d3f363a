#include "zeno/report/data_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/base/quantity.h"
#include "zeno/page/html_page.h"
#include "zeno/page/html_table.h"
#include "zeno/page/html_text.h"

namespace zeno::report {
namespace {

using page::html_text, page::Table, page::tile;

std::string section(std::string_view id, std::string_view title, const std::string& content) {
  return fmt::format("<section aria-labelledby=\"h-{0}\">\n<h2 id=\"h-{0}\">{1}</h2>\n{2}</section>\n", id,
                     title, content);
}

std::string card(const std::string& content) {
  return fmt::format("<div class=\"card\">{}</div>\n", content);
}

std::string intro(const DataPage& page) {
  std::string out = fmt::format("<header>\n<h1>{}</h1>\n", html_text(page.title));
  const std::string& layout = page.counts.build.layout;
  if (!layout.empty()) out += fmt::format("<p class=\"soft\">{}</p>\n", html_text(layout));
  if (!page.command.empty())
    out += fmt::format("<pre aria-label=\"command\">{}</pre>\n", html_text(page.command));
  return out + "</header>\n";
}

std::string tiles(const data::PreviewCounts& counts) {
  const data::FileCounts& total = counts.total;
  const data::PackReport& packing = counts.packing;
  std::string out = "<dl class=\"tiles\">\n";
  out += tile("Samples", format_count(total.samples));
  out += tile("Tokens", format_count(total.tokens));
  out += tile("Trained tokens", format_percent(total.trained_share()), format_count(total.trained));
  out += tile("Cut", format_count(total.cut),
              total.cut > 0 ? fmt::format("{} tokens lost", format_count(total.cut_tokens)) : "");
  out += tile("Longest", format_count(counts.lengths.longest), counts.lengths.longest_origin);
  out += tile("Sequences", format_count(packing.sequences),
              fmt::format("of {} tokens", format_count(packing.seq_len)));
  return out + tile("Filled", format_percent(packing.fill()), "the rest is padding") + "</dl>\n";
}

std::string text_list(std::string_view id, std::string_view title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string list = "<ul>\n";
  for (const std::string& line : lines) list += fmt::format("<li>{}</li>\n", html_text(line));
  return section(id, title, card(list + "</ul>\n"));
}

std::string file_table(const data::PreviewCounts& counts) {
  Table table{"Lengths are in tokens, before cutting.",
              {"file", "samples", "tokens", "trained", "share", "longest", "cut", "left out"},
              {}};
  const auto add = [&](const data::FileCounts& file, const std::string& name) {
    table.rows.push_back({name, format_count(file.samples), format_count(file.tokens),
                          format_count(file.trained), format_percent(file.trained_share()),
                          format_count(file.longest), format_count(file.cut), format_count(file.left_out)});
  };
  for (const data::FileCounts& file : counts.files) add(file, file.path);
  if (counts.files.size() > 1) add(counts.total, "all files");
  return section("files", "Files", card(to_html(table)));
}

// Bars of the share of records; the rows that --seq-len cuts are marked.
std::string histogram(const data::PreviewCounts& counts) {
  const std::vector<int64_t>& bins = counts.lengths.histogram;
  if (bins.empty()) return "";
  const double most = double(*std::ranges::max_element(bins));
  const auto first = std::ranges::find_if(bins, [](int64_t n) { return n > 0; }) - bins.begin();
  std::string rows;
  for (auto i = size_t(first); i < bins.size(); ++i) {
    const int64_t low = i == 0 ? 1 : (int64_t(1) << (i - 1)) + 1, high = int64_t(1) << i;
    const bool long_ones = low > counts.packing.seq_len;
    rows += fmt::format(
        "<tr{}><th scope=\"row\">{}</th><td class=\"bars\"><div style=\"width:{:.2f}%\"></div></td>"
        "<td>{}</td></tr>\n",
        long_ones ? " class=\"long\"" : "",
        low == high ? format_count(low) : fmt::format("{}–{}", format_count(low), format_count(high)),
        100 * double(bins[i]) / most, format_count(bins[i]));
  }
  const data::LengthCounts& lengths = counts.lengths;
  const std::string note = fmt::format(
      "<p class=\"small soft\">Records by their length in tokens, before cutting. Half of them have at most "
      "{} tokens, 90 % at most {}, 99 % at most {}. Red: longer than --seq-len {}.</p>\n",
      format_count(lengths.median), format_count(lengths.p90), format_count(lengths.p99),
      counts.packing.seq_len);
  return section(
      "lengths", "Lengths",
      card(note + fmt::format("<div class=\"scroll\"><table "
                              "class=\"histogram\"><thead><tr><th "
                              "scope=\"col\">tokens</th><th></th><th "
                              "scope=\"col\">records</th></tr></thead>\n<tbody>{}</tbody></table></div>\n",
                              rows)));
}

// Line ends are drawn by the style, so that copied text does not have them.
std::string with_line_ends(const std::string& html) {
  std::string out;
  for (const char c : html) out += c == '\n' ? "<i class=\"end\"></i>\n" : std::string(1, c);
  return out;
}

std::string cut_note(int64_t tokens, const data::PreviewSample& sample) {
  if (tokens == 0) return "";
  return fmt::format("<span class=\"gone\">✂ {} tokens {}</span>", format_count(tokens),
                     sample.rest_is_trained ? "in another sample" : "cut off");
}

std::string sample_card(const data::PreviewSample& sample) {
  std::string text;
  for (const data::PreviewPiece& piece : sample.pieces) {
    const std::string body = with_line_ends(html_text(piece.text));
    text += piece.trained ? fmt::format("<mark>{}</mark>", body) : body;
  }
  return fmt::format(
      "<article class=\"card sample\">\n<p class=\"small\"><b>{}</b> <span class=\"soft\">{} tokens, {} "
      "trained</span></p>\n<pre tabindex=\"0\">{}{}{}</pre>\n</article>\n",
      html_text(sample.origin), format_count(sample.tokens), format_count(sample.trained),
      cut_note(sample.first_token, sample), text, cut_note(sample.missing_behind(), sample));
}

std::string sample_section(const DataPage& page) {
  if (page.samples.empty()) return "";
  std::string cards = fmt::format(
      "<p class=\"small soft\">The first {} of {}, as the model sees them. <mark>Trained text</mark> is "
      "marked.</p>\n",
      format_count(int64_t(page.samples.size())), format_count(page.counts.total.samples));
  for (const data::PreviewSample& sample : page.samples) cards += sample_card(sample);
  return section("samples", "Samples", cards);
}

}  // namespace

std::string data_page(const DataPage& page) {
  std::string out = intro(page) + tiles(page.counts);
  out += text_list("left-out", "Left out", left_out_lines(page.counts));
  out += text_list("unused", "Unused fields", unused_lines(page.counts));
  out += text_list("template", "Not written by the chat template", remark_lines(page.counts));
  out += file_table(page.counts) + histogram(page.counts) + sample_section(page);
  out += "<footer><p>Made by Zeno.</p></footer>\n";
  return page::to_html(page::Page{page.title, std::move(out), "{}", ""});
}

void write_data_page(const Path& file, const DataPage& page) { replace_file(file, data_page(page)); }

}  // namespace zeno::report
