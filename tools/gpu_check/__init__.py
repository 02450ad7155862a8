"""Proves on a machine with a GPU what the project claims of it.

A part (tests, sanitize, kernels, ...) runs programs, collects figures and holds them against bars.
Its outcome, good or bad, goes into bench/results/<gpu>.json, from which docs/performance.md is
made. The standard library only; PyTorch runs in programs of its own under bench/.
"""
