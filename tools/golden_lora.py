#!/usr/bin/env python3
"""Writes tests/golden/lora/<case>/: adapters of PEFT on the models of tests/golden/model_*, with what they compute.

Each folder is an adapter folder as PEFT writes it (adapter_config.json, adapter_model.safetensors: the adapter after
the steps) plus expected.safetensors:
  start.<tensor>                          the adapter before the steps (A as PEFT starts it, B small and random)
  tokens, targets, positions, doc_start   i32 [B, T], as in golden_models.py
  losses, grad_norms                      f32 [10]: of ten AdamW steps
  logits                                  f32 [B·T, V] of the first sequence after merge_and_unload()
and, as metadata, the hyperparameters. Needs torch, transformers, peft and safetensors; the tests do not.
  python tools/golden_lora.py
Does PEFT open what `zeno train --lora-rank` wrote, and `transformers` what `zeno export --merge` made of it, and do
both compute the same?
  python tools/golden_lora.py --check MODEL_FOLDER ADAPTER_FOLDER MERGED_FOLDER
"""
import json
import shutil
import sys
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent))
from golden_models import GOLDEN, HYPER, SEQ, STEPS, attention_mask, make_batch, mean_loss

# case: (model, arguments of LoraConfig). Targets as list, as expression, as "all-linear"; eps as in golden_models.py.
CASES = {
    "llama_qv": ("llama_gqa", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "llama_all": ("llama_gqa", dict(r=2, lora_alpha=5, target_modules="all-linear")),
    "gpt2_attn": ("gpt2", dict(r=4, lora_alpha=4, target_modules=["c_attn"])),
    "qwen3_expr": ("qwen3", dict(r=3, lora_alpha=6, target_modules=r".*\.(k_proj|o_proj|up_proj|down_proj)")),
    "llama_rs": ("llama_gqa", dict(r=4, lora_alpha=2, target_modules=["k_proj", "gate_proj", "down_proj"],
                                   use_rslora=True)),
    "llama_whole": ("llama_gqa", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "tied_whole": ("llama_tied", dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["embed_tokens"],
                                      ensure_weight_tying=True)),
}
EPS = 1e-4


def load_model(name):
    config = transformers.AutoConfig.from_pretrained(GOLDEN / f"model_{name}")
    config._attn_implementation = "eager"
    for dropout in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout"):
        if hasattr(config, dropout):
            setattr(config, dropout, 0.0)
    return transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / f"model_{name}", config=config,
                                                             dtype=torch.float32).eval()


def adapter_tensors(model):
    return {k: v.detach().clone().contiguous() for k, v in peft.get_peft_model_state_dict(model).items()}


def train(model, batch, mask):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=10 * HYPER["lr"], betas=(HYPER["beta1"], HYPER["beta2"]), eps=EPS,
                                  weight_decay=HYPER["weight_decay"])
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(model, batch, mask)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, HYPER["clip"]))
        losses.append(loss.detach())
        optimizer.step()
    return torch.stack(losses), torch.stack(norms)


def write_case(case, name, arguments):
    torch.manual_seed(sum(map(ord, case)))
    base = load_model(name)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **arguments)).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.normal_(0, 0.05)
    batch = make_batch(base.config.vocab_size, packed=False)
    mask = attention_mask(base.config, batch)
    tensors = {f"start.{k}": v for k, v in adapter_tensors(model).items()}
    losses, norms = train(model, batch, mask)
    folder = GOLDEN / "lora" / case
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = f"model_{name}"
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    merged = model.merge_and_unload()
    with torch.no_grad():
        logits = merged(input_ids=batch["tokens"][:1], position_ids=batch["positions"][:1], attention_mask=mask[:1],
                        use_cache=False).logits
    tensors |= {k: v.to(torch.int32) for k, v in batch.items()}
    tensors |= {"losses": losses, "grad_norms": norms, "logits": logits.reshape(-1, logits.shape[-1])}
    metadata = {k: repr(v) for k, v in HYPER.items()} | {"lr": repr(10 * HYPER["lr"]), "eps": repr(EPS)}
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "expected.safetensors", metadata)
    print(case, [round(float(x), 5) for x in losses])


def check(model, adapter, merged):
    tokens = torch.arange(SEQ)[None]
    load = lambda folder: transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        plain, whole = load(model)(tokens).logits, load(merged)(tokens).logits
        adapted = peft.PeftModel.from_pretrained(load(model), adapter).eval()(tokens).logits
    print("largest logit", float(adapted.abs().max()), "; the adapter changes it by", float((adapted - plain).abs().max()),
          "; adapter and merged model differ by", float((adapted - whole).abs().max()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        check(*sys.argv[2:5])
    else:
        for case, (name, arguments) in CASES.items():
            write_case(case, name, arguments)
