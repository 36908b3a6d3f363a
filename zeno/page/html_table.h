// Tables and tiles of a page. Every text is escaped here, and nowhere else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeno::page {

struct Table {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  bool text =
      false;  // sentences instead of numbers: on a narrow screen cells stand below each other, with labels
};
std::string to_html(const Table& table);

// A number that stands out, with its name above and a note below; goes into <dl class="tiles">.
std::string tile(std::string_view label, std::string_view value, std::string_view note = "");

// The place of a drawing, with its numbers folded under it.
struct Figure {
  std::string id, title, note;
  std::string numbers;  // HTML
  bool wide = false;
};
std::string to_html(const Figure& figure);

}  // namespace zeno::page
