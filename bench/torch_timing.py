"""The time of a PyTorch call: what the torch_*.py benchmarks share."""

import statistics
import time

import torch

# Reading it takes a GPU about a millisecond: far longer than the host takes to issue a call, so that a
# slow host makes no kernel look slow. It leaves nothing of the call's data in the L2 cache, nor
# anything that would have to be written back in the call's time.
FLUSH_BYTES = 4 << 30


def samples_ms(call, milliseconds=200):
    """Times of call() after a warm-up, in the order of measuring. On a GPU the time it takes there,
    of 10 to 200 calls that take `milliseconds` together, with other data in the L2 cache before
    each."""
    if torch.cuda.is_available():
        return samples_ms_on_gpu(call, milliseconds)
    call()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def rounded(samples):
    """To the nanosecond, which is finer than any of these clocks."""
    return [round(sample, 6) for sample in samples]


def samples_ms_on_gpu(call, milliseconds):
    flush = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")

    def timed(count):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for begin, end in events:
            flush.sum()
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in events]

    estimate = statistics.median(timed(5))  # warms up, too
    return timed(min(max(10, int(milliseconds / estimate)), 200))
