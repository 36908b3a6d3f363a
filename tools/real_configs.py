#!/usr/bin/env python3
"""Runs every config of a folder as its owner would: does it train, or is it refused for a reason?

  python tools/real_configs.py [--zeno build/zeno] [--folder ../shared/real/configs] [--jobs N] [--limit 120]

Each file is given to `zeno train --config` with a tiny model and a little text: two steps on two ranks. It must train,
with finite losses, or be refused with exit code 2 and one line that names the key, the file or its place. Anything else
(a crash, a hang, another exit code, a refusal that names nothing) is wrong. Prints the refusals with their lines, then
the counts; exits with 1 when something is wrong.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

STEPS, RANKS = 2, 2


def prepare(zeno: str, work: pathlib.Path) -> None:
    subprocess.run([zeno, "init", "--arch", "llama", "--hidden", "16", "--layers", "2", "--heads", "2", "--kv-heads", "1",
                    "--vocab", "300", "--out", work / "model"], check=True, capture_output=True)
    lines = [json.dumps({"prompt": f"say {i}: ", "completion": f"{i} {i}"}) for i in range(200)]
    (work / "data.jsonl").write_text("\n".join(lines) + "\n")


def losses(out: pathlib.Path) -> list:
    metrics = out / "metrics.jsonl"
    records = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    return [record["loss"] for record in records if "loss" in record and "grad_norm" in record]


def reason_of(line: str) -> str:
    """The line without what differs from config to config, to count alike ones together."""
    line = re.sub(r"^(\[rank \d+\] )?error: ", "", line)
    line = re.sub(r"\S*\.json(:\d+)*", "FILE", line)
    return re.sub(r"\b\d[\d.e+-]*\b", "N", line)[:120]


def run(config: pathlib.Path, options: argparse.Namespace, work: pathlib.Path) -> tuple:
    """("trained" | "refused" | "wrong", the line that says why)"""
    out = work / "out" / config.name
    command = [options.zeno, "train", "--config", config, "--model", work / "model", "--data", work / "data.jsonl", "--out",
               out, "--ranks", str(RANKS), "--steps", str(STEPS), "--seq-len", "32", "--device", "cpu", "--cache",
               work / "cache"]
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return "wrong", f"no end within {options.limit} s"
    values = losses(out)
    shutil.rmtree(out, ignore_errors=True)
    lines = [line for line in done.stderr.splitlines() + done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(\[rank \d+\] )?error: ", line)]
    said = errors[0] if errors else (lines[-1] if lines else "nothing was said")
    if done.returncode == 0:
        good = len(values) == STEPS and all(value is not None and math.isfinite(value) for value in values)
        return ("trained", "") if good else ("wrong", f"losses {values}: {said}")
    named = config.name in said or re.search(r"\b[a-z]+(_[a-z0-9]+)+\b", said)
    if done.returncode == 2 and len(errors) == 1 and named:
        return "refused", said
    return "wrong", f"exit code {done.returncode}, {len(errors)} error lines: {said}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zeno", default="build/zeno")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("../shared/real/configs"))
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // RANKS))
    parser.add_argument("--limit", type=float, default=120, help="seconds for each config")
    options = parser.parse_args()
    configs = sorted(path for path in options.folder.iterdir() if path.is_file())
    counts, reasons = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        prepare(options.zeno, work)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for config, (kind, line) in zip(configs, pool.map(lambda path: run(path, options, work), configs)):
                counts[kind] += 1
                if kind == "trained":
                    continue
                reasons[kind, reason_of(line)] += 1
                print(f"{kind}: {config.name}\n    {line}")
    print(f"\n{len(configs)} configs: {counts['trained']} trained, {counts['refused']} refused, {counts['wrong']} wrong")
    for (kind, reason), count in reasons.most_common():
        print(f"{count:5}  {kind}: {reason}")
    return 1 if counts["wrong"] > 0 or not configs else 0


if __name__ == "__main__":
    sys.exit(main())
