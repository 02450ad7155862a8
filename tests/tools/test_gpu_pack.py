"""tools/gpu_pack.sh with a compiler that pretends: what a pack holds, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("train_gpt", "golden_check", "export_hf", "bench_kernels", "tests_core",
            "tests_kernels", "tests_model", "tests_train")

# Configuring remembers its arguments; building makes files that hold them. Stripping copies.
FAKES = {
    "nvcc": "exit 0\n",
    "cmake": """if [ "$1" = --preset ]; then
    mkdir -p "$4"
    echo "$*" >"$4/configured"
else
    for target in "${@:6}" ingot; do cp "$2/configured" "$2/$target"; done
    cp "$2/configured" "$2/libingot.so"
    cp "$2/configured" "$2/libfake_nvml.so"
fi
""",
    "strip": 'cp "$3" "$2"\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clone with the scripts of this working tree, fake tools, and the corpus there already."""
    root = tmp_path / "tree"
    root.mkdir()
    for name in ("tools", "bench", "docs/testing.md"):
        (root / name).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    parts = {"tests": {"what": "x", "seconds": 300, "files": ["tools/*.sh"]}}
    (root / "tools/gpu_check/parts.json").write_text(json.dumps(parts))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    # The set-up is there already, as far as the script can see.
    (root / "tools/setup.sh").write_text("#!/bin/bash\n")
    (root / "tools/setup/corpus.sh").write_text(
        "CORPUS=datasets/python-stdlib\nPYTHON=python3\nprepare_corpus() { true; }\n")
    shards = root / "datasets/python-stdlib/shards"
    shards.mkdir(parents=True)
    (shards / "train_000.bin").write_bytes(b"tokens")
    for name, text in FAKES.items():
        path = tmp_path / "path" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)
    return root


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{tree.parent / 'path'}:{os.environ['PATH']}"}
    return subprocess.run([str(tree / "tools/gpu_pack.sh"), *arguments], capture_output=True,
                          text=True, env=environment, cwd=tree.parent)


def test_a_pack_holds_programs_libraries_sources_data_and_its_origin(tree: Path) -> None:
    done = run(tree, "out")
    assert done.returncode == 0, done.stdout + done.stderr
    out = tree.parent / "out"
    assert {path.name for path in (out / "bin").iterdir()} == {
        *PROGRAMS, "libingot.so", "libfake_nvml.so"}
    assert "-DINGOT_CUDA_ARCHITECTURES=90a-real" in (out / "bin/train_gpt").read_text()
    for limit in ("166912", "101376"):
        library = (out / f"bin-ptx80-{limit}/libingot.so").read_text()
        assert "-DINGOT_CUDA_ARCHITECTURES=80-virtual" in library
        assert f"-DINGOT_SHARED_MEMORY_LIMIT={limit}" in library
        assert "-DINGOT_OPENBLAS=OFF" in library
    assert (out / "docs/testing.md").exists() and (out / "tools/gpu_check.sh").exists()
    assert (out / "datasets/python-stdlib/shards/train_000.bin").read_bytes() == b"tokens"
    pack = json.loads((out / "PACK.json").read_text())
    assert len(pack["commit"]) == 40 and list(pack["sources"]) == ["tests"]
    assert sorted(pack["changed_files"]) == ["tools/setup.sh", "tools/setup/corpus.sh"]
    assert "MiB of 64" in done.stdout
    # An earlier pack is replaced, with nothing left of it.
    (out / "stray").write_text("x")
    assert run(tree, "out").returncode == 0 and not (out / "stray").exists()


def test_a_folder_that_is_no_pack_is_left_alone(tree: Path) -> None:
    (tree.parent / "mine").mkdir()
    (tree.parent / "mine/thesis.tex").write_text("x")
    done = run(tree, "mine")
    assert done.returncode == 1 and "mine exists and is no earlier pack" in done.stderr
    assert (tree.parent / "mine/thesis.tex").exists()


def test_a_pack_that_is_too_large_to_carry_is_refused(tree: Path) -> None:
    with open(tree / "datasets/python-stdlib/shards/train_000.bin", "wb") as file:
        file.truncate(70 << 20)
    done = run(tree, "out")
    assert done.returncode == 1 and "MiB, must be below 64" in done.stderr


def test_a_missing_folder_name_is_named(tree: Path) -> None:
    done = run(tree)
    assert done.returncode == 1 and "needs one argument, the folder to make" in done.stderr
