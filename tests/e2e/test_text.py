"""From text files to an exported model, with every program on the way started as a user does, and
the exit status of the small programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from numpy_gpt2 import NumpyGpt2
from programs import CASES, ROOT, Workplace
from tokenizers import Tokenizer

SPECIALS = CASES / "B14_tok_vocab_size" / "specials.json"
GOLDEN = ROOT / "tests" / "golden" / "gpt2-tiny"


@pytest.fixture
def prepared(workplace: Workplace) -> Workplace:
    """Shards of the B14 tokenizer, whose added tokens reach id 282 behind a model of 280 entries."""
    shutil.rmtree(workplace.folder / "shards")
    source = workplace.folder / "text.jsonl"
    with source.open("w", encoding="utf-8") as file:
        for number in range(120):
            file.write(json.dumps({"text": f"line {number} of a text<|im_end|>"}) + "\n")
    result = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "prepare_data.py"), "--jobs", "1", "--no-ngrams",
         "--parse-special", "--val-fraction", "0.1", "--test-fraction", "0.1", "--input",
         str(source), "--tokenizer", str(SPECIALS), "--out", str(workplace.folder / "shards")],
        capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return workplace


SCRATCH = ["--model.hf=", "--model.init=auto", "--model.preset=gpt2-tiny", "--train.seq_len=32",
           "--train.steps=2"]


def test_text_becomes_a_model_whose_tokenizer_travels(prepared: Workplace) -> None:
    result = prepared.train(*SCRATCH)
    assert result.returncode == 0, result.stderr
    assert "model.vocab_size = auto: 283, from the shards" in result.stdout
    result = prepared.run("export_hf", "run/checkpoints/checkpoint-2", "out", "--dtype=bfloat16")
    assert result.returncode == 0 and "exported" in result.stdout, result.stderr
    out = prepared.folder / "out"
    assert Tokenizer.from_file(str(out / "tokenizer.json")).encode("<|im_end|>").ids == [282]
    dataset = json.loads((prepared.folder / "shards" / "dataset.json").read_text())
    config = json.loads((out / "config.json").read_text())
    assert dataset["eos_id"] != 282 and config["eos_token_id"] == dataset["eos_id"]
    assert NumpyGpt2(out).tensors["transformer.wte.weight"].shape == (283, 128)


def test_a_vocabulary_without_the_added_tokens_is_refused(prepared: Workplace) -> None:
    """B14."""
    result = prepared.train(*SCRATCH, "--model.vocab_size=280")
    assert result.returncode == 1 and "282" in result.stderr and "280" in result.stderr
    assert not (prepared.folder / "run").exists()


def test_golden_check_passes_the_golden_folder(workplace: Workplace) -> None:
    result = workplace.run("golden_check", GOLDEN)
    assert result.returncode == 0, result.stdout
    assert "FAIL" not in result.stdout and result.stdout.rstrip().endswith("passed")


def test_golden_check_fails_other_weights(workplace: Workplace) -> None:
    """One bias moved by 0.01."""
    folder = workplace.folder / "golden"
    shutil.copytree(GOLDEN, folder)
    path = folder / "model.safetensors"
    raw = bytearray(path.read_bytes())
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    begin = header["transformer.ln_f.bias"]["data_offsets"][0]
    at = 8 + int.from_bytes(raw[:8], "little") + begin
    raw[at : at + 4] = bytes.fromhex("0ad7233c")  # 0.01 as float32
    path.write_bytes(raw)
    result = workplace.run("golden_check", folder)
    assert result.returncode == 1
    assert "FAIL logits" in result.stdout and result.stdout.rstrip().endswith("FAILED")


@pytest.mark.parametrize(("arguments", "parts"), [
    (["export_hf", "nowhere", "out"], ["nowhere/config.json", "cannot be opened"]),
    (["export_hf", str(GOLDEN), str(GOLDEN)], ["into itself"]),
    (["export_hf", str(GOLDEN)], ["OUT_DIR is required"]),
    (["export_hf", str(GOLDEN), "out", "--dtype=float16"], ["float16", "bfloat16"]),
    (["golden_check", "nowhere"], ["nowhere/"]),
    (["golden_check", str(GOLDEN), "--device=tpu"], ["tpu", "cpu"]),
])
def test_small_programs_refuse_with_status_1(
    workplace: Workplace, arguments: list[str], parts: list[str]
) -> None:
    before = sorted(workplace.folder.iterdir())
    result = workplace.run(*arguments)
    assert result.returncode == 1 and "internal" not in result.stderr, result.stderr
    for part in parts:
        assert part in result.stderr, (part, result.stderr)
    assert sorted(workplace.folder.iterdir()) == before
