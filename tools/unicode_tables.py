#!/usr/bin/env python3
"""Writes zeno/data/tokenizer/unicode_tables.inc: what the tokenizer must know of Unicode, from Python's
unicodedata. Run it with a Python whose Unicode version is that of PCRE2 (14.0: Python 3.11 and Debian 12's
PCRE2 10.42), so that the hand-written splitters agree with the regexes.

    python3 tools/unicode_tables.py > zeno/data/tokenizer/unicode_tables.inc
"""
import sys
import unicodedata as u

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
CODES = range(0x110000)
CHARS = [chr(c) for c in CODES if not 0xD800 <= c < 0xE000]


def array(kind, name, values, width=16):
    values = list(values)
    print(f"constexpr {kind} {name}[] = {{")
    for i in range(0, len(values), width):
        print("    " + ",".join(f"{v:#x}" for v in values[i:i + width]) + ",")
    print("};")


def runs(function):
    """(first code << 8 | value) wherever the value changes."""
    last, result = None, []
    for code in CODES:
        value = function(code)
        if value != last:
            result.append(code << 8 | value)
            last = value
    return result


def is_hangul(code):
    return 0xAC00 <= code < 0xD7A4


def decomposition(form):
    """Index of [code, offset, length] and the characters; full decompositions, Hangul left to arithmetic."""
    index, chars, seen = [], [], {}
    for c in CHARS:
        text = u.normalize(form, c)
        if text == c or is_hangul(ord(c)):
            continue
        if text not in seen:
            seen[text] = len(chars)
            chars += [ord(x) for x in text]
        index += [ord(c), seen[text] << 8 | len(text)]
    return index, chars


def main():
    print(f"// Written by tools/unicode_tables.py from Unicode {u.unidata_version}; do not edit.")
    array("uint32_t", "kCategoryRuns", runs(lambda c: CATEGORIES.index(u.category(chr(c)))))
    array("uint32_t", "kClassRuns", runs(lambda c: u.combining(chr(c))))
    for form in ("NFD", "NFKD"):
        index, chars = decomposition(form)
        array("uint32_t", f"k{form.title()}Index", index)
        array("uint32_t", f"k{form.title()}Chars", chars)
    pairs = []
    for c in CHARS:
        parts = u.decomposition(c).split()
        if len(parts) == 2 and not parts[0].startswith("<") and u.normalize("NFC", c) == c:
            pairs.append((int(parts[0], 16), int(parts[1], 16), ord(c)))
    array("uint32_t", "kCompositions", [x for pair in sorted(pairs) for x in pair], 15)
    array("uint32_t", "kLowercase", [x for c in CHARS if len(c.lower()) == 1 and c.lower() != c for x in (ord(c), ord(c.lower()))])
    longer = [c for c in CHARS if len(c.lower()) > 1]
    assert longer == ["\u0130"], longer  # the one exception, written out in unicode.cpp


sys.stdout.reconfigure(encoding="ascii")
main()
