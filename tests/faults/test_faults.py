"""The list of faults fits the tree, and the script that uses it finds what it should.

The faults themselves are tried by `make faults`, which builds; this is the part that takes no time.
"""

import fnmatch
import re

import cuda_faults
import pytest
import run_faults

FAULTS = run_faults.read_faults()
CUDA_FAULTS = [fault for fault in FAULTS if cuda_faults.is_cuda(fault)]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["id"] for fault in FAULTS])
def test_each_fault_has_exactly_one_place_and_a_test(fault):
    text = (run_faults.ROOT / fault["file"]).read_text()
    assert run_faults.apply_fault(text, fault) != text
    folder = fault["target"].replace("tests_", "tests/")
    tests = (run_faults.ROOT / folder / f"{fault['test']}.cpp").read_text()
    cases = re.findall(r'TEST_CASE\(\s*"([^"]+)"', tests)
    # At a comma doctest would see two filters.
    assert fnmatch.filter(cases, fault.get("case", "*")) and "," not in fault.get("case", "*")


def test_there_are_thirty_faults_of_each_kind_with_names_of_their_own_and_one_line_each():
    assert len({fault["id"] for fault in FAULTS}) == len(FAULTS)
    assert len(CUDA_FAULTS) >= 30 and len(FAULTS) - len(CUDA_FAULTS) >= 30
    for fault in FAULTS:
        assert "\n" not in fault["original"] + fault["replacement"]


def test_the_page_lists_every_fault():
    page = (run_faults.ROOT / "docs/testing.md").read_text()
    listed = page.split(run_faults.BEGIN)[1].split(run_faults.END)[0]
    for fault in FAULTS:
        if not cuda_faults.is_cuda(fault):
            assert f"| `{fault['id']}` | `{fault['file']}` | {fault['what']} |" in listed
    listed = page.split(run_faults.CUDA_BEGIN)[1].split(run_faults.CUDA_END)[0]
    assert listed.strip() == run_faults.cuda_table(CUDA_FAULTS)


def test_objects_of_a_fault_are_files_of_the_tree():
    for fault in FAULTS:
        for source in fault.get("objects", []):
            assert cuda_faults.is_cuda(fault) and (run_faults.ROOT / source).is_file()


def test_dependencies_are_read_from_ninja():
    text = (
        "CMakeFiles/ingot.dir/kernels/sum.cu.o: #deps 2, deps mtime 17 (VALID)\n"
        "    ../../kernels/sum.cu\n    ../../kernels/device/reduce.cuh\n\n"
        "CMakeFiles/ingot.dir/kernels/gelu.cu.o: #deps 1, deps mtime 18 (STALE)\n"
        "    ../../kernels/gelu.cu\n"
    )
    assert cuda_faults.included_by(text) == {
        "CMakeFiles/ingot.dir/kernels/sum.cu.o": {
            "../../kernels/sum.cu",
            "../../kernels/device/reduce.cuh",
        },
        "CMakeFiles/ingot.dir/kernels/gelu.cu.o": {"../../kernels/gelu.cu"},
    }


def test_a_header_changes_the_objects_that_include_it_and_a_fault_may_narrow_them():
    build = run_faults.ROOT / "build/cuda"
    commands = {"kernels/sum.cu": ("sum.o", []), "kernels/gelu.cu": ("gelu.o", [])}
    dependencies = {"sum.o": {"../../kernels/device/x.cuh"}, "gelu.o": {"../../kernels/device/x.cuh"}}
    fault = {"id": "x", "file": "kernels/device/x.cuh"}
    both = cuda_faults.objects_of(fault, commands, dependencies, build)
    assert both == ["kernels/gelu.cu", "kernels/sum.cu"]
    fault["objects"] = ["kernels/sum.cu"]
    assert cuda_faults.objects_of(fault, commands, dependencies, build) == ["kernels/sum.cu"]
    fault["file"] = "kernels/device/y.cuh"
    assert cuda_faults.objects_of(fault, commands, dependencies, build) == []


def test_the_faulty_file_comes_first_for_the_compiler(tmp_path):
    source = str(run_faults.ROOT / "kernels/sum.cu")
    command = ["ccache", "/cuda/bin/nvcc", "-I/tree", "-lineinfo", "-MD", "-MT", "a", "-MF", "b",
               "-c", source, "-o", "sum.cu.o"]
    header = cuda_faults.faulty_command(command, "kernels/sum.cu", tmp_path, "out.o")
    assert header == ["ccache", "/cuda/bin/nvcc", f"-I{tmp_path}", "--no-compress", "-I/tree",
                      "-c", source, "-o", "out.o"]
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/sum.cu").write_text("")
    changed = cuda_faults.faulty_command(command, "kernels/sum.cu", tmp_path, "out.o")
    assert changed[6] == str(tmp_path / "kernels/sum.cu") and source not in changed


def test_only_a_failed_test_case_counts_as_noticed():
    assert cuda_faults.verdict(0, "all fine") == (False, "NOT NOTICED")
    failed = "x.cpp:3:\nTEST CASE:  sum: adds\n\nx.cpp:9: ERROR"
    assert cuda_faults.verdict(1, failed) == (True, "sum: adds")
    full = f"{failed}\nbuffer test: 9 bytes{cuda_faults.OUT_OF_MEMORY}"
    assert not cuda_faults.verdict(1, full)[0]
    noticed, by = cuda_faults.verdict(127, "libcudart.so.13: cannot open shared object file")
    assert not noticed and by.startswith("DID NOT RUN: status 127") and "libcudart" in by


def test_a_fault_without_its_place_is_named():
    fault = {"id": "x", "file": "f.cpp", "original": "a", "replacement": "b"}
    with pytest.raises(ValueError, match="fault x: f.cpp holds its original text 2 times"):
        run_faults.apply_fault("aa", fault)
    with pytest.raises(ValueError, match="0 times"):
        run_faults.apply_fault("c", fault)


def test_the_table_is_written_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{run_faults.BEGIN}\nold\n{run_faults.END}\nbelow\n")
    fault = {"id": "x", "file": "f.cpp", "what": "= for +="}
    run_faults.write_table(page, [(fault, True, "case a | b")])
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("\nbelow\n") and "old" not in text
    assert "| `x` | `f.cpp` | = for += | case a \\| b |" in text
