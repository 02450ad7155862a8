#!/usr/bin/env python3
"""How far PyTorch in bf16 is from a golden folder: the yardstick for the engine's bf16.

    python3 bench/torch_golden.py tests/golden/gpt2-tiny --mode pure [--device cuda]

Builds GPT-2 from the folder's model.safetensors and prints one JSON object a line,
{"what": "logits", "error": 0.0123}, of the quantities that golden_check prints: the largest
difference of the logits, the norm of the difference of each gradient, the relative difference of
the losses and gradient norms of the AdamW steps.

  pure      parameters and activations bf16, as the engine keeps them; AdamW on fp32 masters
  autocast  parameters fp32, torch.autocast(bfloat16)
  float32, float64   to check this program itself
"""

import argparse
import contextlib
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

DTYPES = {"pure": torch.bfloat16, "autocast": torch.float32, "float32": torch.float32,
          "float64": torch.float64}


class Gpt2:
    """Transformers' layout of GPT-2 as functions of a dictionary of tensors."""

    def __init__(self, config, weights, dtype, device):
        self.config = config
        self.params = {
            name: tensor.to(device, dtype).requires_grad_() for name, tensor in weights.items()
        }

    def linear(self, x, name):
        return x @ self.params[f"{name}.weight"] + self.params[f"{name}.bias"]

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.params[f"{name}.weight"],
                            self.params[f"{name}.bias"], self.config["layer_norm_epsilon"])

    def attention(self, x, name):
        B, T, C = x.shape
        heads = self.config["n_head"]
        q, k, v = (part.view(B, T, heads, C // heads).transpose(1, 2)
                   for part in self.linear(x, f"{name}.c_attn").split(C, dim=2))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear(out.transpose(1, 2).reshape(B, T, C), f"{name}.c_proj")

    def logits(self, ids):
        embedding = self.params["transformer.wte.weight"]
        x = embedding[ids] + self.params["transformer.wpe.weight"][: ids.shape[1]]
        for layer in range(self.config["n_layer"]):
            block = f"transformer.h.{layer}"
            x = x + self.attention(self.norm(x, f"{block}.ln_1"), f"{block}.attn")
            inner = self.linear(self.norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc")
            x = x + self.linear(F.gelu(inner, approximate="tanh"), f"{block}.mlp.c_proj")
        return self.norm(x, "transformer.ln_f") @ embedding.T


class MasterAdamW:
    """AdamW on masters of at least fp32, clipped; the model's parameters are the rounded masters."""

    def __init__(self, model, options):
        self.params = model.params
        self.clip = options["grad_clip"]
        wide = torch.promote_types(next(iter(self.params.values())).dtype, torch.float32)
        self.masters = {n: p.detach().to(wide, copy=True) for n, p in self.params.items()}
        decayed = [m for m in self.masters.values() if m.dim() >= 2]
        plain = [m for m in self.masters.values() if m.dim() < 2]
        self.adamw = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": options["weight_decay"]},
             {"params": plain, "weight_decay": 0.0}],
            lr=options["lr"], betas=(options["beta1"], options["beta2"]), eps=options["eps"])

    def step(self):
        """Uses and clears the gradients; their norm before clipping."""
        for name, param in self.params.items():
            self.masters[name].grad = param.grad.to(self.masters[name].dtype)
            param.grad = None
        norm = torch.nn.utils.clip_grad_norm_(self.masters.values(), self.clip)
        self.adamw.step()
        with torch.no_grad():
            for name, param in self.params.items():
                param.copy_(self.masters[name])
        return norm.item()


def relative(value, expected):
    return abs(value - expected) / abs(expected)


def read_weights(folder):
    """Without the head, which is the embedding, and the masks that some exports hold."""
    weights = load_file(folder / "model.safetensors")
    return {name if name.startswith("transformer.") else f"transformer.{name}": tensor
            for name, tensor in weights.items()
            if name != "lm_head.weight" and not name.endswith((".attn.bias", ".attn.masked_bias"))}


def compare(folder, mode, device):
    """Yields (what, error)."""
    golden = load_file(folder / "golden.safetensors", device=device)
    numbers = json.loads((folder / "golden.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    model = Gpt2(config, read_weights(folder), DTYPES[mode], device)
    inputs, targets = golden["inputs"].long(), golden["targets"].long()
    cast = (torch.autocast(device, torch.bfloat16) if mode == "autocast"
            else contextlib.nullcontext())

    def forward():
        with cast:
            logits = model.logits(inputs)
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return logits, F.cross_entropy(wide.flatten(0, 1), targets.flatten())

    logits, loss = forward()
    yield "logits", (logits.double() - golden["logits"].double()).abs().max().item()
    yield "loss", relative(loss.item(), numbers["loss"])
    loss.backward()
    for name, param in model.params.items():
        difference = param.grad.double() - golden[f"grad.{name}"].double()
        yield f"grad {name}", difference.norm().item()
    optimizer = MasterAdamW(model, numbers["optimizer"])
    for step, expected in enumerate(numbers["grad_norms"], start=1):
        yield f"gradient norm of step {step}", relative(optimizer.step(), expected)
        _, loss = forward()
        loss.backward()
        yield f"loss after step {step}", relative(loss.item(), numbers["losses"][step])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=DTYPES, default="pure")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    for what, error in compare(arguments.folder, arguments.mode, arguments.device):
        print(json.dumps({"what": what, "error": error if math.isfinite(error) else None}))


if __name__ == "__main__":
    main()
