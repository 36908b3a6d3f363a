#!/usr/bin/env python3
"""Writes tests/golden/kernels.safetensors: what PyTorch computes for each kernel, forward and backward.

Needs torch, transformers and safetensors (not needed to run the tests). References run in double and are stored
in fp32; only RoPE follows transformers' own fp32 steps. Tensors are named <case>.<tensor>.
  python tools/golden_kernels.py
"""
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

OUT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "kernels.safetensors"
golden = {}


def put(case, **tensors):
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        dtype = torch.float32 if tensor.is_floating_point() else torch.int32
        golden[f"{case}.{name}"] = tensor.to(dtype).contiguous().clone()


def normal(*shape, scale=1.0):
    """Values exact in fp32, so that the test starts from the same numbers."""
    return (torch.randn(*shape, dtype=torch.float32) * scale).double()


def gradients(function, dy, **inputs):
    """Runs function(**inputs) and its backward; returns y and {"d" + name: gradient}."""
    leaves = {k: v.clone().requires_grad_() for k, v in inputs.items()}
    y = function(**leaves)
    y.backward(dy)
    return y, {"d" + k: v.grad for k, v in leaves.items()}


def norms():
    rows, cols, eps = 7, 45, 1e-5
    x, dy = normal(rows, cols, scale=2.0), normal(rows, cols)
    weight, bias = 1 + normal(cols, scale=0.3), normal(cols, scale=0.3)

    def rms(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight

    def layer(x, weight, bias):
        return torch.nn.functional.layer_norm(x, (cols,), weight, bias, eps)

    weight, bias = weight.float().double(), bias.float().double()
    y, grads = gradients(rms, dy, x=x, weight=weight)
    put("rmsnorm", x=x, weight=weight, y=y, dy=dy, **grads)
    y, grads = gradients(layer, dy, x=x, weight=weight, bias=bias)
    put("layernorm", x=x, weight=weight, bias=bias, y=y, dy=dy, **grads)


def activations():
    x, dy = normal(9, 62, scale=2.0), normal(9, 62)
    for case, approximate in (("gelu_exact", "none"), ("gelu_tanh", "tanh")):
        y, grads = gradients(lambda x: torch.nn.functional.gelu(x, approximate=approximate), dy, x=x)
        put(case, x=x, y=y, dy=dy, **grads)
    y, grads = gradients(
        lambda x: torch.nn.functional.silu(x[:, :31]) * x[:, 31:], dy[:, :31].contiguous(), x=x)
    put("swiglu", x=x, y=y, dy=dy[:, :31], **grads)


def ropes():
    head_dim, heads = 16, 3
    cases = {
        "rope": (10000.0, None),
        "rope_theta": (500000.0, None),
        "rope_linear": (10000.0, {"rope_type": "linear", "factor": 4.0}),
        "rope_llama3": (500000.0, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
    }
    positions = torch.tensor([0, 1, 2, 3, 17, 100, 255, 1000, 2047])
    for case, (theta, scaling) in cases.items():
        config = LlamaConfig(hidden_size=head_dim * heads, num_attention_heads=heads, rope_theta=theta,
                             rope_scaling=scaling, max_position_embeddings=2048)
        rotary = LlamaRotaryEmbedding(config)
        x, dy = normal(len(positions), heads * head_dim).float(), normal(len(positions), heads * head_dim).float()
        x.requires_grad_()
        cos, sin = rotary(x, positions[None])
        q = x.view(1, len(positions), heads, head_dim).transpose(1, 2)
        y = apply_rotary_pos_emb(q, q, cos, sin)[0].transpose(1, 2).reshape(x.shape)
        y.backward(dy)
        put(case, x=x, positions=positions, y=y, dy=dy, dx=x.grad, frequencies=rotary.inv_freq)


def attention(case, batch, seq, heads, kv_heads, head_dim, doc_start, window=0):
    width = (heads + 2 * kv_heads) * head_dim
    qkv, dout = normal(batch * seq, width), normal(batch * seq, heads * head_dim)
    t = torch.arange(seq)
    allowed = (t[None, :, None] >= t[None, None, :]) & (t[None, None, :] >= doc_start[:, :, None])
    if window:
        allowed &= t[None, :, None] - t[None, None, :] < window

    def run(qkv):
        q, k, v = qkv.view(batch, seq, heads + 2 * kv_heads, head_dim).transpose(1, 2).split(
            [heads, kv_heads, kv_heads], dim=1)
        k, v = (z.repeat_interleave(heads // kv_heads, dim=1) for z in (k, v))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(head_dim)).masked_fill(~allowed[:, None], -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch * seq, heads * head_dim)

    y, grads = gradients(run, dout, qkv=qkv)
    shape = torch.tensor([batch, seq, heads, kv_heads, head_dim, window])
    put(case, shape=shape, qkv=qkv, doc_start=doc_start.reshape(1, -1), out=y, dout=dout, **grads)


def attentions():
    one = torch.zeros(2, 37, dtype=torch.long)
    packed = torch.zeros(2, 37, dtype=torch.long)
    packed[0, 5:] = 5
    packed[0, 6:] = 6
    packed[0, 30:] = 30
    packed[1, 19:] = 19
    attention("attention_mha", 2, 37, 3, 3, 8, one)
    attention("attention_gqa", 2, 37, 6, 2, 16, one)
    attention("attention_packed", 2, 37, 4, 2, 24, packed)
    attention("attention_window", 2, 37, 4, 1, 8, packed, window=7)


def cross_entropies():
    rows, vocab, scale = 11, 131, 0.25
    logits = normal(rows, vocab, scale=4.0)
    targets = torch.randint(0, vocab, (rows,))
    targets[3] = int(logits[3].argmax())
    leaf = logits.clone().requires_grad_()
    losses = torch.nn.functional.cross_entropy(leaf, targets, reduction="none")
    (losses.sum() * scale).backward()
    put("cross_entropy", logits=logits, targets=targets[None], losses=losses[None], dlogits=leaf.grad,
        hits=(logits.argmax(-1) == targets)[None], grad_scale=torch.tensor([scale]))


class Lion(torch.optim.Optimizer):
    """As in the paper (Chen et al. 2023, algorithm 2); torch has none."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = (beta1 * m + (1 - beta1) * p.grad).sign()
                p -= group["lr"] * (update + group["weight_decay"] * p)
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def optimizers():
    size, steps = 53, 10
    start, grads = normal(size), normal(steps, size, scale=0.1)
    kinds = {
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
        "adam": lambda p: torch.optim.Adam(p, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1),
        "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, weight_decay=0.1),
        "sgd_momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1),
        "lion": lambda p: Lion(p, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1),
    }
    for case, make in kinds.items():
        p = start.clone().requires_grad_()
        optimizer = make([p])
        weights = []
        for g in grads:
            p.grad = g.clone()
            optimizer.step()
            weights.append(p.detach().clone())
        put(case, start=start, grads=grads, weights=torch.stack(weights))


if __name__ == "__main__":
    torch.manual_seed(20240917)
    torch.set_num_threads(1)
    norms()
    activations()
    ropes()
    attentions()
    cross_entropies()
    optimizers()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    save_file(golden, OUT)
    print(f"{OUT}: {len(golden)} tensors, {OUT.stat().st_size} bytes")
