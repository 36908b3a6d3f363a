#include "zeno/page/html_table.h"

#include <fmt/format.h>

#include "zeno/page/html_text.h"

namespace zeno::page {

std::string to_html(const Table& table) {
  std::string out = fmt::format("<div class=\"scroll\"><table{}>", table.text ? " class=\"text\"" : "");
  if (!table.caption.empty()) out += fmt::format("<caption>{}</caption>", html_text(table.caption));
  out += "<thead><tr>";
  for (const std::string& name : table.head) out += fmt::format("<th scope=\"col\">{}</th>", html_text(name));
  out += "</tr></thead>\n<tbody>";
  for (const auto& cells : table.rows) {
    out += fmt::format("<tr><th scope=\"row\">{}</th>", html_text(cells[0]));
    for (size_t i = 1; i < cells.size(); ++i) {
      const std::string label = table.text ? fmt::format(" data-label=\"{}\"", html_text(table.head[i])) : "";
      out += fmt::format("<td{}>{}</td>", label, html_text(cells[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string tile(std::string_view label, std::string_view value, std::string_view note) {
  std::string out = fmt::format("<div><dt>{}</dt><dd>{}</dd>", html_text(label), html_text(value));
  if (!note.empty()) out += fmt::format("<dd>{}</dd>", html_text(note));
  return out + "</div>\n";
}

std::string to_html(const Figure& figure) {
  std::string out = fmt::format(
      "<figure class=\"card{}\" id=\"{}\">\n<div class=\"head\"><h3>{}</h3><div "
      "class=\"controls\"></div></div>\n",
      figure.wide ? " wide" : "", figure.id, figure.title);
  if (!figure.note.empty()) out += fmt::format("<p class=\"small soft\">{}</p>\n", html_text(figure.note));
  out += fmt::format(
      "<ul class=\"legend\"></ul>\n<div class=\"plot\" tabindex=\"0\" role=\"group\" "
      "aria-label=\"{}: arrow keys read the values\"></div>\n"
      "<output class=\"readout\" aria-live=\"polite\"></output>\n",
      figure.title);
  if (!figure.numbers.empty())
    out += fmt::format("<details><summary>numbers</summary>{}</details>\n", figure.numbers);
  return out + "</figure>\n";
}

}  // namespace zeno::page
