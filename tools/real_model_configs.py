#!/usr/bin/env python3
"""Plans every config.json of a folder, and trains a shrunk copy of each that is planned.

A planned model gets a copy with few small layers, everything else of its config kept, random weights and the byte
tokenizer of `zeno init`, and trains two steps on the CPU. Prints counts and, for what was refused, the line that
says why. A refusal is right when its family is not there yet, when its weights are quantised, when it is no causal
language model, or when the file is not a config of transformers; anything else is wrong: a crash, more than one
line, an error that does not name the file, or a supported family that is refused. Exit code 1 if anything is wrong.

Standard library only.
  python3 tools/real_model_configs.py [FOLDER] [--zeno build/zeno] [--jobs N]
"""
import argparse
import array
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120
# What a refusal may say, and how it is counted; the first that matches.
REASONS = [
    (r'model_type "[^"]*" is not supported', "family not supported"),
    (r'has a "quantization_config"', "quantised weights"),
    (r'architecture "[^"]*" (has|is)', "not a causal language model"),
    (r'has no "(hidden_size|n_embd)"', "not a config of transformers"),
    (r"has neither \"model_type\" nor", "not a config of transformers"),
    (r"is not supported|\"hidden_act\" is", "a part of the model not supported"),
]


def run(command):
    """(exit code or None after the time limit, output)"""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def shrink(config):
    """A small model that keeps what makes its family: head size, grouping, biases, scaling, windows."""
    small = dict(config)
    gpt2 = config.get("model_type") == "gpt2"
    heads = config["n_head" if gpt2 else "num_attention_heads"]
    hidden = config["n_embd" if gpt2 else "hidden_size"]
    kv_heads = config.get("num_key_value_heads") or heads
    group = min(heads // kv_heads, 4)
    small_heads = group if group > 1 else 2
    width = config.get("head_dim") or hidden // heads
    small_hidden = width * small_heads
    layers = 2
    if gpt2:
        small.update(n_embd=small_hidden, n_head=small_heads, n_layer=layers)
        if config.get("n_inner"):
            small["n_inner"] = 2 * small_hidden
    else:
        small.update(hidden_size=small_hidden, num_attention_heads=small_heads, num_hidden_layers=layers,
                     num_key_value_heads=small_heads // group, intermediate_size=2 * small_hidden)
        if isinstance(config.get("layer_types"), list):
            small["layer_types"] = config["layer_types"][:layers]
        if isinstance(config.get("max_window_layers"), int):
            small["max_window_layers"] = min(config["max_window_layers"], layers)
    small["vocab_size"] = 512
    return small


def tensors_of(config):
    """name → shape of the weights of a config, as transformers names them."""
    tensors = {}
    if config["model_type"] == "gpt2":
        c, vocab = config["n_embd"], config["vocab_size"]
        inner = config.get("n_inner") or 4 * c
        tensors["transformer.wte.weight"] = [vocab, c]
        tensors["transformer.wpe.weight"] = [config.get("n_positions", 1024), c]
        for i in range(config["n_layer"]):
            at = f"transformer.h.{i}."
            for name, rows, cols in [("attn.c_attn", c, 3 * c), ("attn.c_proj", c, c), ("mlp.c_fc", c, inner),
                                     ("mlp.c_proj", inner, c)]:
                tensors[at + name + ".weight"] = [rows, cols]
                tensors[at + name + ".bias"] = [cols]
            for norm in ["ln_1", "ln_2"]:
                tensors[at + norm + ".weight"] = tensors[at + norm + ".bias"] = [c]
        tensors["transformer.ln_f.weight"] = tensors["transformer.ln_f.bias"] = [c]
        return tensors
    c, inner, kind = config["hidden_size"], config["intermediate_size"], config["model_type"]
    width = config.get("head_dim") or (128 if kind == "qwen3" else c // config["num_attention_heads"])
    q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    bias = config.get("attention_bias", False) and kind in ("llama", "qwen3")
    mlp_bias = config.get("mlp_bias", False) and kind == "llama"
    tensors["model.embed_tokens.weight"] = [config["vocab_size"], c]
    if not config.get("tie_word_embeddings", False):
        tensors["lm_head.weight"] = [config["vocab_size"], c]
    tensors["model.norm.weight"] = [c]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, rows, cols, has_bias in [("self_attn.q_proj", q, c, bias or kind == "qwen2"),
                                           ("self_attn.k_proj", kv, c, bias or kind == "qwen2"),
                                           ("self_attn.v_proj", kv, c, bias or kind == "qwen2"),
                                           ("self_attn.o_proj", c, q, bias), ("mlp.gate_proj", inner, c, mlp_bias),
                                           ("mlp.up_proj", inner, c, mlp_bias), ("mlp.down_proj", c, inner, mlp_bias)]:
            tensors[at + name + ".weight"] = [rows, cols]
            if has_bias:
                tensors[at + name + ".bias"] = [rows]
        for norm in ["input_layernorm", "post_attention_layernorm"]:
            tensors[at + norm + ".weight"] = [c]
        if kind == "qwen3":
            tensors[at + "self_attn.q_norm.weight"] = tensors[at + "self_attn.k_norm.weight"] = [width]
    return tensors


def write_weights(path, tensors):
    """A safetensors file: small random matrices, norms of one."""
    noise = random.Random(1)
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * math.prod(shape)]}
        at += 4 * math.prod(shape)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors.items():
            is_norm = re.search(r"(norm|ln_.)\.weight$", name)
            values = (1.0 if is_norm else 0.04 * (noise.random() - 0.5) for _ in range(math.prod(shape)))
            array.array("f", values).tofile(file)


def reason_of(line):
    return next((reason for pattern, reason in REASONS if re.search(pattern, line)), None)


class Check:
    def __init__(self, zeno, work):
        self.zeno, self.work = zeno, work
        code, text = run([zeno, "init", "--hidden", "32", "--layers", "1", "--heads", "2", "--vocab", "512", "--out",
                          str(work / "init")])
        if code != 0:
            sys.exit(f"zeno init failed: {text}")
        (work / "book.txt").write_text("".join(f"line {i * i} of a book about numbers\n" for i in range(200)))

    def plan(self, folder, path):
        """(kind, line): planned, refused with its reason, or wrong."""
        code, text = run([self.zeno, "plan", "--model", str(folder)])
        if code == 0:
            return "planned", ""
        if code is None:
            return "wrong", f"plan takes more than {TIMEOUT_S} s"
        lines = [line for line in text.splitlines() if "warning" not in line]
        line = lines[-1] if lines else ""
        reason = reason_of(line)
        if code != 3 or len(lines) != 1 or "config.json" not in line or reason is None:
            return "wrong", f"exit code {code}: " + " / ".join(lines)[:400]
        return "refused: " + reason, line[line.find("config.json") + len("config.json: "):]

    def train(self, folder):
        """None, or what went wrong with a shrunk copy."""
        small = folder / "small"
        small.mkdir()
        config = shrink(json.loads((folder / "config.json").read_text()))
        (small / "config.json").write_text(json.dumps(config, indent=2))
        for name in ["tokenizer.json", "tokenizer_config.json"]:
            (small / name).write_text((self.work / "init" / name).read_text())
        write_weights(small / "model.safetensors", tensors_of(config))
        out = folder / "out"
        code, text = run([self.zeno, "train", "--model", str(small), "--data", str(self.work / "book.txt"), "--out",
                          str(out), "--steps", "2", "--micro-batch", "1", "--seq-len", "64", "--lr", "1e-4", "--device",
                          "cpu", "--cache", str(self.work / "cache")])
        if code != 0:
            return f"training: exit code {code}: {text.strip().splitlines()[-1:]}"
        losses = [json.loads(line).get("loss") for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses = [loss for loss in losses if loss is not None]
        if len(losses) < 2 or not all(math.isfinite(loss) and 4 < loss < 9 for loss in losses):
            return f"training: losses {losses}, expected about ln 512"
        return None

    def __call__(self, path):
        with tempfile.TemporaryDirectory(dir=self.work) as name:
            folder = Path(name)
            (folder / "config.json").write_bytes(path.read_bytes())
            kind, line = self.plan(folder, path)
            if kind != "planned":
                return path, kind, line
            trouble = self.train(folder)
            return path, "wrong" if trouble else "planned and trained", trouble or ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT.parent / "shared/real/model_configs")
    parser.add_argument("--zeno", default=str(ROOT / "build/zeno"))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(Check(args.zeno, Path(work)), sorted(args.folder.glob("*.json"))))
    for path, kind, line in results:
        if kind != "planned and trained":
            print(f"{path.name}: {kind}: {line}")
    print()
    counts = Counter(kind for _, kind, _ in results)
    for kind, count in sorted(counts.items()):
        print(f"{count:5} {kind}")
    print(f"{len(results):5} in all")
    sys.exit(1 if counts["wrong"] or not results else 0)


if __name__ == "__main__":
    main()
