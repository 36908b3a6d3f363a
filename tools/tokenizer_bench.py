#!/usr/bin/env python3
"""Compares zeno's tokenizer with the Hugging Face library on one core, on a generated text of 10 MB.

    /opt/torch/bin/python tools/tokenizer_bench.py build/bench/tokenizer_bench [work folder]

Trains tokenizers of 32k tokens once, in the layouts of GPT-2, Llama-3, Qwen2 and Llama-2. Both run in this job, one
after the other, measured by CPU time; of the library the faster of encode and encode_batch counts, of zeno the slower of one text and
many.
"""
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

BYTES = 10_000_000
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def make_text(seed, size):
    """Zipf over 80,000 made-up words, with numbers, code, capitals, and every tenth paragraph in other scripts."""
    rng = random.Random(seed)
    words_rng = random.Random(1)
    parts = ("a e i o u an en in on un ar er or al el st th sh ch tr pr gr br cl pl ing ed ly tion ment ness able re de "
             "con com pro per sub in un dis over out s t d m n l r").split()
    words = sorted({"".join(words_rng.choice(parts) for _ in range(words_rng.randint(1, 5))) for _ in range(90_000)})
    words_rng.shuffle(words)
    words.sort(key=len)
    weights = list(itertools.accumulate(1 / (i + 2) for i in range(len(words))))
    blocks = [(0x4E00, 0x5200), (0x410, 0x450), (0x3041, 0x3094), (0xAC00, 0xAE00), (0x5D0, 0x5EB)]
    out, total = [], 0
    while total < size:
        if rng.random() < 0.1:
            low, high = rng.choice(blocks)
            line = " ".join("".join(chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 7))) for _ in range(30))
        elif rng.random() < 0.08:
            line = "".join(f"    {' ' * rng.choice([0, 4])}{w}_{rng.randint(0, 9)} = {w}({rng.randint(0, 5000)}, x[{rng.randint(0, 99)}])\n"
                           for w in rng.choices(words, cum_weights=weights, k=5))
        else:
            line = ""
            for w in rng.choices(words, cum_weights=weights, k=60):
                r = rng.random()
                line += (w.capitalize() if r < 0.1 else w) + ("'s" if 0.1 < r < 0.12 else "")
                line += ", " if r > 0.93 else ". " if r > 0.88 else f" {rng.randint(0, 3000)} " if r > 0.86 else " "
        out.append(line + "\n")
        total += len(out[-1].encode())
    return "".join(out)


def layout(name):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == "gpt2")
    if name == "llama2":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # to train; replaced below
        return tokenizer, ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], []
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    regex = LLAMA3 if name == "llama3" else LLAMA3.replace("{1,3}", "")
    if name == "gpt2":
        tokenizer.pre_tokenizer = byte_level
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), byte_level])
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, ["<|endoftext|>"], pre_tokenizers.ByteLevel.alphabet()


def train(name, folder, text):
    tokenizer, special, alphabet = layout(name)
    trainer = trainers.BpeTrainer(vocab_size=32_000, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    data = json.loads(tokenizer.to_str())
    if name == "llama2":
        data["added_tokens"] = data["added_tokens"][:3]
        data["pre_tokenizer"] = None
        data["normalizer"] = json.loads(normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]).__getstate__())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False), "utf-8")


def best(run, rounds=2):
    times = []
    for _ in range(rounds):
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    return BYTES / 1e6 / min(times), result


def main():
    program = sys.argv[1]
    work = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "/tmp/tokenizer_bench")
    work.mkdir(parents=True, exist_ok=True)
    file = work / "text.txt"
    if not file.exists():
        file.write_text(make_text(2, BYTES), "utf-8")
    text = file.read_text("utf-8")
    documents = ["".join(part) for part in zip(*[iter(text.splitlines(keepends=True))] * 10)]
    print(f"{'layout':8} {'HF encode':>10} {'HF batch':>10} {'zeno text':>10} {'zeno docs':>10} {'all cores':>10} {'spans':>8}  MB/s, ratio")
    for name in ("gpt2", "llama3", "qwen2", "llama2"):
        folder = work / name
        if not (folder / "tokenizer.json").exists():
            train(name, folder, make_text(3, 4_000_000))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        one, encoding = best(lambda: tokenizer.encode(text, add_special_tokens=False), 1 if name == "llama2" else 2)
        batch, _ = best(lambda: tokenizer.encode_batch(documents, add_special_tokens=False))
        ours = json.loads(subprocess.run([program, str(folder), str(file)], check=True, capture_output=True, text=True).stdout)
        assert ours["tokens"] == len(encoding.ids), (ours, len(encoding.ids))
        ratio = min(ours["one_text"], ours["documents"]) / max(one, batch)
        print(f"{name:8} {one:10.1f} {batch:10.1f} {ours['one_text']:10.1f} {ours['documents']:10.1f} "
              f"{ours['all_threads']:10.1f} {ours['with_spans']:8.1f}  {ratio:.1f}x", flush=True)


main()
