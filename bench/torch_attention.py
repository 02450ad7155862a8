"""What PyTorch's attention reaches on this GPU: cuDNN's and FlashAttention-2's kernels.

One JSON object a line: backend, shape, forward and backward milliseconds (median, and every
sample) and TFLOP/s, counting causal operations once: 2 B H T^2 D forward, 2.5 times that backward.
Compare with `bench_kernels --filter attention` on the same machine in the same minutes.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_timing import rounded, samples_ms

# B, query heads, key/value heads, T, head size
SHAPES = [
    (64, 12, 12, 1024, 64),
    (16, 25, 25, 1024, 64),
    (8, 32, 8, 2048, 64),
    (32, 14, 2, 1024, 64),
    (4, 32, 32, 2048, 128),
    (2, 32, 8, 8192, 128),
]
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}


def measure(name, shape, milliseconds):
    B, H, K, T, D = shape
    q, k, v = (
        torch.randn(B, heads, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for heads in (H, K, K)
    )
    with sdpa_kernel([BACKENDS[name]]):

        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)

        out = forward()
        grad = torch.randn_like(out)
        forward_samples = samples_ms(forward, milliseconds)
        backward_samples = samples_ms(
            lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True), milliseconds
        )
    forward_ms, backward_ms = map(statistics.median, (forward_samples, backward_samples))
    flops = 2 * B * H * T * T * D
    return {
        "backend": name,
        "shape": f"B{B} {H}/{K} T{T} D{D}",
        "forward_ms": forward_ms,
        "forward_tflops": flops / forward_ms / 1e9,
        "backward_ms": backward_ms,
        "backward_tflops": 2.5 * flops / backward_ms / 1e9,
        "forward_samples_ms": rounded(forward_samples),
        "backward_samples_ms": rounded(backward_samples),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--milliseconds", type=int, default=200, help="of measuring one call")
    args = parser.parse_args()
    for shape in SHAPES:
        for name in BACKENDS:
            print(json.dumps(measure(name, shape, args.milliseconds)), flush=True)


if __name__ == "__main__":
    main()
