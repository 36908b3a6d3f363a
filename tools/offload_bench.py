#!/usr/bin/env python3
"""Training with states outside the GPU: ours, the PyTorch peer and the limits of the machine, in one job, with ratios.

    tools/offload_bench.py build/zeno --reference DIR [--rows llama-3b qwen-3b ...] [--work DIR] [--nvme DIR] [--no-peer]
                           [--no-floor] [--seconds 75] [--extra "FLAGS OF zeno train"] [--json FILE]

DIR holds floor.py and torch_baseline.py (../shared/reference of the project). Per row: a model folder of that shape with
random weights, random tokens, then `zeno train`, which is ended once enough steps are measured (its weights are not
wanted). The limits of a step, each alone and everything else hidden behind it:
  floor  its matmuls, attention and bytes by the best library calls (floor.py), no recompute
  link   the states that lie outside the GPU once up and once down, at the rate of pinned copies both ways at once
  disk   the states that lie on disk once read and once written, at the rate of O_DIRECT both ways at once
The share is that of the slowest of them. Above 1 is possible: states that the CPU updates do not cross the link.
A row that fails says why and the next one runs.
"""
import argparse
import dataclasses
import json
import mmap
import os
import pathlib
import random
import re
import shlex
import shutil
import struct
import subprocess
import sys
import threading
import time

GIB = 2**30


@dataclasses.dataclass
class Row:
    shape: tuple  # hidden, layers, heads, kv heads, head size, intermediate, vocabulary
    tied: bool
    seq: int
    batch: int
    flags: str
    accum: int = 1
    arch: str = "llama"
    state_bytes: int = 12  # of a parameter: master and two moments
    peer: str = ""  # case of torch_baseline.py
    published: float = 0  # tok/s of LLMQ on this kind of GPU (hardware.md)
    warm_up: int = 5
    steps: int = 8
    device: str = "cuda"

    def tokens(self):
        return self.seq * self.batch * self.accum

    def on_disk(self):
        return any(word in self.flags for word in ("--offload-optimizer nvme", "--offload-optimizer auto"))


ON_HOST, ON_DISK = "--stage 2 --offload-optimizer cpu", "--stage 2 --offload-optimizer nvme"
ROWS = {
    "llama-3b": Row((3072, 28, 24, 8, 128, 8192, 128256), True, 4096, 4, ON_HOST, peer="llama3.2-3b:offload:4096:4:ckpt"),
    "qwen-3b": Row((2048, 36, 16, 2, 128, 11008, 151936), True, 1024, 16, ON_HOST + " --state-dtype bf16", arch="qwen2",
                   state_bytes=6, published=21300),
    "llama-8b": Row((4096, 32, 32, 8, 128, 14336, 128256), False, 4096, 4, ON_HOST, warm_up=4, steps=6),
    "qwen-14b": Row((5120, 48, 40, 8, 128, 13824, 152064), False, 4096, 4,
                    "--recompute full --offload-optimizer auto --host-mem 95GB", arch="qwen2", warm_up=1, steps=3),
    "llama-1b-disk": Row((2048, 16, 32, 8, 64, 8192, 128256), True, 4096, 4, ON_DISK, warm_up=2, steps=4),
    # For a trial of this program on any machine.
    "trial": Row((64, 2, 4, 2, 16, 128, 512), True, 64, 2, "--stage 0", device="cpu"),
    "trial-offload": Row((64, 2, 4, 2, 16, 128, 512), True, 64, 2, ON_HOST, device="cpu"),
}


class RowError(Exception):
    pass


def tail(text):
    return " | ".join(line.strip() for line in text.strip().splitlines()[-3:])[-500:]


# ---- the model and its data


def tensors(row):
    hidden, layers, heads, kv_heads, size, inter, vocab = row.shape
    yield "model.embed_tokens.weight", [vocab, hidden]
    for i in range(layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", [hidden]
        for name, out in (("q", heads * size), ("k", kv_heads * size), ("v", kv_heads * size)):
            yield at + f"self_attn.{name}_proj.weight", [out, hidden]
            if row.arch == "qwen2":
                yield at + f"self_attn.{name}_proj.bias", [out]
        yield at + "self_attn.o_proj.weight", [hidden, heads * size]
        yield at + "post_attention_layernorm.weight", [hidden]
        yield at + "mlp.gate_proj.weight", [inter, hidden]
        yield at + "mlp.up_proj.weight", [inter, hidden]
        yield at + "mlp.down_proj.weight", [hidden, inter]
    yield "model.norm.weight", [hidden]
    if not row.tied:
        yield "lm_head.weight", [vocab, hidden]


def count(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def parameters(row):
    return sum(count(shape) for _, shape in tensors(row))


def bf16(value):
    return struct.pack("<f", value)[2:]


def write_weights(path, row):
    """Normal values from a table whose length shares no factor with any row: drawing each would take minutes."""
    rng = random.Random(1)
    table = b"".join(bf16(rng.gauss(0, 0.02)) for _ in range(65537))
    block = memoryview(table * 256)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors(row):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + 2 * count(shape)]}
        end += 2 * count(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors(row):
            left = 2 * count(shape)
            source = memoryview(bf16(1.0) * count(shape)) if "norm.weight" in name else block
            while left:
                left -= file.write(source[:left])
        os.fsync(file.fileno())  # or the disk would still be busy with it while we measure


def make_model(zeno, row, folder):
    """Config and tokenizer as `zeno init` writes them for a small model; the sizes and weights are ours."""
    hidden, layers, heads, kv_heads, size, inter, vocab = row.shape
    small = "--hidden 64 --layers 1 --heads 4 --kv-heads 2 --intermediate 128 --vocab 512".split()
    made = subprocess.run([zeno, "init", "--arch", row.arch, *small, "--out", folder], capture_output=True, text=True)
    if made.returncode != 0:
        raise RowError("zeno init: " + tail(made.stderr))
    config = json.loads((folder / "config.json").read_text())
    config.update(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                  head_dim=size, intermediate_size=inter, vocab_size=vocab, tie_word_embeddings=row.tied,
                  max_position_embeddings=max(row.seq, 4096), torch_dtype="bfloat16")
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:1] * layers
    (folder / "config.json").write_text(json.dumps(config))
    write_weights(folder / "model.safetensors", row)


def write_tokens(path, row, steps):
    vocab, needed = row.shape[-1], (steps + 2) * row.tokens() + 1
    rng = random.Random(2)
    with open(path, "wb") as file:
        file.write(struct.pack("<8sIIQQq24x", b"ZENOTOK1", 1, 4, vocab, needed, -1))
        file.write(struct.pack(f"<{needed}I", *(rng.randrange(vocab) for _ in range(needed))))


# ---- ours


def peak_host(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", text).group(1)) * 1024
    except (OSError, AttributeError):
        return 0


def device_used():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.split()[0]) * 2**20
    except (OSError, IndexError, ValueError, subprocess.TimeoutExpired):
        return 0


def read_steps(log):
    """Whole lines only: the run may be writing the last one."""
    try:
        lines = log.read_text().split("\n")[:-1]
    except OSError:
        return []
    return [step for step in map(json.loads, lines) if "grad_norm" in step]


def run_ours(command, log, errors, row, seconds):
    """Steps of the run, and the memory it used, taken just before it is ended."""
    wanted = row.warm_up + row.steps
    with open(errors, "w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    end, steps, host, device = time.time() + seconds, [], 0, 0
    try:
        while process.poll() is None and len(steps) < wanted and time.time() < end:
            time.sleep(0.1)
            steps = read_steps(log)
            host = max(host, peak_host(process.pid))
        ended = process.poll()
        device = device_used() if ended is None and row.device == "cuda" else 0
    finally:
        process.kill()
        process.wait()
    steps = read_steps(log)
    if len(steps) < row.warm_up + 2:
        why = f"exit code {ended}" if ended is not None else f"stopped after {seconds:.0f} s"
        text = tail(pathlib.Path(errors).read_text())
        raise RowError(f"{why}, {len(steps)} steps, needed {row.warm_up + 2}: {text}")
    return steps[row.warm_up:wanted], host, device


def plan_of(zeno, flags):
    """Bytes of masters and moments by tier; None where `zeno plan` refuses."""
    made = subprocess.run([zeno, "plan", *flags, "--json"], capture_output=True, text=True)
    try:
        tiers = json.loads(made.stdout)["bytes"]
        return {tier: tiers[tier]["masters"] + tiers[tier]["moments"] for tier in ("device", "host", "disk")}
    except (ValueError, KeyError):
        return None


def ours(options, name, row, folder):
    make_model(options.zeno, row, folder / "model")
    write_tokens(folder / "tokens.zt", row, row.warm_up + row.steps)
    config = {"data_types": {"grad_accum_dtype": "bf16"}, "zeno": {"recompute": "auto"}}
    (folder / "config.json").write_text(json.dumps(config))
    flags = f"--config {folder}/config.json --model {folder}/model --device {row.device} --ranks 1 --dtype bf16 " \
            f"--seq-len {row.seq} --micro-batch {row.batch} --grad-accum {row.accum} --clip 1 --lr 1e-5 {row.flags}"
    if row.on_disk():
        flags += f" --nvme-path {options.nvme}"
    flags = shlex.split(flags) + shlex.split(options.extra)
    command = [options.zeno, "train", *flags, "--data", str(folder / "tokens.zt"), "--packing", "wrapped", "--steps",
               str(row.warm_up + row.steps + 1), "--out", str(folder / "out"), "--cache", str(options.work / "cache")]
    print(f"[{name}] {shlex.join(command)}", flush=True)
    states = plan_of(options.zeno, flags)
    steps, host, device = run_ours(command, folder / "out/metrics.jsonl", folder / "log", row, options.seconds)
    for line in pathlib.Path(folder / "log").read_text().splitlines():
        if "offload: " in line:
            print(f"    {line.strip()}", flush=True)
    times = [step["step_ms"] / 1000 for step in steps]
    peaks = steps[-1]["peak_bytes"]
    return {"tok_s": row.tokens() * len(times) / sum(times), "step_s": sum(times) / len(times), "measured": len(times),
            "loss": steps[-1]["loss"], "device_gib": max(device, peaks["device"]) / GIB,
            "host_gib": max(host, peaks["host"]) / GIB, "disk_gib": peaks["disk"] / GIB, "states": states}


# ---- the peer and the limits


def python(arguments, seconds, tag):
    """The last line of a program that has `tag`; None, said aloud, where there is none."""
    try:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=seconds)
        text = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        text = f"no answer within {seconds} s"
    lines = [line for line in text.splitlines() if tag in line]
    if lines:
        print(f"    {lines[-1]}", flush=True)
        return lines[-1]
    print(f"    {tag}: {tail(text)}", flush=True)
    return None


def rate_in(line):
    found = re.search(r"([\d.]+) tok/s", line or "")
    return float(found.group(1)) if found else None


def floor_of(options, name, row):
    """Seconds of the step, as floor.py counts them. All micro-batches alike."""
    source = (options.reference / "floor.py").read_text()
    source = re.sub(r"(?m)^for a in .*$", f"SH[{name!r}] = {row.shape!r}; run({name!r}, {row.batch}, {row.seq})", source)
    rate = rate_in(python(["-c", source], 90, "FLOOR"))
    return row.tokens() / rate if rate else None


LINK = """
import time, torch
up, down = (torch.empty(2**30, dtype=torch.uint8, pin_memory=True) for _ in range(2))
a, b = (torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(2))
one, two = torch.cuda.Stream(), torch.cuda.Stream()
def both():
    with torch.cuda.stream(one): a.copy_(up, non_blocking=True)
    with torch.cuda.stream(two): down.copy_(b, non_blocking=True)
both(); torch.cuda.synchronize(); begin = time.time()
for _ in range(16): both()
torch.cuda.synchronize(); seconds = (time.time() - begin) / 16
print(f"LINK {2**30 / seconds / 1e9:.2f} GB/s each way, both at once")
"""


def link_rate():
    line = python(["-c", LINK], 60, "LINK")
    return float(line.split()[1]) * 1e9 if line else None


def disk_rate(folder, size=2 * 10**9, block=16 << 20, threads=4):
    """Bytes per second and way while as much is read as written, past the page cache; until both are done."""
    blocks = max(threads, size // block // threads * threads)
    paths = [folder / "bench.read", folder / "bench.write"]

    def move(path, call, first):
        buffer = mmap.mmap(-1, block)
        buffer.write(os.urandom(1 << 20) * (block >> 20))
        handle = os.open(path, os.O_RDWR | os.O_DIRECT)
        try:
            for i in range(first, blocks, threads):
                if call(handle, [buffer], i * block) != block:
                    errors.append(f"{path}: a transfer was cut short")
        except OSError as error:
            errors.append(str(error))
        finally:
            os.close(handle)

    def timed(jobs):
        team = [threading.Thread(target=move, args=(*job, i)) for job in jobs for i in range(threads)]
        begin = time.time()
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        return time.time() - begin

    errors = []
    try:
        for path in paths:
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, blocks * block)
        timed([(paths[0], os.pwritev)])
        timed([(paths[1], os.pwritev)])  # later writes go over blocks that are there, as those of states do
        seconds = timed([(paths[0], os.preadv), (paths[1], os.pwritev)])
    except OSError as error:
        errors.append(str(error))
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
    if errors:
        print(f"    DISK: {errors[0]}", flush=True)
        return None
    print(f"    DISK {blocks * block / seconds / 1e9:.2f} GB/s each way, both at once", flush=True)
    return blocks * block / seconds


def limits(options, name, row, states, rates):
    """Seconds of a step by limit."""
    found = {}
    if not options.no_floor:
        found["floor"] = floor_of(options, name, row)
    if not states or states["host"] + states["disk"] == 0:  # no plan: all of them where the flags put them
        everything = row.state_bytes * parameters(row)
        states = {"host": 0 if row.on_disk() else everything, "disk": everything if row.on_disk() else 0}
    if "link" not in rates and row.device == "cuda":
        rates["link"] = link_rate()
    if rates.get("link"):
        found["link"] = (states["host"] + states["disk"]) / rates["link"]
    if states["disk"] > 0:
        if "disk" not in rates:
            rates["disk"] = disk_rate(options.nvme)
        if rates["disk"]:
            found["disk"] = states["disk"] / rates["disk"]
    return {key: seconds for key, seconds in found.items() if seconds}


# ---- the table


def bench(options, name, rates):
    row = ROWS[name]
    folder = options.work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options.nvme.mkdir(parents=True, exist_ok=True)
    result = {"row": name, "tokens": row.tokens(), "params": parameters(row)}
    try:
        result.update(ours(options, name, row, folder))
    except (RowError, OSError) as error:
        result["error"] = str(error)
        print(f"    ERROR {error}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for path in options.nvme.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    result["limits"] = limits(options, name, row, result.get("states"), rates)
    if row.peer and not options.no_peer:
        line = python([str(options.reference / "torch_baseline.py"), row.peer], 150, "PEER")
        result["peer"] = rate_in(line)
    result["published"] = row.published or None
    return result


def print_table(results):
    print(f"\n{'row':<15}{'tok/s':>8}{'s/step':>8}{'FSDP2':>8}{'x':>6}{'LLMQ*':>8}{'x':>6}"
          f"{'floor':>8}{'link':>8}{'disk':>8}{'share':>7}{'device':>8}{'host':>7}{'disk':>7}")
    cell = lambda value, form: format(value, form) if value else "-"
    for r in results:
        if "error" in r:
            print(f"{r['row']:<15} ERROR {r['error']}")
        rate, bounds = r.get("tok_s"), r["limits"]
        allowed = {key: r["tokens"] / seconds for key, seconds in bounds.items()}
        ratio = lambda other: rate / other if rate and other else None
        share = max(bounds.values()) / r["step_s"] if rate and bounds else None
        print(f"{r['row']:<15}{cell(rate, '.0f'):>8}{cell(r.get('step_s'), '.2f'):>8}"
              f"{cell(r.get('peer'), '.0f'):>8}{cell(ratio(r.get('peer')), '.2f'):>6}"
              f"{cell(r.get('published'), '.0f'):>8}{cell(ratio(r.get('published')), '.2f'):>6}"
              f"{cell(allowed.get('floor'), '.0f'):>8}{cell(allowed.get('link'), '.0f'):>8}{cell(allowed.get('disk'), '.0f'):>8}"
              f"{cell(share, '.3f'):>7}{cell(r.get('device_gib'), '.1f'):>8}{cell(r.get('host_gib'), '.1f'):>7}"
              f"{cell(r.get('disk_gib'), '.1f'):>7}")
    print("floor, link, disk: tok/s that each alone allows; share: of the slowest; device, host, disk: peak GiB; "
          "*published, not run here")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zeno")
    parser.add_argument("--reference", type=pathlib.Path, default=pathlib.Path("../shared/reference"))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=[name for name in ROWS if "trial" not in name])
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/offload_bench"))
    parser.add_argument("--nvme", type=pathlib.Path, help="folder of the disk tier; default: the work folder")
    parser.add_argument("--seconds", type=float, default=75, help="longest run of ours, loading included")
    parser.add_argument("--extra", default="", help="further flags of zeno train")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-floor", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, help="results, one object per row")
    options = parser.parse_args()
    options.nvme = (options.nvme or options.work) / "offload_bench_states"  # ours alone: emptied after each row
    results, rates = [], {}
    for name in options.rows:
        results.append(bench(options, name, rates))
        if options.json:
            options.json.write_text("".join(json.dumps(result) + "\n" for result in results))
    print_table(results)
    shutil.rmtree(options.nvme, ignore_errors=True)


if __name__ == "__main__":
    main()
