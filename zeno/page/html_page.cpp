#include "zeno/page/html_page.h"

#include <fmt/format.h>

#include "zeno/page/html_text.h"
#include "zeno/page/page_assets.h"

namespace zeno::page {
namespace {

// Nothing may be loaded from anywhere, also if something slipped through the escaping.
constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action "
    "'none'";

}  // namespace

std::string to_html(const Page& page) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n",
      kPolicy, html_text(page.title), kPageStyle);
  out += fmt::format("<body>\n<main>\n{}</main>\n", page.body);
  out += fmt::format("<script type=\"application/json\" id=\"report-data\">{}</script>\n",
                     json_in_html(page.json));
  out += fmt::format("<script>\n{}{}</script>\n</body>\n</html>\n", kDrawScript, page.script);
  return out;
}

}  // namespace zeno::page
