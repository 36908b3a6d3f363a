// markupsafe.Markup, which the filters `safe` and `escape` make: a text that counts as safe HTML. What is
// joined to it is escaped, also in templates that are no web pages.
#pragma once

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

TracedText escape_html(const TracedText& text);
// The text of a value, escaped unless it is markup.
TracedText escaped(Runtime& runtime, const Value& value);
// The texts of a value (a text, a list or a tuple of them) as markup; other values as they are.
Value as_markup(const Value& value);

}  // namespace zeno::data::jinja
