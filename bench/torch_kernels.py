#!/usr/bin/env python3
"""What PyTorch reaches on the memory-bound ops of GPT-2 124M, on this GPU.

One JSON object a line, named as bench_kernels names its cases: op, shape, dtype, ms (median), every
sample, and GB/s counting every tensor once. `how` says which way was the faster one: the library's
kernel as it is called, or compiled by torch.compile. Calls follow one another with inputs that take
turns, as in bench_kernels (`in_turns`), but for those that wait for the GPU, each of which is timed alone.
"""

import argparse
import functools
import json
import statistics

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch_timing import rounded, samples_in_turns_ms


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


def compiled(function):
    return torch.compile(function, dynamic=False)


def sets(make):
    """What the calls of an op take turns with, as they do in bench_kernels: more than an L2 cache."""
    return [make() for _ in range(2)]


def calls_of(way, inputs):
    return [functools.partial(way, *one) for one in inputs]


def backward_call(way, one):
    """A call that computes the gradients of way(*one), again and again."""
    out = way(*one)
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, one, grad, retain_graph=True)


# Each op: (name, shape, bytes, {how: calls that take turns}). Bytes are what bench_kernels counts.


def layernorm(m):
    N, C = m.B * m.T, m.C
    inputs = sets(lambda: (random(N, C, grad=True), random(C, grad=True), random(C, grad=True)))

    def norm(x, weight, bias):
        return F.layer_norm(x, (C,), weight, bias)

    ways = {"library": norm, "compiled": compiled(norm)}
    # The parameters want gradients, so mean and rstd are stored.
    forward_inputs = [(x.detach(), weight, bias) for x, weight, bias in inputs]
    yield ("layernorm_forward", f"{N}x{C}", 2 * (2 * N * C + 2 * C) + 8 * N,
           {how: calls_of(way, forward_inputs) for how, way in ways.items()})
    # As bench_kernels' case without a residual.
    yield ("layernorm_backward", f"{N}x{C}", 2 * (3 * N * C + C) + 8 * N + 4 * C,
           {how: [backward_call(way, one) for one in inputs] for how, way in ways.items()})


def residual_layernorm(m):
    N, C = m.B * m.T, m.C

    def step(x, y, weight, bias):
        total = x + y
        return total, F.layer_norm(total, (C,), weight, bias)

    inputs = sets(lambda: (random(N, C), random(N, C), random(C, grad=True), random(C, grad=True)))
    yield ("residual_layernorm_forward", f"{N}x{C}", 2 * (4 * N * C + 2 * C) + 8 * N,
           {"library": calls_of(step, inputs), "compiled": calls_of(compiled(step), inputs)})


def cross_entropy(m):
    inputs = sets(lambda: (random(m.CHUNK, m.V, grad=True), random_ids(m.V, m.CHUNK)))

    def loss_of(logits, targets):
        return F.cross_entropy(logits, targets, reduction="sum")

    def fp32_loss_of(logits, targets):
        return F.cross_entropy(logits.float(), targets, reduction="sum")

    def both(loss_of):
        return lambda logits, targets: torch.autograd.grad(loss_of(logits, targets), logits)

    # Named as bench_kernels names it; PyTorch is given no padded columns.
    yield ("cross_entropy", f"{m.CHUNK}x{m.PADDED}", 2 * 2 * m.CHUNK * m.V + 8 * m.CHUNK,
           {"library": calls_of(both(loss_of), inputs),
            "compiled": calls_of(both(compiled(fp32_loss_of)), inputs)})


def adamw(m):
    def step_of_one():
        parameter = random(m.PARAMETERS, dtype=torch.float32).requires_grad_()
        parameter.grad = torch.randn_like(parameter)
        optimizer = torch.optim.AdamW([parameter], lr=1e-4, weight_decay=0.1, fused=True)
        optimizer.step()
        return optimizer.step

    yield ("adamw", str(m.PARAMETERS), 4 * 7 * m.PARAMETERS, {"library": sets(step_of_one)})


def embedding(m):
    N = m.B * m.T
    ids = sets(lambda: random_ids(m.V, m.B, m.T))
    tables = sets(lambda: (random(m.V, m.C, grad=True), random(m.T, m.C, grad=True)))

    def look_up(wte, wpe, ids):
        return wte[ids] + wpe

    def look_up_by_op(wte, wpe, ids):
        return F.embedding(ids, wte) + wpe

    shape = f"{m.B}x{m.T}x{m.C}"
    # Of wte; a row that occurs again could stay in the cache.
    rows = sum(one.unique().numel() for one in ids) / len(ids)
    forward_inputs = [(wte.detach(), wpe.detach(), i) for (wte, wpe), i in zip(tables, ids)]
    fast_look_up = compiled(look_up)
    yield ("embedding_forward", shape, 4 * N + 2 * (N + rows + m.T) * m.C,
           {"library": calls_of(look_up, forward_inputs),
            "compiled": calls_of(fast_look_up, forward_inputs)})

    def backward(way):
        return [backward_call(functools.partial(way, ids=i), one) for one, i in zip(tables, ids)]

    # Gradients of the dtype of the tables; atomics, so the bits may differ from run to run.
    yield ("embedding_backward", shape, 4 * N + 2 * (N * m.C + (m.V + m.T) * m.C),
           {"library": backward(look_up_by_op), "compiled": backward(fast_look_up)})


def bias_gradient(m):
    N = m.B * m.T

    def column_sum(dout):
        return dout.sum(0, dtype=torch.float32)

    for columns in (m.C, 3 * m.C, 4 * m.C):
        inputs = sets(lambda: (random(N, columns),))
        yield ("bias_gradient", f"{N}x{columns}", 2 * N * columns + 4 * columns,
               {"library": calls_of(column_sum, inputs),
                "compiled": calls_of(compiled(column_sum), inputs)})


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
            measured = {how: samples_in_turns_ms(takes_turns, arguments.milliseconds)
                        for how, takes_turns in calls.items()}
            samples = {how: taken for how, (taken, _) in measured.items()}
            times = {how: statistics.median(taken) for how, taken in samples.items()}
            how = min(times, key=times.get)
            dtype = "f32" if name == "adamw" else "bf16"
            print(json.dumps({"op": name, "shape": shape, "dtype": dtype, "how": how,
                              "ms": times[how], "gb_per_s": num_bytes / times[how] / 1e6,
                              "all_ms": times,
                              "in_turns": {how: turns for how, (_, turns) in measured.items()},
                              "samples_ms": {
                                  how: rounded(taken) for how, taken in samples.items()}}),
                  flush=True)


if __name__ == "__main__":
    main()
