"""Whole training steps on one GPU: ours, the PyTorch peer and the floor of the libraries, in one job, with ratios.

usage: cuda_bench.py --bench build/bench/cuda_step_bench --reference DIR [CASE...]
  DIR holds floor.py and torch_baseline.py (../shared/reference of the project).
  CASE names a row of CASES; all of them when none is given.
Random tokens, AdamW, clip 1.0, bf16 compute. Per case, one after the other: the floor in bursts (floor.py of the reference),
the floor as the power cap lets a step sustain it (cuda_floor.py), ours, the peer. Ours runs in a process of its own once
its matmul plans are on the disk, as the peer does once it is compiled: right after tuning, the GPU is hot. With
--limit-gpu-clock it runs once more like that, which takes the rights of root and changes a setting of the machine: only where
that is allowed.
"""
import argparse
import pathlib
import re
import subprocess
import sys

from cuda_floor import UPDATE_BYTES

# name: (our arguments, steps timed, floor row, peer case, published tok/s of LLMQ on this kind of GPU)
CASES = {
    "llama-1b": ("llama-1b --seq 4096 --batch 4 --grad bf16", 20, ("llama3.2-1b", 4, 4096),
                 "llama3.2-1b:fsdp2:4096:4:none", None),
    "qwen-1.5b": ("qwen-1.5b --seq 4096 --batch 4 --grad bf16", 20, ("qwen2.5-1.5b", 4, 4096),
                  "qwen2.5-1.5b:fsdp2:4096:4:none", 51500),
    "qwen-0.5b": ("qwen-0.5b --seq 1024 --batch 32 --accum 4 --grad bf16 --states bf16", 8,
                  ("qwen2.5-0.5b", 32, 1024), None, 155000),
    "qwen-7b": ("qwen-7b --seq 1024 --batch 16 --accum 4 --grad bf16 --states bf16", 4,
                ("qwen2.5-7b", 16, 1024), None, 14350),
    "llama-8b": ("llama-8b --seq 4096 --batch 2 --grad bf16", 8, ("llama3.1-8b", 2, 4096),
                 "llama3.1-8b:fsdp2:4096:2:ckpt", None),
}


def run(command, timeout):
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        return result.stdout + result.stderr
    except subprocess.TimeoutExpired:
        return "timed out"


def tokens_per_second(text, tag):
    lines = [line for line in text.splitlines() if tag in line]
    if not lines:
        print(text[-600:])
        return None
    print(lines[-1], flush=True)
    found = re.search(r"([\d.]+) tok/s", lines[-1])
    return float(found.group(1)) if found else None


def floor_of(reference, row, update_bytes):
    source = open(f"{reference}/floor.py").read()
    source = re.sub(r"(?m)^for a in .*$", f"run(*{row!r})", source)
    source = source.replace("P * 30 /", f"P * {update_bytes} /")  # AdamW of this case
    return tokens_per_second(run([sys.executable, "-c", source], 120), "FLOOR")


def sustained_floor(case):
    script = pathlib.Path(__file__).with_name("cuda_floor.py")
    return tokens_per_second(run([sys.executable, str(script), case], 120), "SUSTAINED")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", default="build/bench/cuda_step_bench")
    parser.add_argument("--reference", required=True)
    parser.add_argument("--plans", default="matmul_plans.txt")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--limit-gpu-clock", action="store_true")
    parser.add_argument("--extra", default="", help="more arguments of ours, as in --extra='--memory 37.3'")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    table = []
    for name in options.cases or CASES:
        arguments, steps, row, peer_case, published = CASES[name]
        floor = floor_of(options.reference, row, UPDATE_BYTES.get(name, 30))
        sustained = sustained_floor(name)
        command = [options.bench, *arguments.split(), *options.extra.split(), "--plans", options.plans]
        run([*command, "--steps", "1"], 300)
        command += ["--steps", str(steps)]
        ours = tokens_per_second(run(command, 300), "OURS")
        limited = None
        if options.limit_gpu_clock:
            limited = tokens_per_second(run([*command, "--limit-gpu-clock"], 300), "OURS")
        peer = None
        if peer_case and not options.no_peer:
            command = [sys.executable, f"{options.reference}/torch_baseline.py", peer_case]
            peer = tokens_per_second(run(command, 300), "PEER")
        for label, speed in ((name, ours), (f"{name}, clock limited", limited)):
            if speed:
                table.append((label, speed, floor, sustained, peer, published))
    print(f"\n{'case':<26}{'ours':>10}{'burst':>10}{'share':>7}{'sustained':>11}{'share':>7}"
          f"{'FSDP2':>10}{'x':>6}{'LLMQ':>10}{'x':>6}")
    for name, ours, floor, sustained, peer, published in table:
        cell = lambda value, form: format(value, form) if value else "-"
        ratio = lambda other: ours / other if ours and other else None
        print(f"{name:<26}{cell(ours, '.0f'):>10}{cell(floor, '.0f'):>10}{cell(ratio(floor), '.3f'):>7}"
              f"{cell(sustained, '.0f'):>11}{cell(ratio(sustained), '.3f'):>7}"
              f"{cell(peer, '.0f'):>10}{cell(ratio(peer), '.2f'):>6}{cell(published, '.0f'):>10}{cell(ratio(published), '.2f'):>6}")


if __name__ == "__main__":
    main()
