"""GPT-2 in numpy and float64, from the paper and the layout of Hugging Face's files.

Nothing of the engine is used, not even its reader of safetensors: what this and the engine agree on
is what the files mean. B: batch, T: positions, C: channels, H: heads, V: vocabulary.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def read_safetensors(path: Path) -> tuple[dict[str, NDArray], dict[str, str]]:
    """All tensors of a file and the names of their types; floats become float64."""
    raw = path.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + header_bytes])
    header.pop("__metadata__", None)
    tensors, types = {}, {}
    for name, entry in header.items():
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        data, types[name] = raw[begin:end], entry["dtype"]
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        else:
            values = np.frombuffer(data, {"F32": "<f4", "I32": "<i4"}[entry["dtype"]])
        if values.dtype.kind == "f":
            values = values.astype(np.float64)
        tensors[name] = values.reshape(entry["shape"])
    return tensors, types


def layernorm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered**2).mean(-1, keepdims=True)
    return centered / np.sqrt(variance + eps) * weight + bias


def gelu(x: Array) -> Array:
    """The tanh form, which GPT-2 was trained with."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x: Array) -> Array:
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


class NumpyGpt2:
    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors, self.types = read_safetensors(folder / "model.safetensors")

    def _linear(self, x: Array, name: str) -> Array:
        """Hugging Face keeps the weights of GPT-2 as (inputs, outputs)."""
        return x @ self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def _norm(self, x: Array, name: str) -> Array:
        eps = self.config["layer_norm_epsilon"]
        return layernorm(x, self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"], eps)

    def _attention(self, x: Array, name: str) -> Array:
        B, T, C = x.shape
        H = self.config["n_head"]
        # (B, T, 3C) -> three of (B, H, T, C / H)
        qkv = self._linear(x, f"{name}.c_attn").reshape(B, T, 3, H, C // H)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(C // H)
        scores = np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf)
        mixed = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(B, T, C)
        return self._linear(mixed, f"{name}.c_proj")

    def logits(self, ids: NDArray) -> Array:
        """ids (B, T) -> (B, T, V)"""
        embedding = self.tensors["transformer.wte.weight"]
        x = embedding[ids] + self.tensors["transformer.wpe.weight"][: ids.shape[1]]
        for layer in range(self.config["n_layer"]):
            block = f"transformer.h.{layer}"
            x = x + self._attention(self._norm(x, f"{block}.ln_1"), f"{block}.attn")
            hidden = gelu(self._linear(self._norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc"))
            x = x + self._linear(hidden, f"{block}.mlp.c_proj")
        return self._norm(x, "transformer.ln_f") @ embedding.T

    def loss(self, ids: NDArray, targets: NDArray) -> float:
        """Mean cross entropy in nats per token."""
        logits = self.logits(ids)
        top = logits.max(-1)
        log_sums = top + np.log(np.exp(logits - top[..., None]).sum(-1))
        chosen = np.take_along_axis(logits, targets[..., None].astype(int), -1)[..., 0]
        return float((log_sums - chosen).mean())
