#!/usr/bin/env python3
"""Makes a golden folder from an exported model: what transformers computes from it.

    python3 tools/gpu_check/transformers_golden.py EXPORTED OUT --tokens val_000.bin --window 512

OUT gets the model's files, golden.safetensors (inputs, targets, logits, gradients) and golden.json,
computed in float64, so that `golden_check OUT` says how far the engine is. Prints one JSON object:
the versions, and the mean loss in fp32 over every window of the tokens.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ingot_data.shards import HEADER_BYTES  # noqa: E402

ROWS = 2
OPTIMIZER = {"name": "AdamW", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
             "weight_decay": 0.1, "grad_clip": 1.0}


def read_windows(shard, length):
    """(windows, length + 1) ids: each window's targets are its inputs, one further."""
    raw = shard.read_bytes()
    token_bytes = int.from_bytes(raw[12:16], "little")
    count = int.from_bytes(raw[16:24], "little")
    ids = np.frombuffer(raw, f"<u{token_bytes}", count, HEADER_BYTES).astype(np.int64)
    windows = (count - 1) // length
    return torch.from_numpy(np.stack([ids[i * length: (i + 1) * length + 1]
                                      for i in range(windows)]))


def load(folder, dtype, device):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.to(device).eval()


def write_golden(folder, out, windows, length, device):
    shutil.copytree(folder, out)
    model = load(folder, torch.float64, device)
    rows = windows[:ROWS, : length + 1].to(device)
    inputs, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    logits = model(inputs).logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    tensors = {"inputs": inputs.int(), "targets": targets.int(), "logits": logits.detach().float()}
    for name, param in model.named_parameters():
        tensors[f"grad.{name}"] = param.grad.float()
    save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()},
              out / "golden.safetensors")
    numbers = {"batch": ROWS, "seq_len": length, "loss": loss.item(), "losses": [loss.item()],
               "grad_norms": [], "optimizer": OPTIMIZER}
    (out / "golden.json").write_text(json.dumps(numbers, indent=1))


@torch.no_grad()
def mean_loss(folder, windows, device):
    model = load(folder, torch.float32, device)
    total = 0.0
    for rows in windows.split(8):
        rows = rows.to(device)
        logits = model(rows[:, :-1]).logits
        total += F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(),
                                 reduction="sum").item()
    return total / (windows.shape[0] * (windows.shape[1] - 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exported", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--window", type=int, required=True,
                        help="tokens of a window: what the model was trained with")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row of the golden batch")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    windows = read_windows(arguments.tokens, arguments.window)
    write_golden(arguments.exported, arguments.out, windows,
                 min(arguments.length, arguments.window), arguments.device)
    print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__,
                      "windows": windows.shape[0],
                      "loss": mean_loss(arguments.exported, windows, arguments.device)}))


if __name__ == "__main__":
    main()
