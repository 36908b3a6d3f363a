#!/usr/bin/env python3
"""Writes tests/golden/model_<case>/: tiny models of transformers' own classes, with what they compute.

Each folder is a Hugging Face folder (config.json, model.safetensors) plus expected.safetensors, and for some cases
expected_packed.safetensors (several documents per row). Needs torch, transformers and safetensors; the tests do
not. All in fp32 on the CPU, eager attention, no dropout.

expected*.safetensors holds
  tokens, targets, positions, doc_start   i32 [B, T]; targets are already shifted, -100 = ignored
  losses, grad_norms                      f32 [10]: mean loss over valid tokens and gradient norm before each step
  grad.<hf name>                          gradient of the first loss, before clipping
  weight.<hf name>                        weights after 10 AdamW steps on this batch (expected.safetensors only)
and, as metadata, the hyperparameters of the steps (eps differs between cases).
  python tools/golden_models.py
"""
import json
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
BATCH, SEQ, STEPS = 2, 24, 10
HYPER = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-5, "weight_decay": 0.1, "clip": 1.0}
# Adam divides by the gradient's own size, so an element whose gradient is rounding noise takes a full step in a random
# direction, and two correct programs disagree: with eps 1e-8 transformers' eager and sdpa attention differ by up to
# 9e-6 here. With 1e-5 they differ by less than 3e-7. GPT-2's key bias has no effect at all (softmax ignores a
# constant), nor nearly so Qwen2's where RoPE turns slowly: all noise, hence more. kernels.safetensors has eps 1e-8.
EPS = {"gpt2": 1e-4, "qwen2": 1e-4}
DOCUMENTS = [[7, 11, 6], [1, 23]]  # lengths per row in the packed case

LLAMA = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, max_position_embeddings=64,
             num_attention_heads=6, num_key_value_heads=2)
LLAMA3_SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 16}

# case: (class, config arguments, also a packed batch, config.json in the style of transformers 4)
CASES = {
    "gpt2": ("GPT2", dict(vocab_size=97, n_embd=48, n_layer=2, n_head=6, n_positions=32, bos_token_id=0,
                     eos_token_id=0), True, False),
    "llama_gqa": ("Llama", dict(LLAMA, vocab_size=101, rope_theta=500000.0, rope_scaling=LLAMA3_SCALING,
                                rms_norm_eps=1e-5, tie_word_embeddings=False), True, True),
    "llama_tied": ("Llama", dict(LLAMA, vocab_size=103, num_key_value_heads=6, rope_theta=10000.0,
                                 rope_scaling={"rope_type": "linear", "factor": 4.0}, rms_norm_eps=1e-6,
                                 tie_word_embeddings=True), False, False),
    "mistral": ("Mistral", dict(LLAMA, vocab_size=107, num_attention_heads=3, num_key_value_heads=1, head_dim=16,
                                sliding_window=9, rope_theta=10000.0, tie_word_embeddings=False), False, True),
    "qwen2": ("Qwen2", dict(LLAMA, vocab_size=113, rope_theta=1000000.0, tie_word_embeddings=True), True, True),
    "qwen3": ("Qwen3", dict(LLAMA, vocab_size=131, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                            rope_theta=1000000.0, tie_word_embeddings=False), True, False),
}


def make_model(family, arguments):
    config = getattr(transformers, family + "Config")(**arguments)
    config._attn_implementation = "eager"
    for dropout in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout"):
        if hasattr(config, dropout):
            setattr(config, dropout, 0.0)
    name = family + ("LMHeadModel" if family == "GPT2" else "ForCausalLM")
    model = getattr(transformers, name)(config).float().eval()
    # Values of a trained model's size: every non-linearity and every bias matters.
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() == 2:
                p.normal_(0, 0.3 if "embed" in key or "wte" in key or "wpe" in key else 0.15)
            elif "bias" in key:
                p.normal_(0, 0.1)
            else:
                p.normal_(1, 0.1)
    return model


def make_batch(vocab, packed):
    documents = DOCUMENTS if packed else [[SEQ]] * BATCH
    tokens = torch.randint(0, vocab, (BATCH, SEQ + 1))
    targets = tokens[:, 1:].clone()
    positions = torch.zeros(BATCH, SEQ, dtype=torch.long)
    doc_start = torch.zeros(BATCH, SEQ, dtype=torch.long)
    for row, lengths in enumerate(documents):
        begin = 0
        for length in lengths:
            end = begin + length
            positions[row, begin:end] = torch.arange(length)
            doc_start[row, begin:end] = begin
            if packed:
                targets[row, end - 1] = -100
            begin = end
    targets[0, 2:5] = -100
    targets[1, -1] = -100
    return {"tokens": tokens[:, :-1].contiguous(), "targets": targets, "positions": positions,
            "doc_start": doc_start}


def attention_mask(config, batch):
    """4-D additive mask: causal, within a document, within the sliding window."""
    t = torch.arange(SEQ)
    allowed = (t[None, :, None] >= t[None, None, :]) & (t[None, None, :] >= batch["doc_start"][:, :, None])
    window = getattr(config, "sliding_window", None)
    if config.model_type == "mistral" and window:
        allowed &= t[None, :, None] - t[None, None, :] < window
    mask = torch.zeros(BATCH, 1, SEQ, SEQ)
    return mask.masked_fill(~allowed[:, None], torch.finfo(torch.float32).min)


def mean_loss(model, batch, mask):
    logits = model(input_ids=batch["tokens"], position_ids=batch["positions"], attention_mask=mask,
                   use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), batch["targets"].view(-1),
                                             ignore_index=-100)


def train(model, batch, mask, eps):
    decay = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": HYPER["weight_decay"]}, {"params": rest, "weight_decay": 0.0}],
        lr=HYPER["lr"], betas=(HYPER["beta1"], HYPER["beta2"]), eps=eps)
    losses, norms, gradients = [], [], None
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(model, batch, mask)
        loss.backward()
        if gradients is None:
            gradients = {k: p.grad.clone() for k, p in model.named_parameters()}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), HYPER["clip"]))
        losses.append(loss.detach())
        optimizer.step()
    return torch.stack(losses), torch.stack(norms), gradients


def expected(model, packed, eps):
    """Trains the model on one batch; returns what the test compares."""
    batch = make_batch(model.config.vocab_size, packed)
    mask = attention_mask(model.config, batch)
    if not packed:  # the mask written here must be the one transformers makes by itself
        with torch.no_grad():
            assert torch.allclose(mean_loss(model, batch, mask), mean_loss(model, batch, None), rtol=1e-6)
    losses, norms, gradients = train(model, batch, mask, eps)
    tensors = {k: v.to(torch.int32) for k, v in batch.items()}
    tensors |= {"losses": losses, "grad_norms": norms}
    tensors |= {f"grad.{k}": v for k, v in gradients.items()}
    if not packed:
        tensors |= {f"weight.{k}": p.detach() for k, p in model.named_parameters()}
    return {k: v.contiguous().clone() for k, v in tensors.items()}


def write_config(model, folder, style4):
    """config.json as transformers writes it, or as folders made with transformers 4 have it."""
    config = json.loads(model.config.to_json_string())
    config["architectures"] = [type(model).__name__]
    config["torch_dtype" if style4 else "dtype"] = "float32"
    if style4:
        config.pop("dtype", None)
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        config["transformers_version"] = "4.46.0"
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_case(case):
    family, arguments, also_packed, style4 = CASES[case]
    folder = GOLDEN / f"model_{case}"
    shutil.rmtree(folder, ignore_errors=True)
    model = make_model(family, arguments)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_config(model, folder, style4)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    hyper = HYPER | {"eps": EPS.get(case, HYPER["eps"])}
    metadata = {k: repr(v) for k, v in hyper.items()}
    for packed in [False, True] if also_packed else [False]:
        model.load_state_dict(start)
        name = "expected_packed.safetensors" if packed else "expected.safetensors"
        save_file(expected(model, packed, hyper["eps"]), folder / name, metadata)
    print(case, sum(p.numel() for p in model.parameters()), "parameters,",
          sum(f.stat().st_size for f in folder.iterdir()), "bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in CASES:
        torch.manual_seed(1000)
        write_case(name)
