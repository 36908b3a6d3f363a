// A page that needs nothing but a browser: style, data and script are in it, and nothing can be loaded from
// anywhere. Light and dark, any width. The common style and the drawing helpers are the files of assets/,
// made into this program by CMake.
#pragma once

#include <string>
#include <string_view>

namespace zeno::page {

struct Page {
  std::string title;
  std::string body;         // HTML, inside <main>
  std::string json;         // what the script draws; it finds it as the element with id report-data
  std::string_view script;  // runs after the drawing helpers
};
std::string to_html(const Page& page);

}  // namespace zeno::page
