"""The GPU and the versions a result was measured with."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

QUERY = "pci.bus_id,name,uuid,driver_version,memory.total,power.limit,clocks.max.sm"
# Loaded by name when somebody asks for cuDNN; the second is what it compiles kernels with.
LOADED_LATER = ("libcudnn.so.9", "libnvrtc.so.13")
TORCH_VERSIONS = """
import json, torch
print(json.dumps({"torch": torch.__version__, "torch_cuda": torch.version.cuda,
                  "torch_cudnn": torch.backends.cudnn.version()}))
"""


def bus_numbers(bus_id: str) -> tuple[int, ...]:
    """"00000000:3B:00.0" and "0000:3b:00.0" are one slot. () for what is no PCI bus id."""
    if not re.fullmatch(r"[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+\.[0-9a-fA-F]+", bus_id):
        return ()
    return tuple(int(number, 16) for number in re.split("[:.]", bus_id))


def used_bus_id(bench_kernels: str, environment: dict[str, str]) -> str:
    """Of the GPU that our programs use, which CUDA_VISIBLE_DEVICES may choose: they say so."""
    command = [bench_kernels, "--device=cuda", "--describe"]
    try:
        done = subprocess.run(command, capture_output=True, text=True,
                              env={**os.environ, **environment})
    except OSError as error:
        raise ValueError(f"{bench_kernels} cannot be started ({error}): it is asked which GPU is "
                         "used") from error
    bus_id = done.stdout.strip().rpartition(", ")[2]
    if done.returncode != 0 or not bus_numbers(bus_id):
        said = (done.stdout + done.stderr).strip() or "(it printed nothing)"
        raise ValueError(f"{bench_kernels} --describe ended with status {done.returncode} and named "
                         f"no PCI bus id: {said}")
    return bus_id


def gpu(bench_kernels: str, environment: dict[str, str]) -> dict[str, str]:
    """Name, UUID, driver and limits, as nvidia-smi gives them, of the GPU that is used."""
    bus_id = used_bus_id(bench_kernels, environment)
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise ValueError(f"nvidia-smi cannot be started ({error}): a GPU and its driver are "
                         "needed") from error
    names = QUERY.split(",")
    for line in done.stdout.strip().splitlines() if done.returncode == 0 else []:
        # Only the name may hold commas.
        slot, _, rest = line.partition(",")
        fields = [slot.strip(), *(field.strip() for field in rest.rsplit(",", len(names) - 2))]
        if len(fields) == len(names) and bus_numbers(slot.strip()) == bus_numbers(bus_id):
            return dict(zip(names, fields))
    said = (done.stdout + done.stderr).strip() or "(it printed nothing)"
    raise ValueError(f"nvidia-smi ended with status {done.returncode} and named no GPU in slot "
                     f"{bus_id}, which our programs use: {said}")


def loaded_libraries(library: Path, environment: dict[str, str]) -> dict[str, str]:
    """{"libcublasLt.so.13": "/path" or "" when it is not found}, as the loader sees it."""
    done = subprocess.run(["ldd", str(library)], capture_output=True, text=True,
                          env={**os.environ, **environment})
    pairs = re.findall(r"^\s*(\S+) => (?:(not found)|(\S+))", done.stdout, re.M)
    return {name: path for name, _, path in pairs}


def folder_of(name: str) -> Path | None:
    """Where a library lies that the loader does not find: CUDA's own folder before those of Python
    packages."""
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    candidates = [Path("/usr/local/cuda/lib64"), *sorted(packages.glob("*/lib"))]
    return next((folder for folder in candidates if (folder / name).exists()), None)


def is_loadable(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def library_environment(library: Path) -> dict[str, str]:
    """What makes every library of the engine loadable: nothing, or the folders of those missing."""
    folders = []
    for name, path in loaded_libraries(library, {}).items():
        if path:
            continue
        folder = folder_of(name)
        if folder is None:
            raise FileNotFoundError(f"{library} needs {name}, which is neither where the loader "
                                    "looks nor among the libraries of CUDA and Python's packages")
        folders.append(str(folder))
    for name in LOADED_LATER:
        if not is_loadable(name) and (folder := folder_of(name)):
            folders.append(str(folder))
    if not folders:
        return {}
    known = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
    return {"LD_LIBRARY_PATH": ":".join(dict.fromkeys(folders + known))}


def cublas_version(path: str) -> str:
    try:
        version = ctypes.CDLL(path).cublasLtGetVersion
    except (OSError, AttributeError) as error:
        return f"unknown ({error})"
    version.restype = ctypes.c_size_t
    number = version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def runtime_version(path: str) -> str:
    number = ctypes.c_int(0)
    try:
        ctypes.CDLL(path).cudaRuntimeGetVersion(ctypes.byref(number))
    except (OSError, AttributeError) as error:
        return f"unknown ({error})"
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def versions(library: Path, environment: dict[str, str], python: str) -> dict[str, Any]:
    libraries = loaded_libraries(library, environment)
    found: dict[str, Any] = {"os": platform.platform(), "libraries": {
        name: path for name, path in libraries.items() if "cu" in name or "nv" in name}}
    for name, path in libraries.items():
        if name.startswith("libcublasLt") and path:
            found["cublasLt"] = cublas_version(path)
        if name.startswith("libcudart") and path:
            found["cuda_runtime"] = runtime_version(path)
    done = subprocess.run([python, "-c", TORCH_VERSIONS], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    found.update(json.loads(lines[-1]) if done.returncode == 0 and lines else {"torch": "none"})
    return found
