#!/usr/bin/env python3
"""The curves of docs/scale.md: `zeno plan --sweep` for a few models, as one SVG and as tables on stdout.

    tools/scale_curves.py build/zeno docs/scale.svg
"""
import json
import math
import subprocess
import sys

MODELS = {"7B": ("7e9", "--micro-batch 4"), "70B": ("70e9", "--micro-batch 4"), "1T": ("1e12", "--micro-batch 1 --offload-activations")}
COMMON = "--machine h100-8 --seq-len 4096 --recompute full --stage 3"
PREFETCH = '{"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 6e9, "stage3_max_live_parameters": 2e10}}'
COLOURS = ["#2a78c8", "#c8642a", "#3a9a5a"]
LEFT, TOP, WIDTH, HEIGHT, GAP = 60, 30, 330, 220, 70


def sweep(zeno, params, flags):
    worlds = ",".join(str(8 * 2**i) for i in range(12))
    command = [zeno, "plan", "--params", params, *COMMON.split(), *flags.split(), "--config", "/tmp/zeno_scale.json", "--sweep", worlds, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [point for point in json.loads(done.stdout) if point["fits"]]


def panel(index, title, series, value, low, top, label):
    x0, y0 = LEFT + index * (WIDTH + GAP), TOP
    place = lambda ranks, v: (x0 + (math.log2(ranks) - 3) / 11 * WIDTH, y0 + HEIGHT * (1 - (v - low) / (top - low)))
    out = [f'<text x="{x0}" y="{y0 - 12}" font-weight="bold">{title}</text>']
    for k in range(5):
        v = low + (top - low) * k / 4
        _, y = place(8, v)
        out.append(f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{label(v)}</text>')
    for ranks in (8, 64, 512, 4096, 16384):
        x, _ = place(ranks, low)
        out.append(f'<text x="{x:.1f}" y="{y0 + HEIGHT + 16}" text-anchor="middle">{ranks}</text>')
    for (name, points), colour in zip(series.items(), COLOURS):
        line = " ".join("{:.1f},{:.1f}".format(*place(p["ranks"], value(p))) for p in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = place(points[-1]["ranks"], value(points[-1]))
        out.append(f'<text x="{x + 4:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    return out


def main():
    zeno, target = sys.argv[1:3]
    with open("/tmp/zeno_scale.json", "w") as file:
        file.write(PREFETCH)
    series = {name: sweep(zeno, params, flags) for name, (params, flags) in MODELS.items()}
    for name, points in series.items():
        print(f"\n{name}\n| GPUs | GiB | step s | tok/s per GPU | TFLOP/s per GPU | exposed | hours between failures | save every | goodput | groups |\n|---|---|---|---|---|---|---|---|---|---|")
        for p in points:
            if p["ranks"] in (8, 64, 512, 1024, 4096, 16384):
                print(f"| {p['ranks']} | {p['device_bytes'] / 2**30:.0f} | {p['step_seconds']:.2f} | {p['tokens_per_s'] / p['ranks']:.0f} | {p['tflops_per_rank']:.0f} | "
                      f"{100 * p['exposed']:.0f} % | {p['hours_between_failures']:.1f} | {p['checkpoint_interval_s']:.0f} s | {100 * p['goodput']:.1f} % | {p['groups']} |")
    plain = lambda v: f"{v:.0f}"
    body = panel(0, "TFLOP/s of a GPU", series, lambda p: p["tflops_per_rank"], 0, 800, plain)
    body += panel(1, "goodput, %", series, lambda p: 100 * p["goodput"], 92, 100, plain)
    body += panel(2, "good tokens/s of all", series, lambda p: math.log10(p["good_tokens_per_s"]), 4, 8, lambda v: f"10^{v:.0f}")
    width = LEFT + 3 * (WIDTH + GAP)
    with open(target, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 40}" font-family="sans-serif" font-size="12" fill="#777">\n')
        file.write("\n".join(body) + "\n</svg>\n")


main()
