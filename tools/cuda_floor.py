"""The floor of a training step as a GPU can sustain it: every product, attention call and byte of a step, by the best library
call, queued as one CUDA graph and replayed for seconds, so that the clock is the one a training run gets under the power cap.
(floor.py of the reference times each call in a short burst and adds the times up: printed beside it.)

usage: cuda_floor.py [CASE...]    needs PyTorch; CASE names a row of SHAPES, all of them when none is given
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# hidden, layers, heads, kv heads, head size, intermediate, vocabulary, batch, sequence
SHAPES = {
    "llama-1b": (2048, 16, 32, 8, 64, 8192, 128256, 4, 4096),
    "qwen-1.5b": (1536, 28, 12, 2, 128, 8960, 151936, 4, 4096),
    "qwen-0.5b": (896, 24, 14, 2, 64, 4864, 151936, 32, 1024),
    "qwen-7b": (3584, 28, 28, 4, 128, 18944, 152064, 16, 1024),
    "llama-8b": (4096, 32, 32, 8, 128, 14336, 128256, 2, 4096),
}
# Bytes of AdamW per parameter and micro-batch: 30 with fp32 states; with bf16 states 14, once for four micro-batches.
UPDATE_BYTES = {"qwen-0.5b": 14 / 4, "qwen-7b": 14 / 4}
HEAD_ROWS = 4096  # logits exist for so many rows at a time


def random(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


def products(rows, inner, outer):
    x, w, dy = random(rows, inner), random(outer, inner), random(rows, outer)
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)
    forward = lambda: torch.mm(x, w.t(), out=y)
    backward = lambda: (torch.mm(dy, w, out=dx), torch.mm(dy.t(), x, out=dw))
    return forward, backward


def attention(batch, heads, kv_heads, seq, size):
    q = random(batch, heads, seq, size, grad=True)
    k, v = (random(batch, kv_heads, seq, size, grad=True) for _ in range(2))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    dout = torch.randn_like(out)

    def both():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        torch.autograd.grad(out, (q, k, v), dout)
    return both


def copier(count):
    """Moves `count` bytes in all: half of them read, half written."""
    a = random(int(count // 4))
    b = torch.empty_like(a)
    return lambda: b.copy_(a)


def step_of(shape, update_bytes):
    hidden, layers, heads, kv_heads, size, inter, vocab, batch, seq = shape
    rows = batch * seq
    sizes = [(hidden, (heads + 2 * kv_heads) * size), (heads * size, hidden), (hidden, 2 * inter), (inter, hidden)]
    block = [products(rows, k, n) for k, n in sizes]
    head = products(HEAD_ROWS, hidden, vocab)
    attend = attention(batch, heads, kv_heads, seq, size)
    passes = copier(rows * 2 * (hidden * 30 + inter * 12))
    params = sum(k * n for k, n in sizes) * layers + hidden * vocab
    update = copier(params * update_bytes / layers)  # AdamW, in as many pieces as there are layers

    def step():
        for _ in range(layers):
            for forward, _ in block:
                forward()
        for _ in range(rows // HEAD_ROWS):
            head[0]()
            head[1]()
        for _ in range(layers):
            attend()  # forward and backward
            for _, backward in block:
                backward()
            passes()
            update()
    flops = 6 * rows * (params + layers * batch * heads * seq * seq * size // rows)
    return step, rows, flops


def replay(graph, seconds):
    torch.cuda.synchronize()
    begin, count = time.time(), 0
    while time.time() - begin < seconds:
        graph.replay()
        torch.cuda.synchronize()
        count += 1
    return (time.time() - begin) / count


def measure(name):
    step, rows, flops = step_of(SHAPES[name], UPDATE_BYTES.get(name, 30))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    time.sleep(2)  # a cool start
    first = replay(graph, 0.3)
    replay(graph, 3)
    sustained = replay(graph, 4)
    print(f"SUSTAINED {name}: {rows / sustained:.0f} tok/s ({sustained * 1e3:.1f} ms, "
          f"{flops / sustained / 1e12:.0f} TFLOP/s; in the first 0.3 s {rows / first:.0f})", flush=True)


if __name__ == "__main__":
    for case in sys.argv[1:] or SHAPES:
        measure(case)
        torch.cuda.empty_cache()
