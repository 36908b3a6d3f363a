#!/usr/bin/env python3
"""Renders conversations by every chat template of a folder, and looks at what would be trained on.

  python tools/real_templates.py [--zeno build/zeno] [--folder ../shared/real/templates] [--jobs N]

Needs transformers, whose Jinja environment says what each text must be, byte by byte. Every word of a conversation
says who wrote it, so that no other knowledge tells what may be trained: all that the assistant wrote, with the end of
its turn, and nothing of a user, a system message or a tool. Prints each difference and the counts; exits with 1 when
something is wrong. A template that transformers refuses for a conversation must be refused here too.
"""
import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from transformers.utils.chat_template_utils import _compile_jinja_template

DATE = "2025-01-02"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
FOREIGN = ("USERWORD", "SYSWORD", "TOOLWORD", "TOOLDESC", "TOOLPARAM")
OWN = ("ASSTWORD", "ASSTTHINK", "ASSTCITY", "ASSTZONE")
MARKS = "<|im_end|> </s> <eos> <|eot_id|> <|end|> [/INST] <end_of_turn> <|im_start|>assistant"


def tool(name, parameter):
    properties = {parameter: {"type": "string", "description": f"TOOLPARAM {parameter}"}}
    return {"type": "function", "function": {"name": name, "description": f"TOOLDESC {name}", "parameters": {
        "type": "object", "properties": properties, "required": [parameter]}}}


TOOLS = [tool("get_weather", "city"), tool("get_time", "zone")]
WEATHER = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "ASSTCITY"}}}
TIME = {"id": "call00002", "type": "function", "function": {"name": "get_time", "arguments": {"zone": "ASSTZONE"}}}


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def answer(call, text):
    return {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": text}


# name: messages, tools
CONVERSATIONS = {
    "plain": ([user("USERWORD one?"), said("ASSTWORD one.")], None),
    "two turns": ([user("USERWORD one?"), said("ASSTWORD one."), user("USERWORD two?"), said("ASSTWORD two.")], None),
    "system": ([system("SYSWORD rules."), user("USERWORD one?"), said("ASSTWORD one."), user("USERWORD two?"),
                said("ASSTWORD two.")], None),
    "marks said by the user": ([user(f"USERWORD {MARKS} USERWORD"), said("ASSTWORD one."), user("USERWORD two"),
                                said("ASSTWORD two.")], None),
    "marks said by the assistant": ([user("USERWORD"), said("ASSTWORD <b> &amp; {{ x }} {% y %}"), user("USERWORD"),
                                     said("ASSTWORD two.")], None),
    "empty question": ([user(""), said("ASSTWORD one."), user("USERWORD two"), said("ASSTWORD two.")], None),
    "empty answer": ([user("USERWORD one?"), said(""), user("USERWORD two"), said("ASSTWORD two.")], None),
    "white space": ([user("  USERWORD one? \n"), said("\n ASSTWORD one. \n"), user(" USERWORD"), said("  ASSTWORD\n\n")], None),
    "unicode": ([user("USERWORD ü — 🙂"), said("ASSTWORD ñ 漢字 🙂"), user("USERWORD é"), said("ASSTWORD ß")], None),
    "long turns": ([user("USERWORD " * 300), said("ASSTWORD " * 300), user("USERWORD"), said("ASSTWORD")], None),
    "thoughts in the text": ([user("USERWORD"), said("<think>\nASSTWORD hm\n</think>\n\nASSTWORD one."), user("USERWORD"),
                              said("<think>\nASSTWORD ha\n</think>\n\nASSTWORD two.")], None),
    "reasoning_content": ([user("USERWORD"), said("ASSTWORD", reasoning_content="ASSTTHINK a"), user("USERWORD"),
                           said("ASSTWORD", reasoning_content="ASSTTHINK b")], None),
    "thinking": ([user("USERWORD"), said("ASSTWORD", thinking="ASSTTHINK a"), user("USERWORD"),
                  said("ASSTWORD", thinking="ASSTTHINK b")], None),
    "tools that are not called": ([user("USERWORD one?"), said("ASSTWORD one.")], TOOLS),
    "one call": ([user("USERWORD"), said("", tool_calls=[WEATHER]), answer(WEATHER, "TOOLWORD 21"), said("ASSTWORD")], TOOLS),
    "one call with words": ([user("USERWORD"), said("ASSTWORD", tool_calls=[WEATHER]), answer(WEATHER, "TOOLWORD 21"),
                             said("ASSTWORD"), user("USERWORD two"), said("ASSTWORD two")], TOOLS),
    "parallel calls": ([system("SYSWORD"), user("USERWORD"), said("", tool_calls=[WEATHER, TIME]),
                        answer(WEATHER, "TOOLWORD 21"), answer(TIME, "TOOLWORD noon"), said("ASSTWORD")], TOOLS),
    "a call after thoughts": ([user("USERWORD"), said("", reasoning_content="ASSTTHINK a", tool_calls=[WEATHER]),
                               answer(WEATHER, "TOOLWORD 21"), said("ASSTWORD", reasoning_content="ASSTTHINK b")], TOOLS),
    "a call without tools": ([user("USERWORD"), said("", tool_calls=[WEATHER]), answer(WEATHER, "TOOLWORD"),
                              said("ASSTWORD")], None),
    "assistant first": ([said("ASSTWORD hi"), user("USERWORD one?"), said("ASSTWORD one.")], None),
    "assistant twice": ([user("USERWORD one?"), said("ASSTWORD one."), said("ASSTWORD more.")], None),
}


def expected_texts(source):
    """What transformers' environment writes for each conversation; None: it refuses."""
    try:
        template = _compile_jinja_template(source)
    except Exception:
        return None
    template.environment.globals["strftime_now"] = datetime.datetime.fromisoformat(DATE).strftime
    texts = {}
    for name, (messages, tools) in CONVERSATIONS.items():
        try:
            texts[name] = template.render(messages=json.loads(json.dumps(messages)), tools=tools, documents=None,
                                          add_generation_prompt=False, **TOKENS)
        except Exception:
            texts[name] = None
    return texts


def check(sample, text):
    """The kinds of what is wrong with a sample, with where."""
    pieces = sample["pieces"]
    joined = "".join(piece["text"] for piece in pieces)
    if joined != text:
        at = next((i for i, pair in enumerate(zip(joined, text)) if pair[0] != pair[1]), min(len(joined), len(text)))
        yield "another text", f"{joined[at - 30:at + 30]!r}, expected {text[at - 30:at + 30]!r}"
    trained = [piece["text"] for piece in pieces if piece["trained"]]
    for word in FOREIGN:
        if any(word in piece for piece in trained):
            yield "trained on words of others", f"{word} in {trained}"
    masked = "\0".join(piece["text"] for piece in pieces if not piece["trained"])
    for word in OWN:
        if word in masked:
            yield "words of the assistant not trained", f"{word}: {masked[-200:]!r}"


def run(path, options, work):
    """(kind, conversation, line) of all conversations."""
    folder = work / path.stem
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((work / "model" / name).read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
    texts = expected_texts(path.read_bytes().decode())
    for name, (messages, tools) in CONVERSATIONS.items():
        data = folder / "chat.jsonl"
        data.write_text(json.dumps({"messages": messages, **({"tools": tools} if tools else {})}) + "\n")
        command = [options.zeno, "data", "--model", folder, "--data", data, "--json", "--seq-len", "100000", "--chat-template", path,
                   "--chat-date", DATE, "--cache", folder / "cache"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
        lines = [line for line in done.stderr.splitlines() if "error: " in line]
        text = texts[name] if texts else None
        if texts is None:
            yield ("not Jinja for transformers" if done.returncode == 0 else "refused by both"), name, ""
        elif text is None:
            yield ("refused by both", name, "") if done.returncode == 3 else ("wrong", name, "rendered, and refused by transformers")
        elif done.returncode == 0:
            sample = json.loads(done.stdout)["samples"]
            wrong = list(check(sample[0], text)) if sample else []
            yield ("wrong", name, str(wrong)) if wrong else ("right", name, "")
        elif done.returncode == 3 and len(lines) == 1:
            yield "refused", name, lines[0]
        else:
            yield "wrong", name, f"exit code {done.returncode}: {(lines or done.stderr.splitlines() or [''])[-1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zeno", default="build/zeno")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("../shared/real/templates"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.jinja"))
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        subprocess.run([options.zeno, "init", "--arch", "llama", "--hidden", "16", "--layers", "1", "--heads", "2",
                        "--kv-heads", "1", "--vocab", "300", "--out", work / "model"], check=True, capture_output=True)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for path, rows in zip(paths, pool.map(lambda path: list(run(path, options, work)), paths)):
                for kind, conversation, line in rows:
                    counts[kind] += 1
                    if line:
                        print(f"{kind}: {path.name}, {conversation}\n    {line}")
    total = sum(counts.values())
    print(f"\n{len(paths)} templates, {total} conversations: " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    return 1 if counts["wrong"] or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
