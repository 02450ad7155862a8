#!/usr/bin/env python3
"""Turns text files into token shards for training (see docs/data.md).

    python tools/prepare_data.py --input FILES... --tokenizer tokenizer.json|bytes --out DIR
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    sys.exit(f"prepare_data: Python {sys.version.split()[0]} is too old, 3.11 or newer is needed")

try:
    from ingot_data.cli import main
except ModuleNotFoundError as error:
    sys.exit(
        f"prepare_data: the Python package {error.name} is not installed; run: "
        ".venv/bin/pip install -r tools/requirements.txt"
    )

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
