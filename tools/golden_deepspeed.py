"""Writes tests/golden/deepspeed: checkpoints of real DeepSpeed, and what DeepSpeed itself says is in them.

    PYTHONPATH=<folder with the PyPI package deepspeed> DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 \
        python -m torch.distributed.run --nproc_per_node 2 tools/golden_deepspeed.py tests/golden/deepspeed

A tiny Llama with odd sizes, so that every kind of padding occurs, is trained for 3 steps on 4 fixed sequences (all of them in every step,
so that their order does not matter), saved, and trained for 3 more. Written: model/ (the folder it started from), data.jsonl, one folder
per run, two universal folders made by DeepSpeed's own converter, expected.safetensors (<run>/<state>/<name>: masters and moments asked from
the live engine) and losses.json (the loss of all 6 steps of each run).
"""
import json
import os
import shutil
import sys
import types

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

SEQUENCES, LENGTH, SAVED_STEP, STEPS = 4, 12, 3, 6
MOMENTS = {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"}

# groups: weight decay for matrices only; frozen: the first block; accum: dtype of gradient accumulation (another optimizer class);
# aligned, round_robin: options that change the layout
RUNS = [
    dict(name="stage0_fp32", stage=0, groups=True),
    dict(name="stage0_bf16", stage=0, dtype="bf16"),
    dict(name="stage0_weights", stage=0, optimizer=False),
    dict(name="stage1_fp32", stage=1, groups=True),
    dict(name="stage1_bf16", stage=1, dtype="bf16", aligned=True),
    dict(name="stage1_bf16_accum", stage=1, dtype="bf16", accum="fp32"),
    dict(name="stage2_fp32", stage=2, groups=True),
    dict(name="stage2_bf16", stage=2, dtype="bf16", round_robin=True),
    dict(name="stage2_tied", stage=2, tied=True, frozen=True),
    dict(name="stage3_fp32", stage=3, groups=True),
    dict(name="stage3_bf16", stage=3, dtype="bf16"),
    dict(name="stage3_tied", stage=3, tied=True, frozen=True),
]
UNIVERSAL = {"universal_stage2": "stage2_fp32", "universal_stage3": "stage3_fp32"}


def make_model(tied=False, frozen=False):
    torch.manual_seed(7)
    config = LlamaConfig(hidden_size=9, intermediate_size=11, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
                         head_dim=8, vocab_size=29, max_position_embeddings=32, initializer_range=0.2, rope_theta=10000.0,
                         tie_word_embeddings=tied, attn_implementation="eager")
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # norms that are not all one
        for name, param in model.named_parameters():
            if param.dim() == 1:
                param.add_(torch.randn_like(param) * 0.1)
    if frozen:
        for name, param in model.named_parameters():
            param.requires_grad = not name.startswith("model.layers.0.")
    return model


def make_optimizer(model, groups):
    params = [p for p in model.parameters() if p.requires_grad]
    if groups:
        params = [dict(params=[p for p in params if p.dim() > 1], weight_decay=0.1),
                  dict(params=[p for p in params if p.dim() == 1], weight_decay=0.0)]
    return torch.optim.AdamW(params, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, **({} if groups else dict(weight_decay=0.0)))


def make_engine(run):
    model = make_model(run.get("tied", False), run.get("frozen", False))
    optimizer = make_optimizer(model, run.get("groups", False)) if run.get("optimizer", True) else None
    config = {
        "train_batch_size": SEQUENCES,
        "train_micro_batch_size_per_gpu": SEQUENCES // dist.get_world_size(),
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": run["stage"], "round_robin_gradients": run.get("round_robin", False),
                              "parameter_alignment": run.get("aligned", False),
                              "stage3_param_persistence_threshold": 0, "sub_group_size": 1000},
        "bf16": {"enabled": run.get("dtype") == "bf16"},
    }
    if "accum" in run:
        config["data_types"] = {"grad_accum_dtype": run["accum"]}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def make_tokens():
    return torch.randint(0, 29, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(3))


def train_step(engine, tokens):
    share = SEQUENCES // dist.get_world_size()
    mine = tokens[dist.get_rank() * share:(dist.get_rank() + 1) * share]
    loss = engine(input_ids=mine, labels=mine).loss
    engine.backward(loss)
    engine.step()
    mean = loss.detach().float().clone()
    dist.all_reduce(mean)
    return (mean / dist.get_world_size()).item()


# What the live engine holds. At stage 0 nothing is partitioned, so it is where torch keeps it.
def state_of(engine, run):
    out = {}
    if hasattr(engine.optimizer, "_hp_optimizer_states_linked"):  # DeepSpeed links moments before it has those of the second group
        if run.get("round_robin"):  # DeepSpeed links in the order before the parameters were moved
            order = engine.optimizer.bit16_groups
            engine.optimizer.bit16_groups = engine.optimizer.round_robin_bit16_groups
            for param in engine.module.parameters():
                param._hp_mapping = None
            engine.optimizer._link_all_hp_params()
            engine.optimizer.bit16_groups = order
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    for name, param in engine.module.named_parameters():
        if not run.get("optimizer", True) or not param.requires_grad:
            if run["stage"] == 3:
                with deepspeed.zero.GatheredParameters([param]):
                    out[f"master/{name}"] = param.detach().float().clone()
            else:
                out[f"master/{name}"] = param.detach().float().clone()
        elif run["stage"] > 0:
            out[f"master/{name}"] = safe_get_full_fp32_param(param).clone()
            for state, key in MOMENTS.items():
                out[f"{state}/{name}"] = safe_get_full_optimizer_state(param, key).clone()
    if run["stage"] == 0 and run.get("optimizer", True):
        names = dict(zip(engine.module.parameters(), [n for n, _ in engine.module.named_parameters()]))
        optimizer = engine.optimizer
        masters = optimizer.fp32_groups if hasattr(optimizer, "fp32_groups") else None
        torch_optimizer = optimizer.optimizer if masters else optimizer
        pairs = list(names.items())
        if masters:  # 16-bit weights: the optimizer keeps fp32 copies in the same order
            halves = [p for group in optimizer.fp16_groups for p in group]
            pairs = [(m, names[h]) for m, h in zip([p for group in masters for p in group], halves)]
        for param, name in pairs:
            out[f"master/{name}"] = param.detach().float().clone()
            for state, key in MOMENTS.items():
                out[f"{state}/{name}"] = torch_optimizer.state[param][key].clone()
    return out


def write_model(out):
    model = make_model()
    model.save_pretrained(f"{out}/model")
    make_model(tied=True).save_pretrained(f"{out}/model_tied")
    with open(f"{out}/data.jsonl", "w") as file:
        for row in make_tokens().tolist():
            file.write(json.dumps({"input_ids": row}) + "\n")


# The converter is asked as its command line would ask it, without worker processes.
def convert(source, target):
    from deepspeed.checkpoint import ds_to_universal
    ds_to_universal.main(types.SimpleNamespace(input_folder=source, output_folder=target, num_extract_workers=1, num_merge_workers=1,
                                               keep_temp_folder=False, strict=True, inject_missing_state=True))


def main():
    out = os.path.abspath(sys.argv[1])
    torch.backends.mkldnn.enabled = False  # oneDNN has no bf16 product on CPUs without AVX-512
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    if rank == 0:
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        write_model(out)
    dist.barrier()
    expected, losses, tokens = {}, {}, make_tokens()
    for run in RUNS:
        engine = make_engine(run)
        folder = f"{out}/{run['name']}"
        if not run.get("optimizer", True):
            engine.save_checkpoint(folder)
            expected |= {f"{run['name']}/{k}": v for k, v in state_of(engine, run).items()}
            continue
        history = []
        for step in range(STEPS):
            if step == SAVED_STEP:
                engine.save_checkpoint(folder)
                expected |= {f"{run['name']}/{k}": v for k, v in state_of(engine, run).items()}
            history.append(train_step(engine, tokens))
        losses[run["name"]] = history
        if rank == 0:
            print(run["name"], history, flush=True)
        engine.destroy()
    dist.barrier()
    if rank == 0:
        for target, source in UNIVERSAL.items():
            convert(f"{out}/{source}/global_step{SAVED_STEP}", f"{out}/{target}/global_step{SAVED_STEP}_universal")
        for folder, _, files in os.walk(out):  # copies of DeepSpeed's own scripts
            for name in files:
                if name.endswith(".py"):
                    os.remove(os.path.join(folder, name))
        save_file({k: v.contiguous() for k, v in expected.items()}, f"{out}/expected.safetensors")
        with open(f"{out}/losses.json", "w") as file:
            json.dump(dict(deepspeed=deepspeed.__version__, torch=torch.__version__, saved_step=SAVED_STEP, losses=losses), file, indent=1)
    dist.barrier()


if __name__ == "__main__":
    main()
