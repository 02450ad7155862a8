"""tools/setup.sh device and nvcc: the PCI bus decides; an NVIDIA device that fails is an error."""

import subprocess
from pathlib import Path

import pytest

NVCC = 'echo "Cuda compilation tools, release ${FAKE_NVCC_RELEASE:-13.0}, V13.0.88"'


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A folder with a libcuda.so.1 that does what FAKE_CUDA_* says."""
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("fake_libcuda.cpp")
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True
    )
    return {"LD_LIBRARY_PATH": str(folder)}


def device(machine, wanted="auto", **env):
    return machine.run("tools/setup.sh", "device", wanted, **env)


def refusal(machine, wanted="auto", **env):
    done = device(machine, wanted, **env)
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr


def test_a_machine_without_an_nvidia_device_trains_on_the_cpu(machine):
    machine.fake("nvcc", NVCC)
    assert device(machine).stdout == "cpu\n"
    assert machine.calls("nvcc") == []


def test_other_vendors_and_other_nvidia_functions_are_no_gpu(machine):
    machine.pci_device(vendor="0x1002", address="0000:01:00.0")
    machine.pci_device(device_class="0x040300", address="0000:01:00.1")
    assert device(machine).stdout == "cpu\n"


def test_a_usable_device_is_chosen_and_described(machine, driver):
    machine.pci_device().fake("nvcc", NVCC)
    done = device(machine, **driver)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cuda\n"
    assert "1 NVIDIA device(s), driver for CUDA 13.0, nvcc 13.0" in done.stderr


def test_eight_devices_are_named_by_the_first(machine, driver):
    for number in range(8):
        machine.pci_device(address=f"0000:{number + 1}b:00.0")
    assert "PCI device 0000:1b:00.0 is an NVIDIA GPU" in refusal(machine, **driver)


def test_a_device_without_nvcc_stops_and_names_where_it_was_looked_for(machine, driver):
    machine.pci_device(address="0000:3b:00.0")
    text = refusal(machine, **driver)
    assert "PCI device 0000:3b:00.0 is an NVIDIA GPU" in text
    assert "nvcc is not in PATH, in CUDA_HOME (unset) or in /usr/local/cuda*" in text
    assert "make run DEVICE=cpu" in text


def test_a_broken_nvcc_stops(machine, driver):
    machine.pci_device().fake("nvcc", "exit 1")
    assert "names no release" in refusal(machine, **driver)


@pytest.mark.skipif(
    subprocess.run(
        ["/usr/bin/python3", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"],
        stderr=subprocess.DEVNULL,
        check=False,
    ).returncode
    == 0,
    reason="this machine has a driver library",
)
def test_a_device_without_a_driver_library_stops(machine):
    machine.pci_device().fake("nvcc", NVCC)
    text = refusal(machine)
    assert "libcuda.so.1 cannot be loaded" in text
    assert "fix: see what nvidia-smi says" in text


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain"])
def test_a_driver_or_context_that_fails_stops_with_its_word(machine, driver, function):
    machine.pci_device().fake("nvcc", NVCC)
    text = refusal(machine, FAKE_CUDA_FAILS=function, **driver)
    assert f"{function} returned 999 (a fault made for the test)" in text
    assert "make run DEVICE=cpu" in text


def test_a_driver_that_shows_no_device_stops(machine, driver):
    machine.pci_device().fake("nvcc", NVCC)
    assert "the driver shows 0 devices" in refusal(machine, FAKE_CUDA_DEVICES="0", **driver)


def test_a_toolkit_newer_than_the_driver_stops_with_both_versions(machine, driver):
    machine.pci_device().fake("nvcc", NVCC)
    text = refusal(machine, FAKE_CUDA_DRIVER="12020", **driver)
    assert "the driver supports CUDA 12.2, the toolkit's nvcc is CUDA 13.0" in text


def test_a_newer_toolkit_of_the_same_major_version_is_fine(machine, driver):
    machine.pci_device().fake("nvcc", NVCC)
    done = device(machine, FAKE_CUDA_DRIVER="12020", FAKE_NVCC_RELEASE="12.8", **driver)
    assert done.stdout == "cuda\n", done.stderr


def test_the_cpu_can_be_asked_for_beside_a_broken_device(machine):
    machine.pci_device()
    assert device(machine, "cpu").stdout == "cpu\n"


def test_cuda_without_a_device_is_refused(machine):
    assert "the PCI bus shows no NVIDIA device" in refusal(machine, "cuda")


def test_an_unknown_device_is_refused_with_the_choices(machine):
    assert "DEVICE=gpu is not one of auto, cpu, cuda" in refusal(machine, "gpu")


def nvcc_path(machine, **env):
    return machine.run("tools/setup.sh", "nvcc", **env).stdout.strip()


def test_nvcc_is_found_in_path_then_cuda_home_then_the_newest_usr_local(machine):
    local = machine.root / "usr/local"
    home = machine.folder / "opt/cuda"
    for folder in (local / "cuda-9.2", local / "cuda-12.8", home):
        machine.fake("nvcc", NVCC, folder / "bin")
    assert nvcc_path(machine) == str(local / "cuda-12.8/bin/nvcc")
    machine.fake("nvcc", NVCC, local / "cuda/bin")
    assert nvcc_path(machine) == str(local / "cuda/bin/nvcc")
    assert nvcc_path(machine, CUDA_HOME=str(home)) == str(home / "bin/nvcc")
    machine.fake("nvcc", NVCC)
    assert nvcc_path(machine, CUDA_HOME=str(home)) == str(machine.bin / "nvcc")


def test_nvcc_fails_silently_where_there_is_none(machine):
    done = machine.run("tools/setup.sh", "nvcc", CUDA_HOME="/nowhere")
    assert done.returncode == 1
    assert done.stdout == ""
