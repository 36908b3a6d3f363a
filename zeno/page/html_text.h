// Text of the user inside HTML: whatever a name or an answer holds, it stays text.
#pragma once

#include <string>
#include <string_view>

namespace zeno::page {

// For element contents and quoted attributes. Bytes that are not UTF-8 become U+FFFD, control characters too.
std::string html_text(std::string_view text);
// A JSON document for a <script> element: nothing in it can end the element or begin a comment.
std::string json_in_html(std::string_view json);

}  // namespace zeno::page
