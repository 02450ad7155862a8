#!/usr/bin/env python3
"""What PyTorch reaches on the memory-bound ops of GPT-2 124M, on this GPU.

One JSON object a line, named as bench_kernels names its cases: op, shape, dtype, ms (median), every
sample, and GB/s counting every tensor once. `how` says which way was the faster one: the library's
kernel as it is called, or compiled by torch.compile.
"""

import argparse
import json
import statistics

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch_timing import rounded, samples_ms


class Sizes:
    B, T, C, V, PADDED, CHUNK, PARAMETERS = 64, 1024, 768, 50257, 50304, 4096, 124_475_904


class Tiny:  # to try this program without a GPU
    B, T, C, V, PADDED, CHUNK, PARAMETERS = 2, 8, 16, 100, 128, 16, 1000


def random(*shape, dtype=torch.bfloat16, grad=False):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.randn(*shape, device=device, dtype=dtype, requires_grad=grad)


def random_ids(limit, *shape):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.randint(0, limit, shape, device=device)


def backward_of(out, inputs):
    """A call that computes the gradients of out, again and again."""
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)


# Each op: (name, shape, bytes, {how: call}). Bytes are what bench_kernels counts.


def layernorm(m):
    N, C = m.B * m.T, m.C
    x, weight, bias = random(N, C, grad=True), random(C, grad=True), random(C, grad=True)

    def norm(x):
        return F.layer_norm(x, (C,), weight, bias)

    compiled = torch.compile(norm)
    forward = {"library": lambda: norm(x.detach()), "compiled": lambda: compiled(x.detach())}
    yield "layernorm_forward", f"{N}x{C}", 2 * (2 * N * C + 2 * C) + 8 * N, forward
    # As bench_kernels' case without a residual.
    backward = {"library": backward_of(norm(x), (x, weight, bias)),
                "compiled": backward_of(compiled(x), (x, weight, bias))}
    yield ("layernorm_backward", f"{N}x{C}",
           2 * (3 * N * C + C) + 8 * N + 4 * C, backward)


def residual_layernorm(m):
    N, C = m.B * m.T, m.C
    x, y, weight, bias = random(N, C), random(N, C), random(C), random(C)

    def step(x, y):
        total = x + y
        return total, F.layer_norm(total, (C,), weight, bias)

    compiled = torch.compile(step)
    yield ("residual_layernorm_forward", f"{N}x{C}", 2 * (4 * N * C + 2 * C) + 8 * N,
           {"library": lambda: step(x, y), "compiled": lambda: compiled(x, y)})


def cross_entropy(m):
    logits = random(m.CHUNK, m.V, grad=True)
    targets = random_ids(m.V, m.CHUNK)

    def both(logits):
        loss = F.cross_entropy(logits, targets, reduction="sum")
        return torch.autograd.grad(loss, logits)

    def loss_of(logits):
        return F.cross_entropy(logits.float(), targets, reduction="sum")

    compiled_loss = torch.compile(loss_of)
    # Named as bench_kernels names it; PyTorch is given no padded columns.
    yield ("cross_entropy", f"{m.CHUNK}x{m.PADDED}", 2 * 2 * m.CHUNK * m.V + 8 * m.CHUNK,
           {"library": lambda: both(logits),
            "compiled": lambda: torch.autograd.grad(compiled_loss(logits), logits)})


def adamw(m):
    parameter = random(m.PARAMETERS, dtype=torch.float32).requires_grad_()
    parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW([parameter], lr=1e-4, weight_decay=0.1, fused=True)
    optimizer.step()
    yield ("adamw", str(m.PARAMETERS), 4 * 7 * m.PARAMETERS, {"library": optimizer.step})


def embedding(m):
    ids = random_ids(m.V, m.B, m.T)
    wte, wpe = random(m.V, m.C, grad=True), random(m.T, m.C, grad=True)
    N = m.B * m.T

    def look_up(wte, wpe):
        return wte[ids] + wpe

    compiled = torch.compile(look_up)
    shape = f"{m.B}x{m.T}x{m.C}"
    rows = ids.unique().numel()  # of wte; one that occurs again could stay in the cache
    yield ("embedding_forward", shape, 4 * N + 2 * (N + rows + m.T) * m.C,
           {"library": lambda: look_up(wte.detach(), wpe.detach()),
            "compiled": lambda: compiled(wte.detach(), wpe.detach())})
    # Gradients of the dtype of the tables; atomics, so the bits may differ from run to run.
    out = F.embedding(ids, wte) + wpe
    yield ("embedding_backward", shape,
           4 * N + 2 * (N * m.C + (m.V + m.T) * m.C),
           {"library": backward_of(out, (wte, wpe)),
            "compiled": backward_of(compiled(wte, wpe), (wte, wpe))})


def bias_gradient(m):
    N = m.B * m.T
    for columns in (m.C, 3 * m.C, 4 * m.C):
        dout = random(N, columns)

        def column_sum(dout):
            return dout.sum(0, dtype=torch.float32)

        compiled = torch.compile(column_sum)
        yield ("bias_gradient", f"{N}x{columns}", 2 * N * columns + 4 * columns,
               {"library": lambda: column_sum(dout), "compiled": lambda: compiled(dout)})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try this program")
    parser.add_argument("--milliseconds", type=int, default=100, help="of measuring one call")
    arguments = parser.parse_args()
    # A backward pass that is timed again and again must not overwrite what it reads.
    torch._functorch.config.donated_buffer = False
    sizes = Tiny if arguments.tiny else Sizes
    for op in (layernorm, residual_layernorm, cross_entropy, adamw, embedding, bias_gradient):
        for name, shape, num_bytes, calls in op(sizes):
            samples = {how: samples_ms(call, arguments.milliseconds)
                       for how, call in calls.items()}
            times = {how: statistics.median(taken) for how, taken in samples.items()}
            how = min(times, key=times.get)
            dtype = "f32" if name == "adamw" else "bf16"
            print(json.dumps({"op": name, "shape": shape, "dtype": dtype, "how": how,
                              "ms": times[how], "gb_per_s": num_bytes / times[how] / 1e6,
                              "all_ms": times, "samples_ms": {
                                  how: rounded(taken) for how, taken in samples.items()}}),
                  flush=True)


if __name__ == "__main__":
    main()
