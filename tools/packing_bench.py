#!/usr/bin/env python3
"""Packing against padding: the same short chats, trained on a CPU with one sample per sequence and with best-fit packing.

    tools/packing_bench.py build/zeno [work folder] [--rows 2] [--steps 12]

All runs have the same model (fp32) and the same number of positions per step: sequences of 2048, and as a stricter
comparison padding to 256, just above the longest chat. Of each run the median of its steps without the first two
counts; learned tokens are those the loss is over, real tokens are all that are not padding. Runs go in turns, so that
a busy machine slows all alike.
"""
import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEQ_LEN, SHORT = 2048, 256
CHATS = 2000
TURNS = 3  # of each setting
WARM_UP = 2  # steps of a run that do not count
WORDS = """the of and to in is that for it as was with on be by this from are or an which you we they not have can will
time work water answer question number green small large city river winter summer letter morning machine reason result
measure carry follow explain compare change before after between under without during because although maybe""".split()


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


def write_chats(path: pathlib.Path) -> None:
    """Question and answer, about 30 to 200 tokens together, most of them short."""
    rng = random.Random(1)
    with path.open("w") as file:
        for _ in range(CHATS):
            words = min(max(int(rng.lognormvariate(2.9, 0.5)), 6), 50)
            asked = max(2, words // 3)
            messages = [
                {"role": "user", "content": sentence(rng, asked)},
                {"role": "assistant", "content": sentence(rng, words - asked + 1)},
            ]
            file.write(json.dumps({"messages": messages}) + "\n")


def make_model(zeno: str, folder: pathlib.Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    size = "--hidden 256 --layers 4 --heads 4 --kv-heads 2 --vocab 608 --max-positions 2048".split()
    subprocess.run([zeno, "init", "--arch", "qwen2", *size, "--out", folder], check=True, capture_output=True)
    shutil.copy(ROOT / "tests/golden/tokenizers/qwen2.json", folder / "tokenizer.json")


def train(zeno: str, work: pathlib.Path, packing: str, seq_len: int, args: argparse.Namespace) -> dict:
    out = work / f"{packing}_{seq_len}"
    rows = args.rows * SEQ_LEN // seq_len
    command = [zeno, "train", "--model", work / "model", "--data", work / "chats.jsonl", "--chat-template", "chatml"]
    command += ["--packing", packing, "--seq-len", seq_len, "--micro-batch", rows, "--steps", args.steps]
    command += ["--device", "cpu", "--dtype", "fp32", "--lr", "1e-4", "--schedule", "constant", "--no-auto", "--cache", work / "cache", "--out", out]
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "grad_norm" in line]
    seconds = [step["step_ms"] / 1000 for step in steps]
    gains = {}
    for key in ("tokens", "num_tokens"):  # both count from the beginning of the run
        totals = [0] + [step[key] for step in steps]
        rates = [(after - before) / s for before, after, s in zip(totals, totals[1:], seconds)]
        gains[key] = statistics.median(rates[WARM_UP:])
    waited = sum(step["data_wait_ms"] for step in steps[WARM_UP:]) / 1000
    report = next(line for line in run.stderr.splitlines() if line.startswith("[data]"))
    return {**gains, "waited": waited, "seconds": sum(seconds[WARM_UP:]), "report": report}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zeno")
    parser.add_argument("work", nargs="?", default=None)
    parser.add_argument("--rows", type=int, default=2, help="sequences of 2048 per step")
    parser.add_argument("--steps", type=int, default=12, help="steps of each run")
    args = parser.parse_args()
    work = pathlib.Path(args.work or tempfile.mkdtemp(prefix="packing_bench_"))
    work.mkdir(parents=True, exist_ok=True)
    make_model(args.zeno, work / "model")
    write_chats(work / "chats.jsonl")
    packed = ("best_fit", SEQ_LEN)
    runs = {("none", SEQ_LEN): [], ("none", SHORT): [], packed: []}
    for _ in range(TURNS):
        for (packing, seq_len), results in runs.items():
            results.append(train(args.zeno, work, packing, seq_len, args))
    rates = {}
    for setting, results in runs.items():
        learned, real = (statistics.median(r[key] for r in results) for key in ("tokens", "num_tokens"))
        waiting = sum(r["waited"] for r in results) / sum(r["seconds"] for r in results)
        rates[setting] = learned
        print(results[0]["report"])
        print(f"{setting[0]:9} {setting[1]:5} {learned:9.0f} learned tokens/s {real:9.0f} real tokens/s, waited for data {waiting:.3%}")
    for setting in (("none", SEQ_LEN), ("none", SHORT)):
        print(f"packing is {rates[packed] / rates[setting]:.1f} times as fast as padding to {setting[1]} (goal: 3)")


if __name__ == "__main__":
    main()
