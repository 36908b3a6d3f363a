"""Writes tests/golden/chat: what jinja2, set up by transformers, makes of our templates and of many small snippets.

    /opt/torch/bin/python tools/golden_chat.py

family_*.jinja and conversations.json are written by hand and stay; preset_*.jinja are the texts of
zeno/data/chat/presets.cpp (test_chat compares them); snippets.json and expected.json are made here.
"""
import datetime
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import (
    _compile_jinja_template,
    _render_with_assistant_indices,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from golden_chat_snippets import CONTEXT, SNIPPETS  # noqa: E402

FOLDER = pathlib.Path(__file__).parent.parent / "tests" / "golden" / "chat"
NOW = 1735787045  # 2025-01-02 03:04:05 UTC


def compiled(source):
    """The template as transformers compiles it, with a clock that stands still."""
    template = _compile_jinja_template(source)
    moment = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
    template.environment.globals["strftime_now"] = moment.strftime
    return template


def snippet_result(source):
    try:
        template = compiled(source)
    except Exception as error:
        return {"error": type(error).__name__, "stage": "parse"}
    try:
        return {"text": template.render(**CONTEXT)}
    except Exception as error:
        return {"error": type(error).__name__, "stage": "render"}


def write_snippets():
    rows = []
    for source in SNIPPETS:
        rows.append({"template": source, **snippet_result(source)})
    out = {"now": NOW, "context": CONTEXT, "snippets": rows}
    text = json.dumps({"now": NOW, "context": CONTEXT}, ensure_ascii=False)[:-1]
    text += ', "snippets": [\n' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]}\n"
    assert json.loads(text) == out
    (FOLDER / "snippets.json").write_text(text)
    errors = sum("error" in row for row in rows)
    print(f"{len(rows)} snippets, {errors} of them errors")


def rendered(template, conversation, prompt):
    """Text and assistant spans in bytes, or the error class."""
    variables = {"bos_token": "<s>", "eos_token": "</s>", **conversation.get("extra", {})}
    arguments = {
        "messages": conversation["messages"],
        "tools": conversation.get("tools"),
        "documents": None,
        "add_generation_prompt": prompt,
    }
    try:
        text, indices = _render_with_assistant_indices(compiled_template=template, **arguments, **variables)
    except Exception as error:
        return {"error": type(error).__name__}
    spans = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in indices if end > begin]
    return {"text": text, "generated": spans}


def write_conversations():
    conversations = json.loads((FOLDER / "conversations.json").read_text())
    rows = []
    for path in sorted(FOLDER.glob("*.jinja")):
        template = compiled(path.read_text())
        for conversation in conversations:
            for prompt in (False, True):
                result = rendered(template, conversation, prompt)
                rows.append({"template": path.name, "conversation": conversation["name"], "prompt": prompt, **result})
    text = '{"now": %d, "rows": [\n' % NOW + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]}\n"
    (FOLDER / "expected.json").write_text(text)
    print(f"{len(rows)} renderings, {sum('error' in row for row in rows)} of them errors")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_snippets()
    write_conversations()
