"""The snippets of golden_chat.py: one line each, all rendered with the same context."""

CONTEXT = {
    "name": "Ada",
    "text": "  Hello, World!  ",
    "unicode": "Grüße, Ωmega – 你好 🎉",
    "n": 7,
    "big": 9007199254740993,
    "x": 2.5,
    "yes": True,
    "no": False,
    "nil": None,
    "items": [3, 1, 2],
    "words": ["pear", "Apple", "fig", "apple"],
    "d": {"b": 1, "a": 2, "C": 3, "items": "key", "nested": {"list": [1, {"k": "v"}]}},
    "empty": [],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <b>&\"'"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"q": [1, 2.0, None, True]}}}]},
        {"role": "tool", "content": "ok"},
        {"role": "assistant", "content": "Bye"},
    ],
    "people": [{"name": "Bo", "age": 30}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30}],
}

EXPRESSIONS = r"""
1 + 2
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
7.5 // 2
-7.5 // 2
7.5 % 2
-7.5 % 2
7 / 2
4 / 2
2 ** 10
2 ** -1
2 ** 3 ** 2
2 ** 0.5
-2 ** 2
(-8) ** 2
1 / 0
1 // 0
1 % 0
1.0 / 0
0 ** -1
1e3
1.5e-7
1e16
123456789012345680.0
0.1 + 0.2
1e22
1e-5
0.0001
100000.0
-0.0
1.0
3.14
1_000
0x1f
0b101
0o17
10 - 2 - 3
1 + 2 * 3
(1 + 2) * 3
"a" + "b"
"a" * 3
3 * "ab"
"a" * -1
[1] * 2
[1, 2] + [3]
(1, 2) + (3,)
[1] + (2,)
"a" + 1
1 + "a"
"a" - "b"
[1] - [1]
"a" ~ 1 ~ none ~ true ~ 2.5
"a" ~ [1, "b"] ~ {"k": none}
n ~ missing ~ "!"
1 ~ 2 + 3 ~ 4
"x" ~ 2 * 3
true + 1
true + true
- true
+ 3
- "a"
not 1
not none
not ""
not missing
1 < 2
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
"a" == "a"
"a" < "b"
"a" < 1
none < 1
none == none
missing == missing
missing == none
missing < 1
[1, 2] == [1, 2]
[1, 2] == (1, 2)
[1, 2] < [1, 3]
[1] < [1, 2]
(1, "a") < (1, "b")
{"a": 1, "b": 2} == {"b": 2, "a": 1}
{"a": 1} < {"a": 2}
1 != 2
1 >= 1
2 > 3
1 in [1, 2]
1.0 in [1]
"a" in "cat"
"" in "cat"
1 in "cat"
"b" in d
"zz" in d
"zz" not in d
1 not in items
missing in items
"a" in missing
1 in 5
1 in none
not 1 in items
not (1 in items)
1 and 2
0 and 2
0 or "x"
"" or none
none or false
1 or missing.x
"y" if yes else "n"
"y" if no
"y" if no else "n" if no else "z"
("y" if no) is defined
1 if 2 > 1 else missing.x
"a" "b"
'it\'s'
"tab\tnew\nline"
"\u00e9\x41\101\\"
"\q"
'a"b'
[1, 2, 3]
[]
[1, 2.0, "a", none, true, [1], {"a": (1,)}]
()
(1,)
(1, 2)
1, 2
{}
{"a": 1, 2: "b", none: 3, true: 4}
{1: "a", 1.0: "b", true: "c"}
{[1]: 2}
{"a": 1, "a": 2}
["it's", 'say "hi"', "both ' and \"", "back\\slash", "new\nline", "é\u200b\u00a0\x00"]
items[0]
items[-1]
items[10]
items[10] is defined
items["a"]
items[1:]
items[:2]
items[::-1]
items[::2]
items[-2:]
items[5:]
items[2:0:-1]
items[:-10:-1]
items[::0]
items[none:none]
items[true]
items[1.0]
"hello"[1]
"hello"[-1]
"hello"[1:3]
"hello"[::-1]
"hello"[10]
unicode[2:5]
unicode[-1]
unicode[::-1]
unicode | length
(1, 2, 3)[1:]
d.b
d["b"]
d.zz
d.zz.y
d["zz"]["y"]
d["items"]
d.nested.list[1].k
d.nested["list"][1]["k"]
d.get("b")
d.get("zz")
d.get("zz", 5)
d.get("zz", none)
d.get()
d.get(key="b")
d.keys()
d.keys() | list
d.values() | list
d.items() | list
d.items() | length
d.items()[0]
d.pop("b")
d.update({"x": 1})
d.pop is defined
d.clear()
items.append(4)
items.append is defined
items.index(1)
items.index(9)
items.count(1)
items.sort()
items.copy()
d.copy() == d
missing
missing.x
missing["x"]
missing()
missing | length
missing | list
missing is defined
missing is undefined
missing + 1
"a" + missing
missing | default("x")
nil | default("x")
nil | default("x", true)
"" | default("x", boolean=true)
missing | d("q")
name.upper()
name.lower()
name.missing
name.missing()
"hello world".title()
"they're bill's".title()
"they're bill's-x (yes) {no}" | title
"hELLO wORLD".capitalize()
"hELLO wORLD" | capitalize
"straße".upper()
"ÀÉÎ".lower()
unicode | upper
unicode | lower
text.strip()
text | trim
text.lstrip()
text.rstrip()
"xxaxx".strip("x")
"xyaxy".lstrip("yx")
"xyaxy".rstrip("yx")
"xxaxx" | trim("x")
"\u00a0\u3000a\u2003".strip()
"a,b,,c".split(",")
"a b  c ".split()
"a b  c ".split(" ")
"a b c d".split(" ", 2)
" a b  c d ".split(none, 1)
" a b  c d ".split(maxsplit=2)
"a,b,c".rsplit(",", 1)
" a b  c ".rsplit(none, 1)
"a b c".rsplit()
"".split()
"".split(",")
"abc".split("")
"a</think>b</think>c".split("</think>")[-1]
"a\nb\r\nc\rd".splitlines()
"a-b-c".partition("-")
"abc".partition("-")
"a-b-c".rpartition("-")
"hello".startswith("he")
"hello".startswith(("x", "he"))
"hello".startswith("l", 2)
"hello".endswith("lo")
"hello".endswith(("x", "lo"))
"hello".startswith(1)
"hello".find("l")
"hello".find("z")
"hello".rfind("l")
"hello".find("l", 3)
"héllo".find("l")
"hello".index("z")
"hello".count("l")
"hello".count("")
"hello".replace("l", "L")
"hello".replace("l", "L", 1)
"abc".replace("", "-")
"hello" | replace("l", "L")
"hello" | replace("l", "L", 1)
123 | replace(2, 4)
", ".join(words)
", ".join([1])
"-".join("abc")
"%s is %d" % ("a", 3)
"%s" % "x"
"%5.2f|%-5s|%05d|%x|%%" % (3.14159, "ab", 42, 255)
"%(a)s-%(b)d" % {"a": 1, "b": 2}
"%s" % (1, 2)
"%s %s" % 1
"%d" % "x"
"%r" % "x"
"%e %g" % (12345.678, 0.00001)
"{} and {}".format(1, "b")
"{1}{0}".format("a", "b")
"{x} {y!r}".format(x=1, y="b")
"{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}".format("a", "b", "c", 42, 3.14159, 1234567)
"{0[k]} {1.b}".format({"k": "v"}, d)
"{{}}".format()
"{}".format()
"%s and %s" | format("a", "b")
"%(x)s" | format(x=1)
"abc".isdigit()
"123".isdigit()
"".isdigit()
"abc".isalpha()
"ab1".isalnum()
" \t".isspace()
"ABC".isupper()
"abc1".islower()
"prefix-x".removeprefix("prefix-")
"x-suffix".removesuffix("-suffix")
"a".center(5, "*")
"ab".center(5, "*")
"a".ljust(3) ~ "|"
"a".rjust(3) ~ "|"
"42".zfill(5)
"-42".zfill(5)
"a" | center(6) ~ "|"
name is string
5 is string
5 is number
5.0 is number
true is number
"5" is number
5 is integer
true is integer
5.0 is integer
5.0 is float
true is boolean
1 is boolean
true is true
1 is true
false is false
none is none
nil is none
missing is none
d is mapping
items is mapping
items is iterable
5 is iterable
name is iterable
missing is iterable
items is sequence
d is sequence
name is sequence
5 is sequence
d.items() is sequence
d.get is callable
range is callable
5 is callable
4 is even
3 is odd
9 is divisibleby 3
9 is divisibleby(4)
1 is eq 1
1 is equalto 1
1 is ne 2
2 is gt 1
2 is ge 2
1 is lt 2
1 is le 1
1 is lessthan 2
2 is greaterthan 1
1 is in [1, 2]
"a" is in "cat"
none is sameas none
1 is sameas true
"ABC" is upper
"abc" is lower
1 is not none
missing is not defined
name is defined and name
not name is defined
name is string or 5 is string
"tojson" is filter
"nope" is filter
"odd" is test
1 is nosuchtest
1 | nosuchfilter
"a" is even
items | length
items | count
5 | length
none | length
d | length
items | first
items | last
empty | first
empty | last
"abc" | first
"abc" | last
d | first
items | sort
items | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
people | sort(attribute="age") | map(attribute="name") | list
people | sort(attribute="age,name") | map(attribute="name") | join(",")
[1, "a"] | sort
items | reverse | list
"abc" | reverse
(items | reverse | list)[0]
(items | reverse)[0] is defined
items | join
items | join(", ")
items | join(d=", ")
people | join(", ", attribute="name")
none | join
"abc" | join("-")
items | min
items | max
words | min
words | max(case_sensitive=true)
people | max(attribute="age")
empty | max
items | sum
people | sum(attribute="age")
[[1], [2]] | sum(start=[])
["a"] | sum
words | unique | list
words | unique(case_sensitive=true) | list
words | map("upper") | list
words | map("length") | join(" ")
people | map(attribute="name") | list
people | map(attribute="zz", default="-") | list
people | map(attribute="zz") | list
people | map("nosuch") | list
people | map | list
messages | map(attribute="tool_calls") | select("defined") | list
messages | selectattr("role", "equalto", "user") | list
messages | selectattr("role", "==", "user") | map(attribute="content") | first
messages | selectattr("tool_calls", "defined") | list | length
messages | selectattr("tool_calls") | list | length
messages | rejectattr("role", "in", ["user", "system"]) | map(attribute="role") | join
messages | selectattr("role", "equalto", "user") | length
items | select("odd") | list
items | reject("odd") | list
items | select(">", 1) | list
[0, 1, "", "a"] | select | list
items | select("nosuch") | list
items | batch(2) | list
items | batch(2, 0) | list
[1, 2, 3, 4, 5] | slice(2) | list
[1, 2, 3, 4, 5] | slice(3, 0) | list
d | items | list
5 | items | list
missing | items | list
d.nested | dictsort
{"b": 1, "A": 2, "c": 0} | dictsort
{"b": 1, "A": 2, "c": 0} | dictsort(true)
{"b": 1, "A": 2, "c": 0} | dictsort(by="value")
{"b": 1, "A": 2, "c": 0} | dictsort(reverse=true)
{"b": 1} | dictsort(by="x")
people | groupby("age") | list
"5" | int
"5.7" | int
"abc" | int
"abc" | int(7)
" 42 " | int
"0x1f" | int(0, 16)
"ff" | int(base=16)
"1_000" | int
none | int
none | int(3)
5.9 | int
-5.9 | int
true | int
missing | int
"1.5" | float
"abc" | float
"abc" | float(1.5)
"inf" | float
3 | float
-5 | abs
-5.5 | abs
"a" | abs
-1|abs
2.5 | round
3.5 | round
2.675 | round(2)
2.665 | round(2, "floor")
2.661 | round(2, "ceil")
42 | round
1234 | round(-2)
1250 | round(-2)
2.5 | round(0, "up")
5 | string
none | string
[1, "a"] | string
none | trim
5 | upper
"<b>&\"'" | e
"<b>" | escape
"<b>" | safe
("<b>" | safe) + "<i>"
"<i>" + ("<b>" | safe)
("<b>" | safe) ~ "<i>"
("<b>" | safe) + ("<i>" | safe)
("<b>%s" | safe) % "<i>"
("<b>%s %d" | safe) % ("<i>", 3)
("<b>%s" | safe) % ("<i>" | safe)
("<b>{}" | safe).format("<i>")
("<b>{a}" | safe).format(a="<i>")
("<b> " | safe).strip() + "<"
("<b> " | safe) | trim + "<"
(("<b> " | safe) | trim) + "<"
(("<b>" | safe) | upper) + "<"
(("<b>" | safe) | title) + "<"
(("<b>" | safe) | capitalize) + "<"
(("<b>" | safe) | replace("b", "<")) + "<"
("<b>" | safe).replace("b", "<") + "<"
(("<b>" | safe) | string) + "<"
(("<b>" | safe) | tojson) + "<"
(("<b>" | safe) | indent) + "<"
(("<b>" | safe) | center(9)) + "<"
(("<b>" | safe) * 2) + "<"
("<b>" | safe)[1:] + "<"
("<b>" | safe)[0] + "<"
(("<b>" | safe) | first) + "<"
(("<b>" | safe) | reverse) + "<"
("<b>" | safe).split("b")[0] + "<"
("," | safe).join(["<", "&" | safe])
["<", "&" | safe] | join(",")
("<b>" | safe) | e
("<b>" | safe) | forceescape
("<" | e) + "<"
("<" | e) | e
("<b>" | safe) == "<b>"
["<b>" | safe]
{"a": "<b>" | safe} | tojson
("<b>" | safe) | length
"a\nb" .splitlines(true)
"a b".swapcase()
"aBc" | lower | safe
messages[1].content | safe
(messages[1].content | safe) + messages[1].content
messages[1].content | e
("x" | safe) is string
"%s" | safe | format("<")
("<b>" | safe).rstrip(">") + ">"
("<b>" | safe).partition("b")[2] + ">"
("<b>" | safe).removeprefix("<") + ">"
"a b c" | wordcount
"a\nb\n\nc" | indent
"a\nb\n\nc" | indent(2, true)
"a\nb\n\nc" | indent(2, blank=true)
"a\nb" | indent("> ")
"a\nb" | indent(width=1, first=true)
"hello world foo" | truncate(11)
"hello world foo" | truncate(8, leeway=0)
"hello world foo" | truncate(8, true, leeway=0)
"a b/ü?" | urlencode
d | tojson
d | tojson(indent=2)
d | tojson(indent=0)
d | tojson(sort_keys=true)
{"b": 1, "a": [1, {}], "c": []} | tojson(indent=4)
{"b": 1, "a": 2} | tojson(separators=(",", ":"))
{"b": 1, "a": 2} | tojson(separators=(",", ":"), indent=1)
{"a": "é🎉"} | tojson
{"a": "é🎉"} | tojson(ensure_ascii=true)
"<script>&'\"\\\n\t\u0001\u007f/" | tojson
[1, 1.0, 1e100, 1e16, 0.1, true, false, none] | tojson
(1, 2) | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
missing | tojson
items | reverse | tojson
range(3) | tojson
namespace(a=1) | tojson
unicode | tojson
messages[2] | tojson
"1e400" | float | tojson
range(5) | list
range(2, 5) | list
range(5, 0, -2) | list
range(3)
range(0)
range(1, 2, 0)
range(1000000)
range(3)[1]
range(3) | length
range(3)[1:] | list
2 in range(3)
range("a")
dict(a=1, b=2)
dict({"x": 1}, y=2)
dict([("a", 1)])
namespace(a=1).a
namespace(a=1).b
namespace({"a": 1}, b=2).b
namespace(_a=1)
strftime_now("%Y-%m-%d")
strftime_now("%d %b %Y")
strftime_now("%A %H:%M:%S")
raise_exception("no")
big
big + 1
9223372036854775807
x * 2
x | int
n / 2
n // 2.0
messages[-1]["content"]
messages[1:] | length
messages[0].role == "system" and messages | length > 2
messages | last
(messages | last).content
messages[2].tool_calls[0].function.arguments.q[-1]
messages[2]["tool_calls"][0]["function"] | tojson
messages[2].content is none
messages[2].content ~ ""
name.__class__
name.__class__ is defined
d.__class__.__mro__
d._private
d | attr("b")
loop is defined
loop.index
caller()
1 if
1 +
(1
[1, 2
{"a" 1}
foo(a=1, 2)
foo(*[1], **{})
1 is is none
a b
"unclosed
$
name[
d.0
items.0
items.1.x
nil.x
nil["x"]
nil()
5()
[1, 2, 3] is iterable and not ([1] is string)
[[1, 2], [3]] | map("first") | list
[[3, 1], [2]] | map("sort") | list
[{"a": {"b": 1}}] | map(attribute="a.b") | list
[[1, 2]] | map(attribute=0) | list
[" a ", "b "] | map("trim") | join("|")
["a", "b"] | map("replace", "a", "z") | list
"a" in ["a"] and "b" not in ["a"]
1 == 1 and 2 == 2 or missing.x
(1 == 1) == true
none == false
"" == false
0 == false
1 != "1"
"10" | int + 5
"a,b" .split(",") | last
name | lower | upper | length
name ~ " " ~ name | lower
(name ~ " " ~ name) | lower
not name == "Ada"
-n | abs
n is number and n > 5
"é" | upper ~ "É".lower()
"ñandú".capitalize()
"x" * 3 + "y"
"a" "b" | upper
1.5 is divisibleby 0.5
[none, false, 0, "", [], {}] | map("default", "z", true) | join(",")
[1, [2, [3]]] | string
{"k": [1, (2,)]} | string
true | string | lower
{"a": {"b": [1, 2, {"c": "d"}]}} | tojson(indent=2)
"\ttab" | tojson
"a" < "B"
["b", "A", "c"] | sort | join
["b", "A", "c"] | sort(true, true) | join
[3.5, 1, true] | sort
[(2, "b"), (1, "c"), (2, "a")] | sort
"line1\nline2" | replace("\n", "\\n")
"a\\nb"
"{" ~ "{" ~ "}}"
{"a": {"b": {}}}
"%" ~ "}"
"""

STATEMENTS = [
    "plain text",
    "",
    "\n",
    "a\n",
    "a\n\n",
    "a\r\nb\rc\n",
    "{% if yes %}a{% endif %}",
    "{% if no %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if 1, 2 %}t{% endif %}",
    "{% if yes: %}a{% endif %}",
    "a\n{% if yes %}\nb\n{% endif %}\nc\n",
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%+ if yes %}\n  b\n  {%+ endif +%}\nc\n",
    "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\nc\n",
    "  x {% if yes %} y {% endif %} z",
    "\t{% if yes %}y{% endif %}\n",
    "a {{ name }} b\n{{ name }}\n c",
    "a {{- name -}} b",
    "a\n\n{{- name -}}\n\nb",
    "  {{ name }}\n",
    "  {{+ name }}\n",
    "{{ name }}\n{% set a = 1 %}\n{{ a }}",
    "{# comment #}x",
    "a\n  {# comment #}\nb",
    "a\n  {#- comment -#}\nb",
    "a\n  {#+ comment +#}\nb",
    "{# unclosed",
    "{# multi\nline #}\nb{{ 1 }}",
    "{% raw %}{{ name }}{% endraw %}",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb",
    "a {%- raw -%} {{ x }} {%- endraw -%} b",
    "{% raw %}unclosed",
    "{% raw %}{% if %}{% endraw %}{{ n }}",
    "{% for i in items %}{{ i }}{% endfor %}",
    "{% for i in items %}{{ i }},{% else %}none{% endfor %}",
    "{% for i in empty %}{{ i }},{% else %}none{% endfor %}",
    "{% for i in missing %}{{ i }},{% else %}none{% endfor %}",
    "{% for i in 5 %}{{ i }}{% endfor %}",
    "{% for i in none %}{{ i }}{% endfor %}",
    "{% for c in 'aé' %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }};{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}",
    "{% for i in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for i in items %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
    "{% for i in items %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for i in items %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 1, 2, 2] %}{{ loop.changed(i) }} {% endfor %}",
    "{% for i in items %}{% for j in items %}{{ loop.index }}{% endfor %}-{{ loop.index }} {% endfor %}",
    "{% for i in items %}{% set outer = loop %}{% for j in [1] %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% for i in items if i > 1 %}{{ i }}{{ loop.index }}{{ loop.last }} {% endfor %}",
    "{% for i in items if i > 9 %}{{ i }}{% else %}no{% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ m.role }} {% endfor %}",
    "{% set ns = namespace(k=0) %}{% for i in items if ns.k < 1 %}{{ i }}{% set ns.k = 1 %}{% endfor %}",
    "{% for i in items if loop.index > 1 %}{{ i }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in range(5) %}{% if i is odd %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% break %}",
    "{% for i in items %}{% break %}{% else %}no{% endfor %}x",
    "{% for i in items %}{% continue %}{% else %}no{% endfor %}x",
    "{% for i in items %}{% if i == 1 %}{% break %}{% endif %}{% else %}no{% endfor %}x",
    "{% for i in items %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for i in [[1, [2]], [3]] recursive %}{{ loop.depth }}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{% endif %}{% endfor %}",
    "{% for i in items %}{{ loop(items) }}{% endfor %}",
    "{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}",
    "{% for m in messages | reverse %}{{ loop.index }}{{ loop.last }}{{ m.role[0] }} {% endfor %}",
    "{% for i in items | select('odd') %}{{ i }}{{ loop.length }} {% endfor %}",
    "{% for loop in items %}{% endfor %}",
    "{% for i in items %}{{ i }}{% endfor %}{{ i }}{{ loop }}",
    "{% set i = 9 %}{% for i in items %}{{ i }}{% endfor %}{{ i }}",
    "{% set v = 1 %}{{ v }}",
    "{% set v = 1, 2 %}{{ v }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1] %}{{ a }}",
    "{% set (a, b) = 'xy' %}{{ a }}{{ b }}",
    "{% set v = 1 %}{% if yes %}{% set v = 2 %}{% endif %}{{ v }}",
    "{% set v = 1 %}{% for i in items %}{% set v = v + 1 %}{{ v }}{% endfor %}{{ v }}",
    "{% set v = [] %}{% for i in items %}{% set v = v + [i] %}{% endfor %}{{ v }}",
    "{% for i in items %}{% if loop.first %}{% set q = i %}{% endif %}{{ q }}{% endfor %}",
    "{% set ns = namespace(v=1) %}{% for i in items %}{% set ns.v = ns.v + 1 %}{% endfor %}{{ ns.v }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b, ns.c = 2, 3 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.zz }}",
    "{% set ns = namespace(a=1) %}{{ ns }}",
    "{% set ns = namespace(a=1) %}{% set ns._x = 1 %}",
    "{% set d.x = 1 %}",
    "{% set missing.x = 1 %}",
    "{% set d['x'] = 1 %}",
    "{% set true = 1 %}",
    "{% set 1 = 1 %}",
    "{% set v %}block {{ name }}{% endset %}[{{ v }}]",
    "{% set v | upper %}block {{ name }}{% endset %}[{{ v }}]",
    "{% set v | trim | upper %}  block {% endset %}[{{ v }}]",
    "{% set v %}{% set inner = 1 %}{{ inner }}{% endset %}{{ v }}{{ inner }}",
    "{% set ns = namespace() %}{% set ns.v %}x{{ n }}{% endset %}{{ ns.v }}",
    "{% macro m(a, b=2) %}<{{ a }},{{ b }}>{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}",
    "{% macro m(a, b=a) %}<{{ a }},{{ b }}>{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}{{ name }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ v }}{% endmacro %}{% set v = 5 %}{{ m() }}",
    "{% macro m() %}{% set v = 6 %}{{ v }}{% endmacro %}{% set v = 5 %}{{ m() }}{{ v }}",
    "{% macro m() %}  x  {% endmacro %}[{{ m() | trim }}]",
    "{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * (fact(k - 1) | int) }}{% endif %}{% endmacro %}{{ fact(5) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}a{% endmacro %}{% set f = m %}{{ f() }}{{ m is callable }}",
    "{% for i in items %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro wrap() %}[{{ caller() }}]{% endmacro %}{% call wrap() %}in {{ name }}{% endcall %}",
    "{% macro wrap(x) %}[{{ caller(x, 2) }}]{% endmacro %}{% call(a, b=5) wrap(1) %}{{ a }}{{ b }}{% endcall %}",
    "{% macro wrap() %}[{{ caller is defined }}]{% endmacro %}{{ wrap() }}",
    "{% macro wrap() %}x{% endmacro %}{% call wrap() %}y{% endcall %}",
    "{% call 5 %}{% endcall %}",
    "{% filter upper %}a{{ name }}{% endfilter %}",
    "{% filter trim | upper %}  a  {% endfilter %}",
    "{% filter replace('a', 'b') %}banana{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% set a = 3 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% print 1, 'a' %}",
    "{% generation %}said{% endgeneration %} not",
    "{% generation %}{% set g = 1 %}{{ g }}{% endgeneration %}{{ g }}",
    "{% for i in items %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% nosuch %}",
    "{% endif %}",
    "{% if yes %}",
    "{% for i in items %}{% endif %}",
    "{% if yes %}{% endfor %}",
    "{% if %}{% endif %}",
    "{% for in items %}{% endfor %}",
    "{% for i items %}{% endfor %}",
    "{% %}",
    "{{ }}",
    "{{",
    "{%",
    "}}",
    "%}",
    "{ {x} }",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ '}}' }}",
    "{% set a = '%}' %}{{ a }}",
    "{{ name }",
    "{{ name )}}",
    "{{ (name }}",
    "{%- for m in messages -%}{{ m['role'] }}{%- if not loop.last %}, {% endif %}{%- endfor -%}",
    "{%- for m in messages %}\n    {{- m.role }}\n{%- endfor %}",
    "{% for m in messages %}\n{{ m.role }}\n{% endfor %}\n",
    "{% for m in messages %}\n    {{ m.role }}\n    {% if loop.first %}\n        first\n    {% endif %}\n{% endfor %}\nend\n",
    "{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ sys }}{{ rest | length }}",
    "{% if (messages[0]['role'] == 'user') != (0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}",
    "{% set x = items | map('string') %}{{ x | list }}{{ x | list }}",
    "{% set x = items | select %}{{ 1 in x }}{{ x | list }}",
    "{% set x = d.items() %}{{ x | list | length }}{{ x | list | length }}",
    "{% set x = items | map('string') %}{{ x | first }}{{ x | list }}",
    "{% set t = namespace(s='') %}{% for m in messages %}{% set t.s = t.s ~ m.role[0] %}{% endfor %}{{ t.s | upper }}",
    "{% if d.zz is defined and d.zz.y %}a{% else %}b{% endif %}",
    "{% if messages[2].tool_calls is defined and messages[2].tool_calls is not none %}calls{% endif %}",
    "{% for tc in messages[2].tool_calls %}{%- set tc = tc.function -%}{{ tc.name }}{{ tc.arguments | tojson }}{% endfor %}",
    "{%- set a = 1 -%}\n\n  {%- set b = 2 -%}\n\n{{ a }}\n{{ b }}",
    "a  {%- if yes %}  b  {%- endif %}  c",
    "x\n\n{%- if yes %}\n\ny\n\n{%- endif %}\n\nz",
    "\u00a0{%- if yes %}\u2003y{% endif -%}\u3000z",
    "{% if yes %}{{ '\\n' }}{% endif %}\n\nx",
    "{{ 'a\nb' }}",
    "{{\n name\n}}",
    "{%\n if\n yes\n%}a{%\nendif %}",
    "{% do items.append(1) %}",
    "{% set x = x if x is defined else 5 %}{{ x }}",
    "{% set missing = missing | default(3) %}{{ missing }}",
    "{% for i in items %}{% set missing = missing | default(0) + i %}{{ missing }}{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'tool' %}{% set ns.found = true %}{% break %}{% endif %}{% endfor %}{{ ns.found }}",
    "{{ undefined_function() }}",
    "{{ [1,2,3,] }}{{ (1,) }}{{ {'a':1,} }}",
    "{{ dict(a=1,) }}",
    "{{ 'x'.format(*items) }}{{ '{}{}{}'.format(*items) }}{{ '{a}'.format(**{'a': 1}) }}",
    "{{ range(*[1, 4]) | list }}",
    "{% if not messages | selectattr('role', 'equalto', 'zzz') | list %}none{% endif %}",
    "{% set x = 5 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 6 %}{{ m() }}",
    "{% for i in items %}{% if loop.last %}L{% else %}{{ i }}{% endif %}{% endfor %}",
    "{% for i in items -%}\n  {{ i }}\n{%- endfor %}",
]

# Beyond 64 bits, web filters and values that print their address are ours to refuse; they are not in the table.
SNIPPETS = ["{{ " + line + " }}" for line in EXPRESSIONS.strip("\n").split("\n")] + STATEMENTS
