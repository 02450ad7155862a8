"""tools/setup.sh venv: made once from the system's python, filled only when its list changes."""

import pytest


@pytest.fixture
def clone(machine):
    machine.put("repo/tools/requirements.txt", "numpy\n")
    machine.put("repo/tools/requirements-test.txt", "pytest\n")
    return machine


def pip_calls(machine):
    return [call.split(" -r ")[1] for call in machine.calls("python") if "pip install" in call]


def test_the_venv_is_made_and_filled_once(clone):
    done = clone.run("tools/setup.sh", "venv", "run")
    assert done.returncode == 0, done.stderr
    assert pip_calls(clone) == [f"{clone.repo}/tools/requirements.txt"]
    clone.forget()
    assert clone.run("tools/setup.sh", "venv", "run").returncode == 0
    assert pip_calls(clone) == []


def test_the_tests_add_their_own_packages(clone):
    assert clone.run("tools/setup.sh", "venv", "run").returncode == 0
    clone.forget()
    assert clone.run("tools/setup.sh", "venv", "test").returncode == 0
    assert pip_calls(clone) == [f"{clone.repo}/tools/requirements-test.txt"]


def test_a_changed_list_is_installed_again(clone):
    assert clone.run("tools/setup.sh", "venv", "run").returncode == 0
    clone.put("repo/tools/requirements.txt", "numpy\ntokenizers\n")
    clone.forget()
    assert clone.run("tools/setup.sh", "venv", "run").returncode == 0
    assert len(pip_calls(clone)) == 1


def test_a_venv_whose_python_is_gone_is_made_again(clone):
    assert clone.run("tools/setup.sh", "venv", "run").returncode == 0
    (clone.repo / ".venv/bin/python").unlink()
    clone.forget()
    assert clone.run("tools/setup.sh", "venv", "run").returncode == 0
    assert len(pip_calls(clone)) == 1


def test_a_failing_pip_stops_names_the_list_and_is_tried_again(clone):
    clone.put("pip_fails", "")
    done = clone.run("tools/setup.sh", "venv", "run")
    assert done.returncode == 1
    assert "pip could not install tools/requirements.txt" in done.stderr
    assert "fix: check the network" in done.stderr
    (clone.folder / "pip_fails").unlink()
    assert clone.run("tools/setup.sh", "venv", "run").returncode == 0


def test_a_system_without_a_usable_python_is_told_the_package(clone):
    done = clone.run("tools/setup.sh", "venv", "run", INGOT_PYTHON="/nowhere/python3")
    assert done.returncode == 1
    assert "/nowhere/python3 cannot make a virtual environment" in done.stderr
    assert "python3-venv (Debian)" in done.stderr
