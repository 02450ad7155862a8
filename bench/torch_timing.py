"""The time of a PyTorch call: what the torch_*.py benchmarks share."""

import statistics
import time

import torch

# Reading it takes a GPU about a millisecond. It leaves nothing of a call's data in the L2 cache, nor
# anything that would have to be written back in the call's time.
FLUSH_BYTES = 4 << 30
CALLS_IN_TURNS = 20
MOST_READS = 64  # of the FLUSH_BYTES, while the host issues calls


def samples_ms(call, milliseconds=200):
    """Times of call() after a warm-up, in the order of measuring. On a GPU the time it takes there,
    of 10 to 200 calls that take `milliseconds` together, with other data in the L2 cache before
    each, which also gives the host time to issue it."""
    if torch.cuda.is_available():
        return samples_ms_on_gpu(call, milliseconds)
    return samples_ms_on_cpu([call])


def samples_in_turns_ms(calls, milliseconds=200):
    """Times of one of `calls`, which do the same with different data and take turns, one right after
    the other as bench_kernels has them: (samples, True). On a GPU each sample is the mean of
    CALLS_IN_TURNS calls, all issued while it is still busy with something else. Calls that wait for
    the GPU cannot be, and are measured alone: (samples_ms(), False)."""
    if not torch.cuda.is_available():
        return samples_ms_on_cpu(calls), True
    samples = samples_in_turns_ms_on_gpu(calls, milliseconds)
    return (samples, True) if samples else (samples_ms_on_gpu(calls[0], milliseconds), False)


def rounded(samples):
    """To the nanosecond, which is finer than any of these clocks."""
    return [round(sample, 6) for sample in samples]


def samples_ms_on_cpu(calls):
    for call in calls:
        call()
    times = []
    for i in range(5):
        begin = time.perf_counter()
        calls[i % len(calls)]()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def buffer_to_read():
    return torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")


def event_pairs(count):
    return [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]


def samples_ms_on_gpu(call, milliseconds):
    flush = buffer_to_read()

    def timed(count):
        pairs = event_pairs(count)
        for begin, end in pairs:
            flush.sum()
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in pairs]

    estimate = statistics.median(timed(5))  # warms up, too
    return timed(min(max(10, int(milliseconds / estimate)), 200))


def samples_in_turns_ms_on_gpu(calls, milliseconds):
    """None when MOST_READS do not last until all calls of a sample are issued."""
    flush = buffer_to_read()
    results = [None] * len(calls)  # kept for a turn, so that the next call writes elsewhere

    def sample(reads):
        """Milliseconds of a call; None when the GPU had come to the first before the last was issued."""
        [(begin, end)] = event_pairs(1)
        for _ in range(reads):
            flush.sum()
        begin.record()
        for i in range(CALLS_IN_TURNS):
            results[i % len(calls)] = calls[i % len(calls)]()
        end.record()
        is_late = begin.query()
        torch.cuda.synchronize()
        return None if is_late else begin.elapsed_time(end) / CALLS_IN_TURNS

    for _ in range(2):  # warm-up
        sample(reads=1)
    reads = 4
    while (estimate := sample(reads)) is None:
        reads *= 2
        if reads > MOST_READS:
            return None
    wanted = min(max(5, int(milliseconds / (estimate * CALLS_IN_TURNS))), 50)
    # Twice as long as was enough; a sample that the host was late for all the same does not count.
    samples = [sample(2 * reads) for _ in range(wanted)]
    return [ms for ms in samples if ms is not None] or None
