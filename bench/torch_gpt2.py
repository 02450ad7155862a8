#!/usr/bin/env python3
"""Trains GPT-2 in PyTorch the way its users would: the yardstick for train_gpt.

    python3 bench/torch_gpt2.py --size 124m --batch 64 --seq-len 1024 --micro-steps 8

torch.compile, scaled_dot_product_attention, autocast to bf16 over fp32 parameters, fused AdamW with
decay on matrices alone, gradients clipped to norm 1. The ids are random, of vocabulary 50,257, and
lie on the GPU: reading data costs PyTorch nothing here. The head has 50,304 rows, as is customary,
because PyTorch's products are slow with an odd number. Prints one JSON object: the time of every
step, and the memory that the allocator gave out, reserved, and that the driver counts.
"""

import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, PADDED_VOCAB = 50257, 50304
SIZES = {  # layers, heads, channels
    "tiny": (2, 2, 32),
    "124m": (12, 12, 768),
    "350m": (24, 16, 1024),
    "774m": (36, 20, 1280),
    "1558m": (48, 25, 1600),
}


class Block(nn.Module):
    def __init__(self, heads, channels):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(channels)
        self.attention_in = nn.Linear(channels, 3 * channels)
        self.attention_out = nn.Linear(channels, channels)
        self.mlp_norm = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * channels, channels),
        )

    def attend(self, x):
        # (B, T, 3 C) -> three of (B, heads, T, D)
        qkv = self.attention_in(x).unflatten(2, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attention_out(out.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, channels, context):
        super().__init__()
        self.tokens = nn.Embedding(PADDED_VOCAB, channels)
        self.positions = nn.Embedding(context, channels)
        self.blocks = nn.ModuleList(Block(heads, channels) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, PADDED_VOCAB, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        """The mean loss."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model, device):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=6e-4, betas=(0.9, 0.95), fused=device == "cuda")


def used_bytes():
    free, total = torch.cuda.mem_get_info()
    return total - free


class Trainer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.device = arguments.device
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        model = Gpt2(*SIZES[arguments.size], context=arguments.seq_len).to(self.device)
        self.parameters = list(model.parameters())
        self.optimizer = make_optimizer(model, self.device)
        self.model = model if arguments.no_compile else torch.compile(model)
        shape = (arguments.micro_steps, arguments.batch, arguments.seq_len + 1)
        self.ids = torch.randint(0, VOCAB, shape, device=self.device)

    def step(self):
        """One optimizer step; the loss of its last micro-step, on the device."""
        for ids in self.ids:
            with torch.autocast(self.device, torch.bfloat16):
                loss = self.model(ids[:, :-1], ids[:, 1:]) / len(self.ids)
            loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach() * len(self.ids)


class CpuTimer:
    def __init__(self):
        self.times = []

    @contextlib.contextmanager
    def step(self):
        begin = time.perf_counter()
        yield
        self.times.append((time.perf_counter() - begin) * 1e3)

    def read(self):
        return self.times


class CudaTimer:
    """Events around each step; nobody waits for one before the end."""

    def __init__(self):
        self.pairs = []

    @contextlib.contextmanager
    def step(self):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self.pairs.append((begin, end))

    def read(self):
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in self.pairs]


def measure(arguments):
    trainer = Trainer(arguments)
    is_cuda = arguments.device == "cuda"
    begin = time.perf_counter()
    trainer.step()
    if is_cuda:
        torch.cuda.synchronize()
    first_step_s = time.perf_counter() - begin
    for _ in range(arguments.warm_up - 1):
        trainer.step()
    timer = CudaTimer() if is_cuda else CpuTimer()
    for _ in range(arguments.steps):
        with timer.step():
            loss = trainer.step()
    step_ms = timer.read()
    tokens = arguments.micro_steps * arguments.batch * arguments.seq_len
    result = {
        "size": arguments.size, "batch": arguments.batch, "seq_len": arguments.seq_len,
        "micro_steps": arguments.micro_steps, "compiled": not arguments.no_compile,
        "parameters": sum(p.numel() for p in trainer.parameters), "torch": torch.__version__,
        "warm_up": arguments.warm_up, "first_step_s": first_step_s, "step_ms": step_ms,
        "tokens_per_s": tokens / statistics.median(step_ms) * 1e3, "loss": loss.item(),
    }
    if is_cuda:
        result["memory"] = {"max_allocated_bytes": torch.cuda.max_memory_allocated(),
                            "reserved_bytes": torch.cuda.memory_reserved(),
                            "used_bytes": used_bytes()}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="124m")
    parser.add_argument("--batch", type=int, default=64, help="sequences of a micro-step")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--micro-steps", type=int, default=8)
    parser.add_argument("--warm-up", type=int, default=10, help="steps before the timed ones")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--no-compile", action="store_true")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
