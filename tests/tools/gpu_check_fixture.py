"""A folder as tools/gpu_pack.sh makes it, with programs that pretend to be the engine's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("fake_gpu_program.py")
ENGINE = ("tests_core", "tests_kernels", "tests_model", "tests_train", "train_gpt",
          "bench_kernels", "golden_check", "export_hf")
PARTS = ("tests", "tests_ptx80", "sanitize", "faults", "kernels", "e2e", "e2e_1558m", "export")

# What the programs under bench/ print, without a GPU or PyTorch.
TORCH = {
    "bench/random_shard.py": "",
    "bench/torch_attention.py": "".join(
        json.dumps({"backend": backend, "shape": shape, "forward_tflops": 220.0,
                    "backward_tflops": 210.0, "forward_samples_ms": [1.0, 1.1],
                    "backward_samples_ms": [2.0]}) + "\n"
        for backend in ("flash2", "cudnn")
        for shape in ("B64 12/12 T1024 D64", "B16 25/25 T1024 D64", "B8 32/8 T2048 D64",
                      "B32 14/2 T1024 D64", "B4 32/32 T2048 D128", "B2 32/8 T8192 D128")),
    "bench/torch_kernels.py": json.dumps({
        "op": "layernorm_forward", "shape": "65536x768", "dtype": "bf16", "how": "compiled",
        "gb_per_s": 3000.0, "ms": 0.07, "samples_ms": {
            "library": [0.09], "compiled": [0.0712345, 0.07, 0.069]}}) + "\n",
    "bench/torch_gpt2.py": json.dumps({
        "tokens_per_s": 519000.0, "step_ms": [1010.0], "memory": {
            "max_allocated_bytes": 31e9, "reserved_bytes": 40e9, "used_bytes": 41e9}}) + "\n",
    "bench/torch_golden.py": "".join(
        json.dumps({"what": what, "error": 8e-3}) + "\n"
        for what in ("logits", "loss", "grad transformer.wte.weight", "gradient norm of step 1",
                     "loss after step 1")),
    "tools/gpu_check/transformers_golden.py": json.dumps({"loss": 3.501, "windows": 8}) + "\n",
}


class Pack:
    """The folder, and tools/gpu_check.sh run in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "pack"
        self.path = folder / "path"
        self.path.mkdir(parents=True)
        shutil.copytree(ROOT / "tools/gpu_check", self.root / "tools/gpu_check",
                        ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "tools/gpu_check.sh", self.root / "tools/gpu_check.sh")
        for name in TORCH:
            self.print_from(name, TORCH[name])
        for name in ENGINE:
            self.install(self.root / "bin" / name)
        for limit in (166912, 101376):
            self.put(f"bin-ptx80-{limit}/libingot.so", "")
        self.put("bin/libingot.so", "")
        self.put("cuda_faults.tar.xz", "")
        self.put("configs/python_stdlib_cuda.json", "{}")
        self.faults_noticed(True, True)
        for name in ("nvidia-smi", "compute-sanitizer"):
            self.install(self.path / name)
        self.put("PACK.json", json.dumps({
            "commit": "0123456789abcdef", "changed_files": [],
            "sources": {part: f"hash of {part}" for part in PARTS}}))
        self.put("datasets/python-stdlib/shards/dataset.json", json.dumps(
            {"ngram_losses": {"unigram": 6.6, "bigram": 4.4, "trigram": 3.9}}))

    def put(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def install(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROGRAM, path)
        path.chmod(0o755)

    def print_from(self, name: str, text: str) -> None:
        """A program under bench/ that prints the text and does nothing else."""
        self.put(name, f"print({text!r}, end='')\n")

    def faults_noticed(self, *noticed: bool) -> None:
        """tests/faults/run_faults.py ends with these verdicts."""
        faults = [{"id": f"fault-{i}", "noticed": n, "by": "a test" if n else "NOT NOTICED"}
                  for i, n in enumerate(noticed)]
        self.put("tests/faults/run_faults.py", "import pathlib, sys\n"
                 "path = pathlib.Path(sys.argv[sys.argv.index('--json') + 1])\n"
                 f"path.write_text({json.dumps({'faults': faults})!r})\n")

    def environment(self, behaviour: dict[str, Any]) -> dict[str, str]:
        return {
            **os.environ, "PATH": f"{self.path}:{os.environ['PATH']}", "PYTHON": sys.executable,
            "FAKE_GPU": json.dumps({name.replace("__", "-"): b for name, b in behaviour.items()})}

    def run(self, *arguments: str, **behaviour: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "tools/gpu_check.sh"), *arguments], capture_output=True, text=True,
            timeout=120, env=self.environment(behaviour))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self.root / "tools/gpu_check.sh"), *arguments], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=self.environment({}))

    def results(self) -> dict[str, Any]:
        return json.loads((self.root / "bench/results/h200.json").read_text())

    def entry(self, part: str) -> dict[str, Any]:
        return self.results()["parts"][part]
