#!/usr/bin/env python3
"""Writes tests/golden/nf4.safetensors: weights, their NF4 codes and scales, and what they decode to.

Written from the definitions (QLoRA, section 3; scales in 8 bits as zeno/kernels/nf4.h says), one element at a time.
With bitsandbytes on the path its codes and block maxima must be the same bits.
  pip install --target /tmp/bnb --no-deps bitsandbytes
  PYTHONPATH=/tmp/bnb python tools/golden_nf4.py
"""
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

OUT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "nf4.safetensors"
LEVELS = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], dtype=np.float32)
BLOCK, CELL = 64, 64 * 256
F = np.float32


def nearest(x):
    return int(np.argmin([abs(float(x) - float(level)) for level in LEVELS]))


def quantise(values):
    """Codes (one per element), largest magnitudes, q of each block, base and step of each cell."""
    codes, largest, q, bases, steps = [], [], [], [], []
    for begin in range(0, len(values), CELL):
        cell = values[begin:begin + CELL]
        maxima = [np.max(np.abs(cell[b:b + BLOCK])) for b in range(0, len(cell), BLOCK)]
        for b, most in enumerate(maxima):
            codes += [nearest(F(x / most)) if most > 0 else 7 for x in cell[b * BLOCK:(b + 1) * BLOCK]]
        base = min(maxima)
        step = F(F(max(maxima) - base) / F(255 * 255))
        q += [min(255, int(np.floor(np.sqrt(F(F(m - base) / step)) + F(0.5)))) if step > 0 else 0 for m in maxima]
        largest += maxima
        bases.append(base)
        steps.append(step)
    return codes, largest, q, bases, steps


def decode(codes, q, bases, steps):
    out = []
    for i, code in enumerate(codes):
        cell = i // CELL
        scale = F(bases[cell] + F(steps[cell] * F(q[i // BLOCK] ** 2)))
        out.append(F(LEVELS[code] * scale))
    return np.array(out, dtype=np.float32)


def check_against_bitsandbytes(values, codes, largest):
    try:
        import bitsandbytes.functional as bnb
    except ImportError:
        print("bitsandbytes is not here: not compared")
        return
    packed, state = bnb.quantize_4bit(torch.from_numpy(values), blocksize=BLOCK, quant_type="nf4")
    pairs = packed.flatten().numpy()
    theirs = np.stack([pairs >> 4, pairs & 15], axis=1).flatten()[:len(codes)]
    assert np.array_equal(theirs, np.array(codes)), np.flatnonzero(theirs != np.array(codes))
    assert np.array_equal(state.absmax.numpy(), np.array(largest, dtype=np.float32))
    assert np.array_equal(state.code.numpy(), LEVELS)
    print(f"{len(codes)} codes and {len(largest)} maxima equal those of bitsandbytes")


def main():
    rng = np.random.default_rng(7)
    # Blocks of different sizes, one with an outlier, one of zeros, and a short tail.
    values = rng.standard_normal(40 * BLOCK + 38).astype(np.float32)
    values *= np.repeat(rng.uniform(0.01, 0.05, len(values) // BLOCK + 1), BLOCK)[:len(values)].astype(np.float32)
    values[5 * BLOCK + 3] = 4.0
    values[12 * BLOCK:13 * BLOCK] = 0
    codes, largest, q, bases, steps = quantise(values)
    check_against_bitsandbytes(values, codes, largest)
    pairs = np.array(codes + [7] * (len(codes) % 2), dtype=np.int32).reshape(-1, 2)
    save_file({
        "values": values,
        "codes": (pairs[:, 0] << 4 | pairs[:, 1]).astype(np.int32),
        "scales": np.array(q, dtype=np.int32),
        "base": np.array(bases, dtype=np.float32),
        "step": np.array(steps, dtype=np.float32),
        "decoded": decode(codes, q, bases, steps),
    }, OUT)
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
