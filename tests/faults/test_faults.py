"""The list of faults fits the tree, and the script that uses it finds what it should.

The faults themselves are tried by `make faults`, which builds; this is the part that takes no time.
"""

import pytest
import run_faults

FAULTS = run_faults.read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["id"] for fault in FAULTS])
def test_each_fault_has_exactly_one_place_and_a_test(fault):
    text = (run_faults.ROOT / fault["file"]).read_text()
    assert run_faults.apply_fault(text, fault) != text
    folder = fault["target"].replace("tests_", "tests/")
    assert (run_faults.ROOT / folder / f"{fault['test']}.cpp").is_file()


def test_there_are_thirty_faults_with_names_of_their_own_and_one_line_each():
    assert len({fault["id"] for fault in FAULTS}) == len(FAULTS) >= 30
    for fault in FAULTS:
        assert "\n" not in fault["original"] + fault["replacement"]


def test_the_page_lists_every_fault():
    page = (run_faults.ROOT / "docs/testing.md").read_text()
    listed = page.split(run_faults.BEGIN)[1].split(run_faults.END)[0]
    for fault in FAULTS:
        assert f"| `{fault['id']}` | `{fault['file']}` | {fault['what']} |" in listed


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
