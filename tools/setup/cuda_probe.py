"""Asks the NVIDIA driver for a context on the first device; says what fails and exits with 1.

Uses the driver library alone, so it answers before anything is compiled.
"""

import argparse
import ctypes
import sys


def call(driver, name, *arguments):
    """Calls a driver function; stops with its name and the driver's word for the error."""
    code = getattr(driver, name)(*arguments)
    if code == 0:
        return
    text = ctypes.c_char_p()
    try:
        driver.cuGetErrorString(code, ctypes.byref(text))
    except AttributeError:
        pass
    reason = text.value.decode() if text.value else "no description"
    sys.exit(f"{name} returned {code} ({reason})")


def probe(toolkit):
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        sys.exit(f"the driver's library libcuda.so.1 cannot be loaded ({error})")
    call(driver, "cuInit", 0)
    version, count = ctypes.c_int(), ctypes.c_int()
    call(driver, "cuDriverGetVersion", ctypes.byref(version))
    supported = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if toolkit and int(toolkit.split(".")[0]) > version.value // 1000:
        sys.exit(f"the driver supports CUDA {supported}, the toolkit's nvcc is CUDA {toolkit}")
    call(driver, "cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        sys.exit("the driver shows 0 devices (is CUDA_VISIBLE_DEVICES set to nothing?)")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call(driver, "cuDeviceGet", ctypes.byref(device), 0)
    call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    print(f"{count.value} NVIDIA device(s), driver for CUDA {supported}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toolkit", default="", help="release of nvcc, such as 13.0")
    probe(parser.parse_args().toolkit)
