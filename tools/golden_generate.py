#!/usr/bin/env python3
"""Writes tests/golden/generate/<case>.safetensors: what transformers generates from the models of golden_models.py.

The models are those of tests/golden/model_<case>; nothing but prompts and results is stored. Greedy, fp32, on the CPU,
eager attention. Logits come from a full forward pass per token, without a cache: nothing that Zeno has in common.
  prompt.<i>   i32 [n]        the prompt
  tokens.<i>   i32 [NEW]      what follows, also checked against model.generate()
  logits.<i>   f32 [NEW, V]   from which each of them was chosen
Needs torch, transformers and safetensors; the tests do not.
  python tools/golden_generate.py                     writes the files
  python tools/golden_generate.py check DIR CASE TOL  opens DIR (say, a zeno export of model_<case>) with from_pretrained
                                                      and compares its logits with the stored ones
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
CASES = ["gpt2", "llama_gqa", "llama_tied", "mistral", "qwen2", "qwen3"]
LENGTHS = [1, 4, 11, 19]  # of the prompts; with what follows, beyond the sliding window and near GPT-2's 32 positions
NEW = 12


def open_model(folder, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def greedy(model, prompt):
    """Tokens and the logits they were chosen from; every pass sees the whole sequence."""
    tokens, logits = list(prompt), []
    for _ in range(NEW):
        row = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        best = row.topk(2).values
        assert best[0] - best[1] > 1e-3, "too close to call: choose another seed"
        logits.append(row)
        tokens.append(int(row.argmax()))
    return tokens[len(prompt):], torch.stack(logits)


def write(case):
    model = open_model(GOLDEN / f"model_{case}")
    tensors = {}
    for i, length in enumerate(LENGTHS):
        prompt = torch.randint(0, model.config.vocab_size, (length,))
        tokens, logits = greedy(model, prompt.tolist())
        again = model.generate(prompt[None], attention_mask=torch.ones(1, length), max_new_tokens=NEW, do_sample=False,
                               eos_token_id=None, pad_token_id=0)
        assert again[0, length:].tolist() == tokens
        tensors |= {f"prompt.{i}": prompt.int(), f"tokens.{i}": torch.tensor(tokens).int(), f"logits.{i}": logits}
    folder = GOLDEN / "generate"
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / f"{case}.safetensors")
    print(case, (folder / f"{case}.safetensors").stat().st_size, "bytes")


def check(folder, case, tolerance):
    model = open_model(folder)
    stored, worst = load_file(GOLDEN / "generate" / f"{case}.safetensors"), 0.0
    for i in range(len(LENGTHS)):
        tokens = torch.cat([stored[f"prompt.{i}"], stored[f"tokens.{i}"]]).long()
        logits = model(input_ids=tokens[None], use_cache=False).logits[0, -NEW - 1:-1]
        expected = stored[f"logits.{i}"]
        worst = max(worst, float((logits - expected).norm() / expected.norm()))
    print(case, folder, "relative difference of logits", worst)
    assert worst <= tolerance


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        if len(sys.argv) > 1:
            check(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
        else:
            for name in CASES:
                torch.manual_seed(11)
                write(name)
