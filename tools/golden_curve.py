#!/usr/bin/env python3
"""Writes tests/golden/curve/: a fine-tune of a tiny Llama by transformers and torch, for Zeno to follow.

The folder holds a Hugging Face model (config.json, model.safetensors), train.jsonl (one sample per line: token ids
and labels, samples of very different length) and expected.json (hyperparameters, and the loss and
gradient norm before each of 50 steps). A step takes BATCH samples in file order, padded to SEQ; its loss is the mean
over all learned tokens of the step, as transformers computes it with num_items_in_batch. fp32 on the CPU, AdamW
without decay on norms, clipping, linear warm-up and cosine. Needs torch, transformers and safetensors; the test does
not.
  python tools/golden_curve.py
"""
import json
import math
import shutil
from pathlib import Path

import torch
import transformers

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden" / "curve"
BATCH, SEQ, STEPS, VOCAB = 8, 48, 50, 96
HYPER = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0,
         "warmup": 5, "min_ratio": 0.1}


def make_samples():
    """A prompt of a few tokens, then an answer that follows from it: each token is the one before plus one or two."""
    generator = torch.Generator().manual_seed(7)
    draw = lambda low, high: int(torch.randint(low, high, (1,), generator=generator))
    samples = []
    for _ in range(BATCH * STEPS):
        prompt = [draw(1, VOCAB) for _ in range(draw(2, 9))]
        answer = []
        for _ in range(draw(1, SEQ - len(prompt) - 1)):
            answer.append(((answer or prompt)[-1] + prompt[0] % 2) % (VOCAB - 1) + 1)
        samples.append({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer})
    return samples


def learning_rate(step):
    """Of step 1, 2, …: Zeno's cosine, whose warm-up reaches the full rate at step `warmup`."""
    done = step - 1
    if done < HYPER["warmup"]:
        return HYPER["lr"] * (done + 1) / HYPER["warmup"]
    part = min(1, (done - HYPER["warmup"]) / (STEPS - HYPER["warmup"]))
    left = (1 + math.cos(math.pi * part)) / 2
    return HYPER["lr"] * (HYPER["min_ratio"] + (1 - HYPER["min_ratio"]) * left)


def batch_of(samples):
    tokens = torch.zeros(len(samples), SEQ, dtype=torch.long)
    labels = torch.full_like(tokens, -100)
    mask = torch.zeros_like(tokens)
    for row, sample in enumerate(samples):
        n = len(sample["input_ids"])
        tokens[row, :n] = torch.tensor(sample["input_ids"])
        labels[row, :n] = torch.tensor(sample["labels"])
        mask[row, :n] = 1
    return tokens, labels, mask


def main():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                                      rms_norm_eps=1e-5, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config).float()
    shutil.rmtree(FOLDER, ignore_errors=True)
    model.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    samples = make_samples()
    with open(FOLDER / "train.jsonl", "w") as file:
        for sample in samples:
            file.write(json.dumps(sample, separators=(",", ":")) + "\n")
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": HYPER["weight_decay"]},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=HYPER["lr"], betas=(HYPER["beta1"], HYPER["beta2"]), eps=HYPER["eps"])
    losses, norms, rates = [], [], []
    for step in range(1, STEPS + 1):
        tokens, labels, mask = batch_of(samples[(step - 1) * BATCH:step * BATCH])
        loss = model(input_ids=tokens, labels=labels, attention_mask=mask).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), HYPER["clip"])))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        losses.append(float(loss.detach()))
        rates.append(learning_rate(step))
    expected = dict(HYPER, batch=BATCH, seq=SEQ, steps=STEPS, losses=losses, grad_norms=norms, rates=rates)
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(losses[0], losses[-1])


if __name__ == "__main__":
    main()
