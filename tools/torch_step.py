"""One training step of GPT-2-124M with PyTorch on the CPU; prints the median milliseconds. The peer of bench/step_bench.

The strongest ordinary setting: SDPA attention, fused AdamW, clipping; eager mode (torch.compile with --compile)."""
import argparse
import statistics
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--seq", type=int, default=512)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--dtype", default="fp32")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(0)
config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, n_positions=max(1024, args.seq))
model = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa").train()
step_model = torch.compile(model) if args.compile else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
tokens = torch.randint(0, config.vocab_size, (args.batch, args.seq))
times = []
for step in range(args.steps + 1):
    start = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
        loss = step_model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step > 0:
        times.append((time.perf_counter() - start) * 1000)
print(statistics.median(times))
