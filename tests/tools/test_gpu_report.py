"""The pieces of tools/gpu_check beside its parts: hashes, results, tables, what PyTorch is fed."""

from __future__ import annotations

import fnmatch
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_check import (doctest_output, machine, pack, part_sanitize, part_tests_ptx80, report, results,
                       sources, stale, step_floor, training)
from gpu_check.__main__ import RUN
from gpu_check.check import Bar
from gpu_check.commands import CommandError, Commands
from gpu_check_fixture import PARTS, Pack
from ingot_data.shards import read_shard

ROOT = Path(__file__).resolve().parents[2]


def tree(root: Path) -> dict[str, Any]:
    (root / "a/b").mkdir(parents=True)
    (root / "a/x.cpp").write_text("x")
    (root / "a/b/y.cpp").write_text("y")
    return {"files": ["a/**/*.cpp"]}


def test_a_hash_is_of_names_and_contents_and_of_nothing_else(tmp_path: Path) -> None:
    part = tree(tmp_path)
    first = sources.hash_of(part, tmp_path)
    (tmp_path / "a/other.h").write_text("z")
    assert sources.hash_of(part, tmp_path) == first
    (tmp_path / "a/x.cpp").write_text("changed")
    assert sources.hash_of(part, tmp_path) != first
    (tmp_path / "a/x.cpp").write_text("x")
    assert sources.hash_of(part, tmp_path) == first
    (tmp_path / "a/x.cpp").rename(tmp_path / "a/z.cpp")
    assert sources.hash_of(part, tmp_path) != first


def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"parts.json: a/\*.cu matches no file"):
        sources.hash_of({"files": ["a/*.cu"]}, tmp_path)


def test_every_part_has_sources_a_time_and_a_program() -> None:
    parts = sources.read_parts()
    assert list(parts) == list(RUN) == list(PARTS)
    assert set(sources.hashes()) == set(parts)
    for part in parts.values():
        assert part["seconds"] <= 300 and part["what"]


def test_files_that_every_part_depends_on_are_among_those_of_each(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "tools/gpu_check").mkdir(parents=True)
    (tmp_path / "tools/gpu_check/parts.json").write_text(json.dumps(
        {"common": ["a/x.cpp"], "one": {"files": ["a/b/*.cpp"]}, "two": {"files": []}}))
    first = sources.hashes(tmp_path)
    assert list(first) == ["one", "two"]
    (tmp_path / "a/b/y.cpp").write_text("changed")
    second = sources.hashes(tmp_path)
    assert second["one"] != first["one"] and second["two"] == first["two"]
    (tmp_path / "a/x.cpp").write_text("changed")
    third = sources.hashes(tmp_path)
    assert third["one"] != second["one"] and third["two"] != second["two"]
    part = sources.read_parts(tmp_path)["one"]
    assert sources.hash_of({**part, "seconds": 9}, tmp_path) != third["one"]


def test_every_module_that_a_part_imports_is_among_its_files() -> None:
    """Directly and through others; what is not common must be named."""
    folder = ROOT / "tools/gpu_check"

    def imported(name: str) -> set[str]:
        text = (folder / f"{name}.py").read_text()
        found = set(re.findall(r"^from gpu_check\.(\w+) import", text, re.M))
        for names in re.findall(r"^from gpu_check import ([\w, ]+)$", text, re.M):
            found |= set(names.split(", "))
        return found

    for name, part in sources.read_parts().items():
        names = {path.stem for path in sources.files_of(part, ROOT) if path.parent == folder}
        assert {"__main__", "check", "commands", "doctest_output", "machine"} <= names
        for module in names - {"__main__"}:
            assert imported(module) <= names, (name, module)


def test_every_part_depends_on_what_makes_its_programs() -> None:
    for part in sources.read_parts().values():
        names = {str(path.relative_to(ROOT)) for path in sources.files_of(part, ROOT)}
        assert {"tools/gpu_pack.sh", "CMakeLists.txt", "CMakePresets.json",
                "tools/requirements-cudnn.txt"} <= names
        for folder in ("tests/kernels", "tests/train", "bench", "tools"):
            if any(n.startswith(folder + "/") and n.endswith(".cpp") for n in names):
                assert f"{folder}/CMakeLists.txt" in names


def test_a_long_problem_takes_one_readable_line() -> None:
    assert report.one_line("") == "" and report.one_line("x\ny") == "x"
    assert report.one_line("a" * 160) == "a" * 160
    line = report.one_line("train_gpt " + "--key=value " * 40 + "was stopped after 3 s\nmore")
    assert len(line) == 160 and " ... " in line
    assert line.startswith("train_gpt --key") and line.endswith(" was stopped after 3 s")


def test_the_bf16_ratios_show_what_no_bar_holds() -> None:
    ours = {"logits": 2.0, "loss": 1.0, "loss after step 1": 4.0, "grad a": 3.0, "grad b": 4.0,
            "gradient norm of step 1": 0.5, "gradient norm of step 2": 0.25}
    pure = {"logits": 1.0, "loss": 4.0, "loss after step 1": 1.0, "grad a": 6.0, "grad b": 2.0,
            "gradient norm of step 1": 1.0, "gradient norm of step 2": 0.1}
    lines = {what: {"error": error, "limit": 1.0} for what, error in ours.items()}
    entry = {"data": {"golden": {"bf16": lines},
                      "torch_bf16": {"pure": pure, "autocast": {**pure, "logits": math.inf}}},
             "gpu": {"name": "X", "driver_version": "1"}, "versions": {}, "commit": "0123456789",
             "date": "2026-12-01", "changed_files": []}
    text = "\n".join(report.bf16({"parts": {"export": entry}}))
    assert "| logits | 2.00 (logits: 2.00e+00 to 1.00e+00) | nan (logits: " in text
    assert "| gradients, worst tensor | 2.00 (grad b: 4.00e+00 to 2.00e+00) |" in text
    assert f"| gradients, all together | {5 / math.hypot(6, 2):.2f} |" in text
    assert "| loss, worst to worst | 1.00 (loss, worst step: 4.00e+00 to 4.00e+00) |" in text
    assert "| loss, one alone | 4.00 (loss after step 1: 4.00e+00 to 1.00e+00) |" in text
    assert "| gradient norm of step, worst to worst | 0.50 (" in text
    assert "| gradient norm of step, one alone | 2.50 (gradient norm of step 2: " in text


def test_a_part_depends_on_its_own_code_and_the_kernels() -> None:
    for name, part in sources.read_parts().items():
        names = {str(path.relative_to(ROOT)) for path in sources.files_of(part, ROOT)}
        assert "kernels/layernorm.cu" in names
        module = RUN[name].__module__.rsplit(".", 1)[1]
        assert f"tools/gpu_check/{module}.py" in names


def test_every_kernel_test_with_cuda_cases_is_sanitized() -> None:
    with_cuda = set()
    for path in (ROOT / "tests/kernels").glob("test_*.cpp"):
        text = path.read_text()
        if "test_devices()" in text or "make_cuda(" in text:
            with_cuda.add(path.stem.removeprefix("test_"))
    # What a choice or a library runs is either watched in another test or not ours to mend.
    others = {"matmul_plan", "attention_method", "attention_cudnn"}
    assert with_cuda - others == set(part_sanitize.FILES)


def test_the_files_of_tests_train_with_cuda_cases_run_from_ptx() -> None:
    marks = ("test_devices()", "has_gpu()", "make_cuda(")
    with_cuda = {path.name for path in (ROOT / "tests/train").glob("test_*.cpp")
                 if any(mark in path.read_text() for mark in marks)}
    assert with_cuda == set(part_tests_ptx80.CUDA_TRAIN_FILES)


def test_every_filter_of_the_sanitizers_names_a_case() -> None:
    names = []
    for path in (ROOT / "tests/kernels").glob("test_*.cpp"):
        names += re.findall(r'TEST_CASE\(\s*"([^"]+)"', path.read_text())
    for pattern in (*part_sanitize.RACECHECK_CASES.values(), *part_sanitize.LARGE):
        assert "," not in pattern  # which separates filters
        assert fnmatch.filter(names, pattern), pattern


def test_packed_programs_are_those_that_the_parts_start() -> None:
    line = next(line for line in (ROOT / "tools/gpu_pack.sh").read_text().splitlines()
                if line.startswith("PROGRAMS="))
    packed = set(line.removeprefix("PROGRAMS=(").removesuffix(")").split())
    assert packed == {"train_gpt", "golden_check", "export_hf", "bench_kernels", "tests_core",
                      "tests_kernels", "tests_model", "tests_train"}


@pytest.mark.parametrize(("bar", "passed", "text"), [
    (Bar("rate", 560.0, 550.0, "t/s"), True, "rate: 560 t/s, must be at least 550"),
    (Bar("rate", 495.0, 550.0, "t/s"), False, "rate: 495 t/s, must be at least 550 (10 % short)"),
    (Bar("error", 3.0, 2.0, "x", True), False, "error: 3 x, must be at most 2 (50 % over)"),
    (Bar("error", math.nan, 2.0, "x", True), False, "error: nan x, must be at most 2 (missed)"),
    (Bar("left", 1.0, 0.0, "x", True), False, "left: 1 x, must be at most 0 (missed)"),
])
def test_a_bar_says_by_how_much_it_was_missed(bar: Bar, passed: bool, text: str) -> None:
    assert bar.passed == passed and bar.text() == text


def test_doctest_counts_are_read() -> None:
    counts = doctest_output.parse(
        "[skipped] CUDA cases: x\nTEST CASE:  a, b\nTEST CASE:  a, b\n"
        "[doctest] test cases:  43 |  41 passed | 2 failed | 1 skipped\n"
        "[doctest] assertions: 12345 | 12344 passed | 1 failed |\n")
    assert counts == doctest_output.Counts(43, 41, 2, 1, 12345, ["a, b"],
                                           ["[skipped] CUDA cases: x"])
    assert doctest_output.parse("Segmentation fault") is None


@pytest.mark.parametrize(("name", "file"), [
    ("NVIDIA H200", "h200.json"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb.json"),
    ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090.json")])
def test_results_are_named_after_the_card(name: str, file: str) -> None:
    assert results.file_name(name) == file


def test_lists_of_numbers_take_one_line_and_texts_keep_theirs() -> None:
    value = {"a": [1, -2.5, 1e-7], "b": ["[1,\n 2]", "[ 3 ]"], "c": [], "d": [[1, 2], [3]]}
    text = results.to_text(value)
    assert json.loads(text) == value
    assert '"a": [1, -2.5, 1e-07]' in text and "[1, 2],\n" in text


def test_results_of_another_schema_or_card_are_refused(tmp_path: Path) -> None:
    (tmp_path / "h200.json").write_text('{"schema": 7}')
    with pytest.raises(ValueError, match="schema 7, this program writes 1"):
        results.read(tmp_path / "h200.json")
    for name in ("A", "B"):
        results.write(tmp_path / f"{name}.json", {"schema": 1, "gpu": name, "parts": {}})
    with pytest.raises(ValueError, match="B.json is of B, .*A.json of A"):
        results.merge_file(tmp_path / "A.json", tmp_path / "B.json")


def test_a_commands_environment_is_not_pythons(tmp_path: Path) -> None:
    commands = Commands(tmp_path, 60, {"LD_LIBRARY_PATH": "/engine"}, sys.executable)
    program = [sys.executable, "-c", "import os; print(os.environ.get('LD_LIBRARY_PATH'))"]
    assert commands.run(program).output.strip() != "/engine"
    assert commands.run(["/bin/sh", "-c", "echo $LD_LIBRARY_PATH"]).output == "/engine\n"
    assert commands.run(["/bin/sh", "-c", "echo $A"], environment={"A": "b c"}).output == "b c\n"
    assert commands.lines[-1] == "A='b c' /bin/sh -c 'echo $A'"


def test_a_program_that_must_succeed_is_named_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="false.* ended with status 1 after 0 s: why"):
        Commands(tmp_path, 60).must(["/bin/sh", "-c", "echo why; false"])


def test_memory_lines_and_series_of_a_run_are_read() -> None:
    run = training.Training(
        Path("x"), [{"step": i, "loss": float(i)} for i in (1, 2, 3)] + [{"val_loss": 5.0}],
        "memory after step 1: planned 1.00 GiB, measured 1.00 GiB (0 %)\n"
        "memory after step 60: planned 21.59 GiB, measured 999 MiB (+1.25e-03 %)\n", 1.0)
    memory = run.memory()
    assert (memory.step, memory.percent) == (60, 0.00125)
    assert memory.measured_bytes == 999 * 2**20 and memory.planned_bytes == 21.59 * 2**30
    assert run.series("loss", 1) == [2.0, 3.0] and run.last("val_loss") == 5.0
    with pytest.raises(ValueError, match="has no test_loss"):
        run.last("test_loss")


def test_the_floor_of_a_part_is_the_larger_of_its_two() -> None:
    roof = {"copy_gb_per_s": 1000.0, "f32_tflop_per_s": 1.0, "bf16_tflop_per_s": 10.0}
    profile = {"step": 6, "step_ms": 10.0, "unexplained_ms": 0.0, "parts": [
        {"name": "a", "calls": 1, "ms": 2.0, "bytes": 1e9, "flops": 1e9, "dtype": "bf16"},
        {"name": "b", "calls": 1, "ms": 7.0, "bytes": 1e6, "flops": 5e9, "dtype": "f32"}]}
    step = step_floor.explain(profile, roof)
    assert [part["name"] for part in step["parts"]] == ["b", "a"]
    assert [round(part["floor_ms"], 6) for part in step["parts"]] == [5.0, 1.0]
    assert step["unexplained_ms"] == 1.0 and step["unexplained_percent"] == 10.0


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "loaded_libraries", lambda *_: {"libcudart.so.99": ""})
    library = tmp_path / "libingot.so"
    with pytest.raises(FileNotFoundError, match="libcudart.so.99, which is neither"):
        machine.library_environment(library)
    monkeypatch.setattr(machine, "loaded_libraries", lambda *_: {"libc.so.6": "/lib/libc.so.6"})
    monkeypatch.setattr(machine, "is_loadable", lambda _: True)
    assert machine.library_environment(library) == {}
    monkeypatch.setattr(machine, "is_loadable", lambda _: False)
    monkeypatch.setattr(machine, "folder_of", lambda name: Path("/packages") / name)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/own")
    assert machine.library_environment(library) == {
        "LD_LIBRARY_PATH": "/packages/libcudnn.so.9:/packages/libnvrtc.so.13:/own"}
    monkeypatch.setattr(machine, "folder_of", lambda _: None)
    assert machine.library_environment(library) == {}


def test_the_page_is_what_the_results_say() -> None:
    assert report.rendered_page() == (ROOT / report.PAGE).read_text(), (
        "docs/performance.md differs from bench/results: run tools/gpu_check.sh --report")


def test_each_cudnn_is_named_by_its_own_version(tmp_path: Path) -> None:
    made = Pack(tmp_path)
    made.run("kernels", bench_kernels={"cudnn": "cuDNN 9.14.0"})
    results = made.results()
    results["parts"]["kernels"]["versions"]["torch_cudnn"] = 91900
    assert ("The engine calls cuDNN 9.14.0 (deterministic backward), PyTorch its own cuDNN 9.19.0, "
            "which was not asked for that;") in "\n".join(report.attention(results))


def test_a_full_set_of_results_fills_every_block(tmp_path: Path) -> None:
    made = Pack(tmp_path)
    made.run()
    made.run("kernels", bench_kernels={"gb_per_s": 3000.0})
    page = "".join(f"<!-- gpu: {name} begin -->\n<!-- gpu: {name} end -->\n"
                   for name in report.TABLES)
    text = report.render(page, [made.results()])
    assert "yet" not in text
    assert "| `tests` | every test with CUDA cases | passed | 4 of 4 | commit 0123456," in text
    assert "- `kernels`: adamw 65536x768: part of copy speed: 70.2576 %, bar 80" in text
    assert ("| GPT-2 124M, 64 x 1024 x 8 | 591,036 (591,011 - 591,060) | 887.1 ms | 519,000 | 1.14 "
            "| 23.1 (planned 23.2); 32.0 |") in text
    assert ("| GPT-2 124M, 64 x 1024 x 8, cuDNN's attention | 591,016 (591,011 - 591,020) | 887.1 ms "
            "| 519,000 | 1.14 | 23.1 (planned 23.2) |") in text
    assert "The engine calls cuDNN 9.19.0 (deterministic backward), PyTorch its own cuDNN, " in text
    assert "| matmul fc | 96 | 800.00 | 632.91 | 1.26 | 90.2 % |" in text
    assert "| layernorm_forward | 65536x768 | 50.0 | 3,000 | 70 % | 3,000 (compiled) |" in text
    assert ("| B64 12/12 T1024 D64 | 250 | 220 | 300 | 220 | 1.14 | 200 | 210 | 240 | 210 | 0.95 |"
            in text)
    assert "def f(x):" in text
    assert report.render(text, [made.results()]) == text
    with pytest.raises(ValueError, match="has a block x; known are outcome, e2e"):
        report.render("<!-- gpu: x begin -->\n<!-- gpu: x end -->", [])


def test_the_last_two_samples_of_the_demo_are_shown_in_the_order_of_their_steps(
        tmp_path: Path) -> None:
    made = Pack(tmp_path)
    made.run()
    card = made.results()
    card["parts"]["export"]["data"]["demo"]["samples"] = {
        "1685": "def last():\n", "500": "def early():", "1500": "\ndef before():"}
    text = "\n".join(report.worth(card))
    assert "early" not in text
    assert text.endswith("Text after step 1500:\n\n```\ndef before():\n```\n\n"
                         "Text after step 1685:\n\n```\ndef last():\n```")


def test_parts_older_than_their_sources_are_listed() -> None:
    entry = {"passed": True, "problems": [], "changed_files": [], "sources": "a",
             "commit": "0123456789", "date": "2026-12-01T00:00:00"}
    assert stale.state_of(entry, "a") == "up to date: passed at 0123456, 2026-12-01"
    assert stale.state_of(entry, "b").startswith("OLDER THAN ITS SOURCES: passed at 0123456")
    failed = {**entry, "passed": False, "problems": ["x"], "changed_files": ["f"]}
    assert "FAILED (1 problems), with 1 files changed since the commit" in stale.state_of(failed, "a")
    assert stale.state_of(None, "a") == "never run"
    assert len(stale.lines()) >= len(PARTS)


def test_a_pack_names_its_commit_and_what_differs_from_it() -> None:
    described = pack.describe(ROOT)
    assert len(str(described["commit"])) == 40 and set(described["sources"]) == set(PARTS)


def test_a_random_shard_is_one_that_the_strict_reader_takes(tmp_path: Path) -> None:
    path = tmp_path / "train_000.bin"
    command = [sys.executable, str(ROOT / "bench/random_shard.py"), str(path), "1001",
               "--vocab-size", "500"]
    subprocess.run(command, check=True)
    first = path.read_bytes()
    shard = read_shard(path)
    assert len(shard.tokens) == 1001 and shard.tokens.max() < 499
    assert len(np.unique(shard.tokens)) > 300
    subprocess.run(command, check=True)
    assert path.read_bytes() == first


def test_every_result_in_the_tree_can_be_read() -> None:
    for path in (ROOT / "bench/results").glob("*.json"):
        assert results.read(path)["gpu"] and path.name == results.file_name(
            json.loads(path.read_text())["gpu"])
