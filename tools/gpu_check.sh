#!/usr/bin/env bash
# usage: tools/gpu_check.sh [tests|tests_ptx80|sanitize|faults|kernels|e2e|e2e_1558m|export]...
#
# On a machine with a GPU: proves what the project claims of it, and records it in
# bench/results/<gpu>.json. Exits non-zero when a test fails or is skipped, or a figure misses its
# bar. Needs python3 with PyTorch and transformers; --help lists the settings.
set -euo pipefail

tools="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PYTHONPATH="$tools${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-python3}" -m gpu_check "$@"
