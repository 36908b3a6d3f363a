#!/usr/bin/env python3
"""Reads every dataset of a folder as its owner would: is it understood, or refused for a reason?

  python tools/real_data.py [--zeno build/zeno] [--folder ../shared/real/data] [--show]

Each file is given to `zeno data --json` with a small model folder and the chatml template. It must give samples with
something to train on, or be refused with one line that names the file and says what is missing. Prints for each file
what was read of it (--show: with the first sample), the refusals with their lines, then the counts; exits with 1 when
something is wrong.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile


def run(path, options, work):
    """(kind, line, the first sample as text)"""
    command = [options.zeno, "data", "--model", work / "model", "--data", path, "--json", "--seq-len", "100000",
               "--chat-template", "chatml", "--cache", work / "cache"]
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return "wrong", f"no end within {options.limit} s", ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    if done.returncode == 3 and len(errors) == 1 and len(errors[0]) < 700:
        return "refused", errors[0], ""
    if done.returncode != 0:
        return "wrong", f"exit code {done.returncode}: {(errors or ['nothing was said'])[0]}", ""
    read = json.loads(done.stdout)
    counts = read["counts"]
    if not read["samples"] or counts["trained_tokens"] == 0:
        return "wrong", "nothing to train on, and no error", ""
    unused = ", ".join(f"{name} ({count})" for name, count in counts["unused_fields"].items())
    line = f"{counts['samples']} samples, {counts['trained_share']:.0%} trained" + (f"; not used: {unused}" if unused else "")
    first = "".join(f"⟦{piece['text']}⟧" if piece["trained"] else piece["text"] for piece in read["samples"][0]["pieces"])
    return "read", line, first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zeno", default="build/zeno")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("../shared/real/data"))
    parser.add_argument("--limit", type=float, default=120, help="seconds for each file")
    parser.add_argument("--show", action="store_true", help="print the first sample of each file")
    options = parser.parse_args()
    paths = sorted(path for path in options.folder.iterdir() if path.is_file())
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        subprocess.run([options.zeno, "init", "--arch", "llama", "--hidden", "16", "--layers", "1", "--heads", "2",
                        "--kv-heads", "1", "--vocab", "200000", "--out", work / "model"], check=True, capture_output=True)
        for path in paths:
            kind, line, first = run(path, options, work)
            counts[kind] += 1
            print(f"{kind}: {path.name}\n    {re.sub(re.escape(str(path)), path.name, line)}")
            if options.show and first:
                print("    " + first[:1000].replace("\n", "\n    "))
    print(f"\n{len(paths)} files: {counts['read']} read, {counts['refused']} refused, {counts['wrong']} wrong")
    return 1 if counts["wrong"] or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
