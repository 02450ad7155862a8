"""The exported folder means what the engine computed. Method: an independent GPT-2 in float64 reads
the files and must find the logits of the golden model and the validation loss of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy_gpt2 import NumpyGpt2, read_safetensors
from programs import CONTEXT, EOS, ROOT, VOCAB, Workplace, some_tokens

GOLDEN = ROOT / "tests" / "golden" / "gpt2-tiny"
EXPORTS = {"float32": "F32", "bfloat16": "BF16"}


def validation_windows() -> tuple[np.ndarray, np.ndarray]:
    """Every window of the validation shard of a Workplace, inputs and targets."""
    tokens = some_tokens(400, 1)
    count = (len(tokens) - 1) // CONTEXT
    end = count * CONTEXT
    return tokens[:end].reshape(count, CONTEXT), tokens[1 : end + 1].reshape(count, CONTEXT)


def reported(place: Workplace, key: str) -> float:
    return [record[key] for record in place.records() if key in record][-1]


@pytest.fixture(scope="module", params=list(EXPORTS))
def exported(finished: Workplace, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """The folder that ./export_hf writes, in both types of numbers."""
    folder = finished.folder / f"exported-{request.param}"
    result = finished.run(
        "export_hf", "run/checkpoints/checkpoint-8", folder, f"--dtype={request.param}")
    assert result.returncode == 0, result.stderr
    return folder, request.param


def test_the_numpy_model_finds_the_golden_logits_and_loss() -> None:
    golden, _ = read_safetensors(GOLDEN / "golden.safetensors")
    model = NumpyGpt2(GOLDEN)
    assert np.abs(model.logits(golden["inputs"]) - golden["logits"]).max() < 1e-6
    expected = json.loads((GOLDEN / "golden.json").read_text())["loss"]
    assert model.loss(golden["inputs"], golden["targets"]) == pytest.approx(expected, rel=1e-9)


def test_the_checkpoint_gives_the_validation_loss_of_the_run(finished: Workplace) -> None:
    inputs, targets = validation_windows()
    model = NumpyGpt2(finished.folder / "run/checkpoints/checkpoint-8")
    assert reported(finished, "val_tokens") == targets.size
    assert model.loss(inputs, targets) == pytest.approx(reported(finished, "val_loss"), rel=1e-5)
    # The run has learned something, so this is no loss that any weights would give.
    assert reported(finished, "val_loss") < np.log(VOCAB) - 0.5


def test_an_export_gives_the_validation_loss_of_the_run(
    finished: Workplace, exported: tuple[Path, str]
) -> None:
    folder, dtype = exported
    inputs, targets = validation_windows()
    # Rounding to bfloat16 moves each weight by up to 2^-9 of itself.
    limit = {"float32": 1e-5, "bfloat16": 2e-3}[dtype]
    assert NumpyGpt2(folder).loss(inputs, targets) == pytest.approx(
        reported(finished, "val_loss"), rel=limit)


def test_an_export_has_config_tokenizer_and_each_tensor_once(
    finished: Workplace, exported: tuple[Path, str]
) -> None:
    folder, dtype = exported
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json"}
    tokenizer = finished.folder / "shards" / "tokenizer.json"
    assert (folder / "tokenizer.json").read_bytes() == tokenizer.read_bytes()

    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["model_type"] == "gpt2"
    assert (config["vocab_size"], config["n_positions"]) == (VOCAB, CONTEXT)
    assert (config["n_embd"], config["n_layer"], config["n_head"]) == (32, 2, 2)
    assert (config["eos_token_id"], config["dtype"]) == (EOS, dtype)
    assert config["tie_word_embeddings"] is True

    model = NumpyGpt2(folder)
    assert set(model.types.values()) == {EXPORTS[dtype]}
    assert model.tensors["transformer.wte.weight"].shape == (VOCAB, 32)
    blocks = [f"transformer.h.{layer}.{part}" for layer in range(2) for part in (
        "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")]
    both = [f"{name}.{kind}" for name in [*blocks, "transformer.ln_f"]
            for kind in ("weight", "bias")]
    assert set(model.tensors) == {"transformer.wte.weight", "transformer.wpe.weight", *both}


def test_bfloat16_is_float32_rounded_to_nearest_even(finished: Workplace) -> None:
    for dtype in EXPORTS:
        finished.run("export_hf", "run/checkpoints/checkpoint-8", dtype, f"--dtype={dtype}")
    full, _ = read_safetensors(finished.folder / "float32" / "model.safetensors")
    half, _ = read_safetensors(finished.folder / "bfloat16" / "model.safetensors")
    for name, values in full.items():
        bits = values.astype("<f4").view("<u4").astype(np.uint64)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype("<u4").view("<f4")
        assert np.array_equal(half[name], rounded), name


def test_a_run_goes_on_from_an_export(finished: Workplace, exported: tuple[Path, str]) -> None:
    folder, dtype = exported
    result = finished.train(
        f"--model.hf={folder}", "--model.init=hf", "--train.steps=1", "--optimizer.lr=1e-9",
        "--schedule.final_lr_ratio=1", f"--log.dir=again-{dtype}")
    assert result.returncode == 0, result.stderr
    inputs, targets = validation_windows()
    again = [record["val_loss"] for record in finished.records(f"again-{dtype}")
             if "val_loss" in record]
    assert again == [pytest.approx(NumpyGpt2(folder).loss(inputs, targets), rel=1e-5)]
