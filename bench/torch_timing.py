"""The time of a PyTorch call: what the torch_*.py benchmarks share."""

import statistics
import time

import torch


def median_ms(call, milliseconds=200):
    """Median time of call(), after a warm-up, with the L2 cache overwritten between the calls."""
    if torch.cuda.is_available():
        from triton.testing import do_bench

        return do_bench(call, warmup=50, rep=milliseconds, return_mode="median")
    call()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)
