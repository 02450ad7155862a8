"""tools/gpu_check.sh with programs that pretend: what passes, what fails, and that both are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from gpu_check_fixture import PARTS, TORCH, Pack


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return Pack(tmp_path)


def test_every_part_passes_when_the_programs_do_and_is_recorded(pack: Pack) -> None:
    done = pack.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISS" not in done.stdout and "PROBLEM" not in done.stdout
    results = pack.results()
    assert results["gpu"] == "NVIDIA H200" and list(results["parts"]) == sorted(PARTS)
    for part in PARTS:
        entry = results["parts"][part]
        assert entry["passed"] and not entry["problems"] and entry["bars"] and entry["commands"]
        assert entry["sources"] == f"hash of {part}" and entry["commit"] == "0123456789abcdef"
        assert entry["gpu"]["uuid"] == "GPU-0123" and entry["gpu"]["driver_version"] == "580.1"
        assert entry["date"].startswith("20")
    last = done.stdout.splitlines()[-2]
    assert last == ", ".join(f"{part} passed" for part in PARTS)


def test_the_raw_samples_and_the_commands_are_kept(pack: Pack) -> None:
    pack.run("e2e")
    entry = pack.entry("e2e")
    ours = entry["data"]["ours"]
    assert len(ours["samples"]["step_ms"]) == len(ours["samples"]["gpu_power_w"]) == 50 and ours["after_step"] == 10
    assert ours["tokens_per_s"]["median"] == 591000 + 35.5
    assert entry["data"]["torch"]["step_ms"] == [1010.0]
    command = next(c for c in entry["commands"] if "--train.micro_batch=64" in c)
    assert entry["data"]["cudnn"]["library"] == "cuDNN 9.19.0"
    assert entry["data"]["cudnn"]["memory"]["percent"] == -0.4169
    pack.run("kernels")
    kernels = pack.entry("kernels")["data"]
    assert kernels["bench"]["cudnn"] == "cuDNN 9.19.0"
    assert kernels["torch_attention"][0]["forward_samples_ms"] == [1.0, 1.1]
    assert kernels["torch_kernels"][0]["samples_ms"]["library"] == [0.09]
    assert "--train.global_batch=512" in command and "--model.preset=gpt2-124m" in command


def test_a_test_that_fails_or_is_skipped_or_does_not_run_fails_the_part(pack: Pack) -> None:
    done = pack.run("tests", tests_core={"failed": 1, "skipped": 2}, tests_model={"cases": 0},
                    tests_kernels={"skip_line": "[skipped] CUDA cases: no device"},
                    tests_train={"crash": True})
    assert done.returncode == 1 and not pack.entry("tests")["passed"]
    for words in (
        "tests_core: 1 cases failed, it ended with status 1: layernorm: agrees with float64",
        "tests_core: 2 cases were skipped",
        "tests_kernels: a test was skipped: [skipped] CUDA cases: no device",
        "tests_model: cases that ran: 0 cases, must be at least 1 (100 % short)",
        "tests_train ended with status 134 without a summary: terminate called",
    ):
        assert words in done.stdout


def test_fewer_tests_than_recorded_fail_until_there_are_as_many_again(pack: Pack) -> None:
    assert pack.run("tests", tests_model={"cases": 12}).returncode == 0
    done = pack.run("tests", tests_model={"cases": 11})
    assert done.returncode == 1
    assert "tests_model: cases that ran: 11 cases, must be at least 12 (8.33 % short)" in done.stdout
    # A failed run must not lower what is demanded of the next.
    assert pack.run("tests", tests_model={"cases": 11}).returncode == 1
    assert pack.run("tests", tests_model={"crash": True}).returncode == 1
    assert pack.run("tests", tests_model={"cases": 11}).returncode == 1
    assert pack.run("tests", tests_model={"cases": 12}).returncode == 0


def test_a_program_from_ptx_runs_as_many_tests_as_it_does_otherwise(pack: Pack) -> None:
    assert pack.run("tests", tests_model={"cases": 12}).returncode == 0
    for _ in range(2):  # a failed run lowers nothing
        done = pack.run("tests_ptx80", tests_model={"cases": 11}, tests_kernels={"cases": 3})
        assert done.returncode == 1
        for limit in (166912, 101376):
            assert (f"tests_model, {limit} bytes: cases that ran: 11 cases, must be at least 12 "
                    in done.stdout)
            assert (f"MISS tests_kernels, {limit} bytes: cases that ran: 9 cases, must be at least "
                    "10 ") in done.stdout
    # A program with a filter is held to what it ran itself.
    assert pack.run("tests_ptx80", tests_model={"cases": 12}).returncode == 0
    done = pack.run("tests_ptx80", tests_model={"cases": 12}, tests_train={"cases": 9})
    assert ("MISS tests_train, 101376 bytes: cases that ran: 9 cases, must be at least 10"
            in done.stdout)


def test_fewer_cases_under_a_sanitizer_than_recorded_fail(pack: Pack) -> None:
    assert pack.run("sanitize").returncode == 0
    entry = pack.entry("sanitize")
    # A result from before the numbers were recorded has them among its runs.
    del entry["data"]["recorded"]
    pack.put("bench/results/h200.json", json.dumps(
        {"schema": 1, "gpu": "NVIDIA H200", "parts": {"sanitize": entry}}))
    fewer = {"cases": {"memcheck *test_adamw.cpp": 1}}
    for _ in range(2):  # a failed run lowers nothing
        done = pack.run("sanitize", compute__sanitizer=fewer)
        assert done.returncode == 1
        assert "PROBLEM memcheck adamw: ran 1 cases of at least 2, skipped 0" in done.stdout
    assert pack.run("sanitize").returncode == 0


def test_pytorchs_time_stands_in_the_row_of_the_case(pack: Pack) -> None:
    rows = TORCH["bench/torch_kernels.py"]
    row = json.loads(rows)
    adamw = {**row, "op": "adamw", "dtype": "f32", "how": "library"}
    other = {**row, "op": "layernorm_backward", "shape": "1x1"}
    pack.print_from("bench/torch_kernels.py", f"{rows}{json.dumps(adamw)}\n{json.dumps(other)}\n")
    done = pack.run("kernels")
    assert ("bench/torch_kernels.py measured layernorm_backward 1x1, of which bench_kernels has no "
            "case" in done.stdout)
    cases = {c["op"]: c for c in pack.entry("kernels")["data"]["bench"]["cases"]}
    norm = cases["layernorm_forward"]
    assert norm["library"] == "PyTorch (compiled, bf16)" and norm["library_us"] == pytest.approx(70.0)
    assert norm["library_samples_us"] == [71.235, 70.0, 69.0]
    assert cases["adamw"]["library"] == "PyTorch (library, f32)"
    assert cases["cross_entropy"]["library"] is None
    assert cases["attention_forward"]["library"] == "cuDNN"


def test_cudnns_run_is_held_against_its_plan_and_names_its_version(pack: Pack) -> None:
    done = pack.run("e2e", train_gpt={"percent of cudnn": "+3.5", "cudnn": "a library"})
    assert "MISS cuDNN's attention: planned against measured memory: 3.5 %" in done.stdout
    assert "PROBLEM the run with model.attention=cudnn names no version of cuDNN" in done.stdout
    assert "ok   planned against measured memory: 0.4169 %" in done.stdout
    done = pack.run("kernels", bench_kernels={"cudnn": "libcudnn.so.9 cannot be loaded"})
    assert "PROBLEM bench_kernels measured no cuDNN: libcudnn.so.9 cannot be loaded" in done.stdout


@pytest.mark.parametrize(("describe", "words"), [
    ("NVIDIA H200, 0000:01:00.0", "named no GPU in slot 0000:01:00.0, which our programs use"),
    ("NVIDIA H200", "--describe ended with status 0 and named no PCI bus id: NVIDIA H200")])
def test_the_gpu_of_the_results_is_the_one_that_the_programs_use(
        pack: Pack, describe: str, words: str) -> None:
    done = pack.run("faults", bench_kernels={"describe": describe})
    assert done.returncode == 1 and words in done.stderr
    assert not (pack.root / "bench/results/h200.json").exists()
    assert pack.run("faults", bench_kernels={"describe": "A, B, 0000:3b:00.0"}).returncode == 0
    found = json.loads((pack.root / "bench/results/h100.json").read_text())
    assert found["parts"]["faults"]["gpu"]["uuid"] == "GPU-OTHER"


def test_a_failed_run_replaces_the_pass_before_it_and_nothing_else(pack: Pack) -> None:
    assert pack.run("tests", "kernels").returncode == 0
    assert pack.run("kernels", bench_kernels={"gb_per_s": 3000.0}).returncode == 1
    assert not pack.entry("kernels")["passed"] and pack.entry("tests")["passed"]


def test_a_part_that_is_killed_leaves_no_stale_pass(pack: Pack) -> None:
    assert pack.run("tests").returncode == 0
    # The interpreter itself ends in the middle of the part.
    pack.put("tools/gpu_check/part_tests.py", "def run(check):\n    import os\n    os._exit(9)\n")
    assert pack.run("tests").returncode == 9
    entry = pack.entry("tests")
    assert not entry["passed"] and entry["problems"] == ["the part did not come to its end"]
    assert entry["data"]["recorded"]["tests_core"] == 10


def test_an_error_in_a_part_is_a_problem_and_the_next_part_runs(pack: Pack) -> None:
    (pack.root / "bin-ptx80-101376/libingot.so").unlink()
    done = pack.run("tests_ptx80", "kernels")
    assert done.returncode == 1
    assert "bin-ptx80-101376/libingot.so is missing" in done.stdout
    assert "tests_ptx80 FAILED, kernels passed" in done.stdout


def test_filters_that_leave_a_case_out_are_noticed(pack: Pack) -> None:
    done = pack.run("tests_ptx80", tests_kernels={"cases": 10, "skipped": 21})
    assert done.returncode == 1
    assert ("tests_kernels, 101376 bytes: cases that ran: 30 cases, must be at least 31"
            in done.stdout)
    done = pack.run("tests_ptx80", tests_kernels={"cases": 10, "skipped": 19})
    assert done.returncode == 1 and "101376 bytes: 1 cases ran twice" in done.stdout


def test_compiled_ptx_is_kept_apart_for_each_library(pack: Pack) -> None:
    assert pack.run("tests_ptx80").returncode == 0
    caches = {re.search(r"CUDA_CACHE_PATH=(\S+)", line).group(1): line
              for line in pack.entry("tests_ptx80")["commands"] if "CUDA_CACHE_PATH" in line}
    assert len(caches) == 8
    assert all(f"cache-{limit}" in cache
               for cache, line in caches.items()
               for limit in re.findall(r"/ptx80-(\d+)/", line))


def test_from_ptx_the_memory_of_the_whole_card_is_measured_by_a_program_that_runs_alone(pack: Pack) -> None:
    assert pack.run("tests_ptx80").returncode == 0
    entry = pack.entry("tests_ptx80")
    case = "test-case=*measured memory is the planned*"
    memory = [case in line for line in entry["commands"]]
    assert sum(memory) == 2
    others = [line for line in entry["commands"] if "/tests_train" in line and case not in line]
    assert len(others) == 2
    assert all("test-case-exclude=*measured memory is the planned*" in line for line in others)
    assert memory.index(True) > max(
        i for i, line in enumerate(entry["commands"])
        if re.search(r"/tests_(core|kernels|model|train)\b", line) and case not in line)
    for limit in (166912, 101376):
        assert entry["data"]["programs"][f"tests_train (memory), {limit} bytes"]["cases"] == 10


def test_memory_bound_kernels_and_attention_are_held_against_their_roofs(pack: Pack) -> None:
    slow = TORCH["bench/torch_attention.py"].replace("210.0", "240.0")
    pack.print_from("bench/torch_attention.py", slow)
    done = pack.run("kernels", bench_kernels={"gb_per_s": 3000.0})
    assert done.returncode == 1
    assert ("adamw 65536x768: part of copy speed: 70.2576 %, must be at least 80 (12.2 % short)"
            in done.stdout)
    assert ("attention backward B2 32/8 T8192 D128: part of FlashAttention-2: 83.3333 %, must be "
            "at least 85" in done.stdout)


def test_a_rate_that_was_not_measured_is_a_problem(pack: Pack) -> None:
    pack.print_from("bench/torch_attention.py", "")
    done = pack.run("kernels")
    assert "attention forward B64 12/12 T1024 D64: PyTorch was not measured" in done.stdout


def test_end_to_end_figures_are_held_against_their_bars(pack: Pack) -> None:
    done = pack.run("e2e", train_gpt={"tokens_per_s": 510000, "percent": "+3.4",
                                      "matmul_ms": 700.0})
    assert done.returncode == 1
    for words in (
        "tokens/s, median of 50 steps: 510036 tokens/s, must be at least 550000 (7.27 % short)",
        "tokens/s against PyTorch in the same run: 510036 tokens/s, must be at least 519000",
        "planned against measured memory: 3.4 %, must be at most 3",
        "part of a step that is not explained: 14.3179 %, must be at most 5",
    ):
        assert "MISS " + words in done.stdout


def test_what_a_build_cannot_show_is_a_problem(pack: Pack) -> None:
    done = pack.run("e2e", train_gpt={"help": "nothing"})
    assert done.returncode == 1
    assert "this build has no log.profile_step: the step is not explained" in done.stdout
    assert "this build has no model.attention=cudnn" in done.stdout


def test_a_slow_pytorch_makes_the_comparison_void(pack: Pack) -> None:
    torch = TORCH["bench/torch_gpt2.py"].replace("519000.0", "480000.0")
    pack.print_from("bench/torch_gpt2.py", torch)
    done = pack.run("e2e")
    assert done.returncode == 1 and "below which the comparison is void: 480000" in done.stdout


def test_memory_beyond_pytorchs_is_missed(pack: Pack) -> None:
    torch = json.loads(TORCH["bench/torch_gpt2.py"])
    torch["memory"]["max_allocated_bytes"] = 20e9
    pack.print_from("bench/torch_gpt2.py", json.dumps(torch) + "\n")
    done = pack.run("e2e_1558m")
    assert "peak memory against PyTorch's tensors and context: 23.0854 GB, must be at most 21" in (
        done.stdout)


def test_what_a_model_is_worth_is_held_against_its_bars(pack: Pack) -> None:
    done = pack.run("export", golden_check={"fp32": 2e-4, "bf16": 0.02}, train_gpt={
        "val_loss": 3.95, "losses": [10.0, 0.02], "drifts": "second",
        "weights": {"second": "other"}, "percent": "-4.204"})
    assert done.returncode == 1
    for words in (
        "MISS golden fp32 logits: 0.0002 absolute, must be at most 0.0001 (100 % over)",
        "MISS bf16 error of PyTorch's (pure bf16): ",
        "MISS demo: validation loss against trigrams: 3.95 nats, must be at most 3.9",
        "MISS demo: planned against measured memory: 4.204 %, must be at most 3",
        "MISS export: validation loss by transformers against the run's (bf16): 0.449 nats",
        "MISS export: logits of transformers against the engine's: 0.0002",
        "MISS overfitting one batch: last loss: 0.02 nats, must be at most 0.01",
        "PROBLEM two runs of one configuration end with other weights",
        "PROBLEM two runs of one configuration differ from step 7 on",
        "MISS repetition: equal records of two runs: 31 records, must be at least 32",
    ):
        assert words in done.stdout
    assert any("--window=512" in line for line in pack.entry("export")["commands"])
    # The failed run keeps what it saw, the demo's text too.
    assert pack.entry("export")["data"]["demo"]["samples"] == {"475": "def f(x):\n    return x"}


def test_a_failing_line_of_golden_check_is_named(pack: Pack) -> None:
    done = pack.run("export", golden_check={"fp32": 0.1})
    assert "golden_check fp32" in done.stdout and "logits: error 1.000e-01, limit 5.000e-02" in (
        done.stdout)


def test_a_finding_of_a_sanitizer_names_the_tool_and_the_test(pack: Pack) -> None:
    done = pack.run("sanitize", compute__sanitizer={"finds": "racecheck *test_layernorm.cpp"})
    assert done.returncode == 1
    assert "racecheck layernorm: 3 errors" in done.stdout
    assert "runs without a finding: 37 runs, must be at least 38" in done.stdout


def test_a_fault_that_no_test_notices_is_named(pack: Pack) -> None:
    pack.faults_noticed(True, False)
    done = pack.run("faults")
    assert done.returncode == 1 and "PROBLEM fault-1: NOT NOTICED" in done.stdout
    assert "faults that a test noticed: 1 faults, must be at least 2 (50 % short)" in done.stdout
    (pack.root / "cuda_faults.tar.xz").unlink()
    assert "make it with tools/gpu_pack.sh --faults" in pack.run("faults").stdout
    assert not pack.entry("faults")["bars"]


def test_a_program_that_hangs_is_stopped_when_the_parts_time_is_over(pack: Pack) -> None:
    parts = json.loads((pack.root / "tools/gpu_check/parts.json").read_text())
    parts["tests"]["seconds"] = 1
    pack.put("tools/gpu_check/parts.json", json.dumps(parts))
    done = pack.run("tests", tests_core={"sleep_s": 60})
    assert "tests_core was stopped without a summary" in done.stdout
    assert "not started: the part's time is used up" in done.stdout


def test_a_wrong_part_is_named_with_those_that_exist(pack: Pack) -> None:
    done = pack.run("speed")
    assert done.returncode == 2
    assert f"no part speed; the parts are {', '.join(PARTS)}" in done.stderr


def test_a_machine_without_a_gpu_or_a_build_is_told_what_to_do(pack: Pack) -> None:
    (pack.path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    done = pack.run("tests")
    assert done.returncode == 1 and "named no GPU" in done.stderr
    assert not (pack.root / "bench/results/h200.json").exists()
    (pack.root / "bin/libingot.so").unlink()
    assert "run this in a folder made by tools/gpu_pack.sh, or run make build" in (
        pack.run("tests").stderr)


def test_results_of_another_folder_are_merged_by_date(pack: Pack, tmp_path: Path) -> None:
    pack.run("kernels", "--results", str(tmp_path / "out"))
    assert not (pack.root / "bench/results/h200.json").exists()
    done = pack.run("--merge", str(tmp_path / "out/h200.json"))
    assert "took over kernels" in done.stdout and pack.entry("kernels")["passed"]
    assert "took over nothing" in pack.run("--merge", str(tmp_path / "out/h200.json")).stdout
