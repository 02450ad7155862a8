"""Writes PACK.json into a folder that tools/gpu_pack.sh made: what was packed, from which commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gpu_check import sources


def git(*arguments: str, root: Path) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.rstrip()


def describe(root: Path) -> dict[str, object]:
    """commit, the files that differ from it, and the hash of each part's sources."""
    status = git("status", "--porcelain", "--untracked-files=no", root=root)
    return {
        "commit": git("rev-parse", "HEAD", root=root),
        "changed_files": [line[3:] for line in status.splitlines()],
        "sources": sources.hashes(root),
    }


def main(out: str) -> None:
    path = Path(out) / sources.PACK
    path.write_text(json.dumps(describe(sources.ROOT), indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
