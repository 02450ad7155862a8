"""What cannot work ends with one readable line and exit status 1, and nothing is trained. Method:
the command lines and files that users get wrong, and for each the words that help them."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest
from programs import CASES, ROOT, Workplace, some_tokens, write_shard

ONE_WINDOW = ["--data.val=", "--data.test=", "--train.seq_len=8", "--train.micro_batch=1",
              "--train.global_batch=1", "--train.steps=1"]


def refuse(place: Workplace, *arguments: str | Path, log_dir: str = "run", **keywords) -> str:
    """A run that must be refused; returns its one line."""
    result = place.train(*arguments, f"--log.dir={log_dir}", **keywords)
    assert result.returncode == 1, (result.returncode, result.stdout, result.stderr)
    assert result.stderr.startswith("[rank 0 ") and result.stderr.count("\n") == 1, result.stderr
    assert socket.gethostname() in result.stderr.split("]")[0]
    assert "step 1/" not in result.stdout
    return result.stderr


def refuse_untouched(place: Workplace, *arguments: str | Path, **keywords) -> str:
    """Refused before a folder was made, so that the corrected command can use the same one."""
    line = refuse(place, *arguments, **keywords)
    assert not (place.folder / "run").exists()
    return line


def refuse_with(place: Workplace, parts: list[str], *arguments: str | Path, **keywords) -> None:
    line = refuse_untouched(place, *arguments, **keywords)
    for part in parts:
        assert part in line, (part, line)


@pytest.mark.parametrize(("name", "parts"), [
    ("count_negative", ["-1"]),
    ("count_says_less", ["1104 bytes", "20 tokens", "1064 bytes"]),
    ("count_says_more", ["1104 bytes", "4000000 tokens", "8001024 bytes"]),
    ("header_cut", ["1000 bytes", "1024"]),
    ("odd_byte_at_end", ["1105 bytes", "1104 bytes"]),
    ("wrong_magic", ["20240521", "20240520"]),
    ("wrong_version", ["version 2", "version 1"]),
    ("zero_bytes", ["0 bytes", "4096"]),
])
def test_a_damaged_shard(workplace: Workplace, name: str, parts: list[str]) -> None:
    """B28."""
    shard = CASES / "B28_shard_bad" / f"{name}.bin"
    refuse_with(workplace, [str(shard), *parts], *ONE_WINDOW, f"--data.train={shard}")


@pytest.mark.parametrize(("name", "vocab_size", "parts"), [
    ("uint16_out_of_vocab_50257", 50257, ["token 1 ", "50257", "50256"]),
    ("uint16_token_65535", 65535, ["65535", "65534"]),
    ("uint32_tokens", 65536, ["token 0 ", "70000", "65535"]),
])
def test_an_id_beyond_the_vocabulary(
    workplace: Workplace, name: str, vocab_size: int, parts: list[str]
) -> None:
    """B23: with file, position, id and vocabulary."""
    shard = CASES / "B23_shard_u16" / f"{name}.bin"
    refuse_with(workplace, [str(shard), *parts], *ONE_WINDOW, "--model.hf=", "--model.init=auto",
                "--model.preset=gpt2-tiny", f"--model.vocab_size={vocab_size}",
                f"--data.train={shard}")


def test_ids_of_added_tokens_beyond_the_model(workplace: Workplace) -> None:
    """B14: the vocabulary is the highest id + 1, not the entries of model.vocab."""
    tokens = some_tokens(400, 1)
    tokens[100] = 282
    write_shard(workplace.shard("train"), tokens, vocab_size=283)
    refuse_with(workplace, ["282", "280", "train_000.bin"], "--data.val=", "--data.test=",
                "--model.hf=", "--model.init=auto", "--model.preset=gpt2-tiny",
                "--model.vocab_size=280")


@pytest.mark.parametrize("count", [0, 8])
def test_data_shorter_than_a_window(workplace: Workplace, count: int) -> None:
    """B25."""
    shard = CASES / "B25_shard_short" / f"tokens_{count}.bin"
    refuse_with(workplace, [str(shard), f"({count} tokens)", "(9 tokens)"],
                *ONE_WINDOW, f"--data.train={shard}")


def test_data_shorter_than_a_global_batch(workplace: Workplace) -> None:
    """B25: 17 tokens are 2 windows of 8, a step of 3 needs 25."""
    shard = CASES / "B25_shard_short" / "tokens_17.bin"
    refuse_with(workplace, ["gives 2 sequences", "needs 3 (25 tokens)"], *ONE_WINDOW,
                "--train.global_batch=3", f"--data.train={shard}")


def test_one_window_is_enough(workplace: Workplace) -> None:
    """B25: 9 tokens are exactly one window of 8."""
    shard = CASES / "B25_shard_short" / "tokens_9.bin"
    result = workplace.train(*ONE_WINDOW, f"--data.train={shard}")
    assert result.returncode == 0, result.stderr
    assert [step["tokens"] for step in workplace.steps()] == [8]


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_shard_for_training_and_for_judging_it(workplace: Workplace, split: str) -> None:
    refuse_with(workplace, [f"data.{split}", "train_000.bin", "data.train"],
                f"--data.{split}=shards/train_*.bin")
    copy = workplace.folder / "shards" / f"{split}_001.bin"
    copy.hardlink_to(workplace.shard("train"))
    refuse_with(workplace, [copy.name, "train_000.bin"], f"--data.{split}=shards/{split}_*.bin")


def test_shards_of_two_tokenizers(workplace: Workplace) -> None:
    write_shard(workplace.folder / "shards" / "train_001.bin", some_tokens(100, 4), b"another")
    refuse_with(workplace, ["train_000.bin", "train_001.bin", "tokenizer"])


def test_validation_data_of_another_tokenizer(workplace: Workplace) -> None:
    write_shard(workplace.shard("val"), some_tokens(400, 4), b"another")
    refuse_with(workplace, ["val_000.bin", "tokenizer"])


def test_a_sequence_beyond_pretrained_positions(workplace: Workplace) -> None:
    golden = CASES.parent / "golden" / "gpt2-tiny"
    shard = CASES / "B25_shard_short" / "tokens_33.bin"
    refuse_with(workplace, ["train.seq_len = 65", "64 positions", str(golden)], *ONE_WINDOW,
                f"--data.train={shard}", f"--model.hf={golden}", "--model.init=hf",
                "--train.seq_len=65")


@pytest.mark.parametrize(("argument", "parts"), [
    ("--train.sed=3", ["train.sed", "train.seed"]),
    ("--train.steps", ["--train.steps has no value"]),
    ("--per_device_train_batch_size=4", ["Hugging Face Trainer", "train.micro_batch"]),
    ("--gradient_accumulation_steps=4", ["Hugging Face Trainer", "train.global_batch"]),
    ("--sample.temperature=-0.5", ["sample.temperature = -0.5", "0 <= value"]),
    ("--train.global_batch=6", ["train.global_batch", "6", "train.micro_batch", "4"]),
    ("--model.attention=flash", ["model.attention = flash", "auto, own, general or cudnn"]),
    ("--train.deterministic=maybe", ["train.deterministic", "maybe"]),
    ("--parallel.zero_stage=2", ["parallel.zero_stage", "2"]),
    ("--data.train=nothing_*.bin", ["data.train", "nothing_*.bin"]),
    ("--model.hf=nowhere", ["nowhere/config.json"]),
    ("other.json", ["other.json"]),
])
def test_a_setting_that_means_nothing(
    workplace: Workplace, argument: str, parts: list[str]
) -> None:
    refuse_with(workplace, parts, argument)


@pytest.mark.parametrize(("text", "parts"), [
    ('{"train": {"steps": 1, "steps": 2}}', ['"steps"', "line 1"]),
    ('{"train": {"steps": "4"}}', ["train.steps"]),
    ('{"train": {"steps": NaN}}', ["run.json"]),
    ('{"train": {"learning_rate": 1}}', ["learning_rate", "optimizer.lr"]),
    ('{"train": ', ["run.json"]),
])
def test_a_file_that_means_nothing(workplace: Workplace, text: str, parts: list[str]) -> None:
    (workplace.folder / "run.json").write_text(text)
    refuse_with(workplace, parts)


def test_without_run_json_it_says_how_to_make_one(workplace: Workplace) -> None:
    (workplace.folder / "run.json").unlink()
    refuse_with(workplace, ["run.json", "make run"])


def test_a_launcher_of_many_ranks(workplace: Workplace) -> None:
    refuse_with(workplace, ["Open MPI", "32 ranks", "OMPI_COMM_WORLD_SIZE"],
                environment={"OMPI_COMM_WORLD_SIZE": "32"})


def test_cuda_without_cuda(workplace: Workplace) -> None:
    if "CUDA yes" in workplace.train("--version").stdout:
        pytest.skip("this build holds CUDA code")
    refuse_with(workplace, ["train.device = cuda", "no CUDA code", "--train.device=cpu"],
                "--train.device=cuda")


def test_a_driver_too_old_for_cuda(workplace: Workplace, tmp_path_factory) -> None:
    """The CUDA runtime asks a driver library made for the test, which supports CUDA 12.4 only."""
    if "CUDA no" in workplace.train("--version").stdout:
        pytest.skip("this build holds no CUDA code")
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", folder / "libcuda.so.1",
                    ROOT / "tests/setup/fake_libcuda.cpp"], check=True)
    refuse_with(workplace, ["the NVIDIA driver supports CUDA 12.4", "runs on CUDA 1", "update the"],
                "--train.device=cuda",
                environment={"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_DRIVER": "12040"})


@pytest.mark.parametrize("method", ["own", "cudnn"])
def test_an_attention_that_the_cpu_does_not_have(workplace: Workplace, method: str) -> None:
    refuse_with(workplace, [f"model.attention = {method}", "needs CUDA", "on cpu in f32",
                            "model.attention=auto"],
                f"--model.attention={method}", "--train.device=cpu")
    assert not (workplace.folder / "run").exists()


def test_a_plan_that_does_not_fit(workplace: Workplace) -> None:
    """The remedies take lines of their own; the first says need and limit in bytes."""
    result = workplace.train(
        "--plan", "--plan.gpu=a100-80", "--model.hf=", "--model.init=auto",
        "--model.preset=gpt2-1558m", "--train.micro_batch=64", "--train.global_batch=64")
    assert result.returncode == 1
    first = result.stderr.splitlines()[0]
    assert "a100-80 has 80.00 GiB (85899345920 bytes)" in first and "needs" in first
    order = [result.stderr.index(f"  {remedy}") for remedy in (
        "train.micro_batch = 32", "train.seq_len", "model.recompute = light",
        "model.recompute = block", "train.micro_batch = 1 with", "ZeRO-1")]
    assert order == sorted(order)
    assert not (workplace.folder / "run").exists()


def test_a_plan_that_fits_trains_nothing(workplace: Workplace) -> None:
    result = workplace.train("--plan")
    assert result.returncode == 0, result.stderr
    assert "total" in result.stdout and not (workplace.folder / "run").exists()


def test_a_folder_in_use(workplace: Workplace) -> None:
    first = workplace.start("--train.steps=100000")
    try:
        workplace.wait_for_steps(1, first)
        for key in ("log.dir", "checkpoint.dir"):
            other = ["--checkpoint.dir=run/checkpoints"] if key == "checkpoint.dir" else []
            log_dir = "run" if key == "log.dir" else "other"
            line = refuse(workplace, *other, log_dir=log_dir)
            for part in (key, f"process {first.pid} ", f"host {socket.gethostname()}"):
                assert part in line, (part, line)
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize("resume", ["none", "auto"])
def test_a_folder_with_a_run(workplace: Workplace, resume: str) -> None:
    assert workplace.train("--train.steps=1").returncode == 0
    before = {path: path.read_bytes() for path in (workplace.folder / "run").iterdir()
              if path.suffix in (".json", ".jsonl", ".log")}
    line = refuse(workplace, f"--checkpoint.resume={resume}")
    assert "log.dir = run holds another run" in line and f"checkpoint.resume = {resume}" in line
    assert {path: path.read_bytes() for path in before} == before
    assert json.loads((workplace.folder / "run" / "config.json").read_text())


def test_weights_of_another_run(workplace: Workplace) -> None:
    """A saved configuration names the folder of its weights; another log.dir does not move it."""
    assert workplace.train("--train.steps=1", "--log.dir=first").returncode == 0
    weights = workplace.folder / "first" / "checkpoints" / "checkpoint-1" / "model.safetensors"
    before = weights.read_bytes()
    refuse_with(workplace, ["checkpoint.dir = first/checkpoints", "checkpoint-1"],
                "first/config.json", "--train.seed=1")
    assert weights.read_bytes() == before
