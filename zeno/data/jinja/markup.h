// markupsafe.Markup, which the filters `safe` and `escape` make: a text that counts as safe HTML. Text joined
// to it is escaped, even in templates that are not web pages.
#pragma once

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

TracedText escape_html(const TracedText& text);
// The text of a value, escaped unless it is markup.
TracedText escaped(Runtime& runtime, const Value& value);
// The texts of a value (a text, a list or a tuple of them) as markup; other values as they are.
Value as_markup(const Value& value);

}  // namespace zeno::data::jinja
