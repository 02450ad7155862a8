"""Disks that fill up. Method: a small file system where the machine lets us mount one, and a limit
on the size of files; the message names the file, and no half file has a final name."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import Workplace

SMALL_DISK_KIB = 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_KIB}k", "tmpfs", str(folder)],
        capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def refused(result: subprocess.CompletedProcess[str], file: str) -> None:
    assert result.returncode == 1, (result.returncode, result.stderr)
    assert result.stderr.count("\n") == 1, result.stderr
    for part in (f"cannot write {file}", "bytes were still to be written", "are free there"):
        assert part in result.stderr, result.stderr


def test_a_full_disk_under_the_records(workplace: Workplace, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(40 << 10))
    result = workplace.train("--train.steps=100000", f"--log.dir={small_disk}/run",
                             "--checkpoint.dir=checkpoints")
    assert result.returncode == 1
    assert f"cannot write {small_disk}/run/" in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1 and "No space left on device" in result.stderr
    assert workplace.steps(f"{small_disk}/run")


def test_a_full_disk_under_the_checkpoint(workplace: Workplace, small_disk: Path) -> None:
    """The weights are 141 KB."""
    result = workplace.train(f"--checkpoint.dir={small_disk}/checkpoints")
    weights = small_disk / "checkpoints" / "checkpoint-4" / "model.safetensors"
    refused(result, str(weights))
    assert list(weights.parent.iterdir()) == []
    assert len(workplace.steps()) == 4


def test_a_limit_on_the_size_of_files(workplace: Workplace) -> None:
    limit = 100 << 10
    result = workplace.train(
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    weights = "run/checkpoints/checkpoint-4/model.safetensors"
    refused(result, weights)
    assert list((workplace.folder / weights).parent.iterdir()) == []


def test_an_export_to_a_full_disk(workplace: Workplace, small_disk: Path) -> None:
    assert workplace.train().returncode == 0
    result = workplace.run("export_hf", "run/checkpoints/checkpoint-4", small_disk / "out")
    refused(result, f"{small_disk}/out/model.safetensors")
    assert list((small_disk / "out").iterdir()) == []
