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


def test_what_a_build_with_cudnn_needs_is_installed_alone(clone):
    clone.put("repo/tools/requirements-cudnn.txt", "nvidia-cudnn-frontend\n")
    assert clone.run("tools/setup.sh", "venv", "cudnn").returncode == 0
    assert pip_calls(clone) == [f"{clone.repo}/tools/requirements-cudnn.txt"]
    assert any("--no-deps" in call for call in clone.calls("python"))


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-arrow.txt"])
def test_a_changed_list_is_installed_again(clone, name):
    assert clone.run("tools/setup.sh", "venv", "run").returncode == 0
    clone.put(f"repo/tools/{name}", "numpy\ntokenizers\n")
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


def test_a_system_without_a_usable_python_is_told_version_and_package(clone):
    clone.fake("python3", "exit 1", clone.root / "usr/bin")
    done = clone.run("tools/setup.sh", "venv", "run", INGOT_PYTHON="")
    assert done.returncode == 1
    assert "there is no python 3.11 or newer in /usr/bin" in done.stderr
    assert "python3 (Debian) or python3.11 (RHEL)" in done.stderr


def test_a_newer_python_beside_an_old_one_is_taken(clone):
    real = clone.folder / "bin/python3"
    clone.fake("python3", "exit 1", clone.root / "usr/bin")
    (clone.root / "usr/bin/python3.11").symlink_to(real)
    assert clone.run("tools/setup.sh", "venv", "run", INGOT_PYTHON="").returncode == 0
    assert [c for c in clone.calls("python3.11") if "-m venv" in c] != []


def test_a_python_that_cannot_make_a_venv_is_named(clone):
    python = clone.put("half/python3", '#!/bin/bash\n[ "$1" = -c ]\n')
    python.chmod(0o755)
    done = clone.run("tools/setup.sh", "venv", "run", INGOT_PYTHON=str(python))
    assert done.returncode == 1
    assert f"{python} cannot make a virtual environment" in done.stderr
    assert "python3-venv (Debian)" in done.stderr
