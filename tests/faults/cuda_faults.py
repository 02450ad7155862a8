"""Faults in CUDA code, tried on two machines: one compiles, the other has a GPU.

stage() needs nvcc, but no GPU. For each fault it compiles the objects that the changed file is part
of, and packs them with the objects of the library without faults and the test programs. The
faulty file lies in a folder of its own that comes first on the include path, so neither the tree
nor the build folder changes.

run() needs a GPU, g++ and the CUDA libraries, but no nvcc and no header. It links the library once
a fault, runs the one test file that has to notice, and says which test case did.
"""

import concurrent.futures
import json
import lzma
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MANIFEST = "manifest.json"
TEST_SECONDS = 120  # a fault may make a loop, or a kernel, endless
LARGE_TESTS = ("test_large_batches", "test_large_tensors")
LARGE_JOBS = 2  # each takes up to 37 GB of GPU memory
PASSED = "NOT NOTICED"
OUT_OF_MEMORY = " bytes on the GPU, but "  # in the error of an allocation: says nothing of the fault
# Objects of one file with different faults are nearly equal: a dictionary that spans several.
XZ_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]


def is_cuda(fault):
    return fault["file"].endswith((".cu", ".cuh"))


# ------------------------------------------------------------------------------ where nvcc is


def object_commands(build):
    """{source relative to ROOT: (object, compile command)} of the library's CUDA files."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        output = arguments[arguments.index("-o") + 1]
        if entry["file"].endswith(".cu") and output.startswith("CMakeFiles/ingot.dir/"):
            source = str(pathlib.Path(entry["file"]).relative_to(ROOT))
            commands[source] = (output, arguments)
    return commands


def included_by(deps_text):
    """{object: headers and sources of this tree it was made from}, from `ninja -t deps`."""
    files, current = {}, None
    for line in deps_text.splitlines():
        if line and not line.startswith(" "):
            current = files.setdefault(line.split(": #deps")[0], set())
        elif line.strip() and current is not None:
            current.add(line.strip())
    return files


def objects_of(fault, commands, dependencies, build):
    """Sources whose objects a fault changes; `objects` of the fault narrows them."""
    changed = ROOT / fault["file"]
    found = []
    for source, (output, _) in commands.items():
        used = {(build / name).resolve() for name in dependencies.get(output, ())}
        if changed in used and source in fault.get("objects", [source]):
            found.append(source)
    return sorted(found)


def faulty_command(arguments, source, overlay, output):
    """The compile command with the overlay first among the include folders. Line numbers are left
    out and device code is not compressed: what differs little then packs well."""
    result = []
    skip = False
    for argument in arguments:
        if skip or argument in ("-lineinfo", "-MD"):
            skip = False
        elif argument in ("-MT", "-MF", "-o"):
            skip = True
        elif argument == str(ROOT / source) and (overlay / source).exists():
            result.append(str(overlay / source))
        else:
            result.append(argument)
    compiler = next(i for i, a in enumerate(result) if a.endswith("nvcc"))
    result[compiler + 1 : compiler + 1] = [f"-I{overlay}", "--no-compress"]
    return [*result, "-o", str(output)]


def needed_libraries(library):
    text = subprocess.run(
        ["readelf", "-d", str(library)], check=True, capture_output=True, text=True
    ).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def compile_fault(fault, text, commands, dependencies, build, folder):
    """Compiles the objects of one fault into folder/ID; returns {base object: faulty object}."""
    sources = objects_of(fault, commands, dependencies, build)
    if not sources:
        sys.exit(f"fault {fault['id']}: no object of the library is made from {fault['file']}")
    with tempfile.TemporaryDirectory() as scratch:
        overlay = pathlib.Path(scratch)
        (overlay / fault["file"]).parent.mkdir(parents=True)
        (overlay / fault["file"]).write_text(text)
        changed = {}
        for source in sources:
            base, arguments = commands[source]
            output = folder / fault["id"] / flat_name(base)
            output.parent.mkdir(parents=True, exist_ok=True)
            command = faulty_command(arguments, source, overlay, output)
            done = subprocess.run(command, cwd=build, capture_output=True, text=True)
            if done.returncode != 0:
                error = re.search(r"error.*", done.stdout + done.stderr)
                reason = error.group(0) if error else (done.stdout + done.stderr)[-500:]
                sys.exit(f"fault {fault['id']} does not compile: {reason}")
            changed[flat_name(base)] = str(output.relative_to(folder))
    return changed


def flat_name(output):
    return output.removeprefix("CMakeFiles/ingot.dir/").replace("/", "_")


def stage_base(build, targets, folder):
    """Copies the objects of the library and the stripped test programs; returns the object names."""
    names = []
    for path in sorted((build / "CMakeFiles/ingot.dir").rglob("*.o")):
        name = flat_name(str(path.relative_to(build)))
        shutil.copy(path, folder / "base" / name)
        names.append(name)
    for target in targets:
        subprocess.run(["strip", "-o", str(folder / target), str(build / target)], check=True)
    return names


def pack(folder, archive, manifest):
    """Faulty objects lie sorted by object, so that similar ones are neighbours."""
    files = sorted(
        (path for path in folder.rglob("*") if path.is_file()),
        key=lambda path: (path.name, str(path)),
    )
    (folder / MANIFEST).write_text(json.dumps(manifest))
    archive.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(archive, "wb", filters=XZ_FILTERS) as stream:
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for path in [folder / MANIFEST, *files]:
                tar.add(path, arcname=str(path.relative_to(folder)))


def stage(faults, apply_fault, archive, build):
    """Makes the archive. `faults` are those of CUDA files."""
    targets = sorted({fault["target"] for fault in faults})
    subprocess.run(["cmake", "--build", str(build), "--target", "ingot", *targets], check=True)
    commands = object_commands(build)
    dependencies = included_by(
        subprocess.run(
            ["ninja", "-C", str(build), "-t", "deps"], check=True, capture_output=True, text=True
        ).stdout
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "base").mkdir()
        entries = []
        for number, fault in enumerate(faults, 1):
            began = time.monotonic()
            text = apply_fault((ROOT / fault["file"]).read_text(), fault)
            changed = compile_fault(fault, text, commands, dependencies, build, folder)
            entries.append(
                {key: fault[key] for key in ("id", "what", "file", "target", "test")}
                | {"case": fault.get("case", "*"), "objects": changed}
            )
            print(
                f"{number:3}/{len(faults)} {fault['id']:32} {time.monotonic() - began:5.1f} s  "
                f"{' '.join(changed)}",
                flush=True,
            )
        manifest = {
            "base": stage_base(build, targets, folder),
            "libraries": needed_libraries(build / "libingot.so"),
            "faults": entries,
        }
        pack(folder, archive, manifest)
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB, {len(entries)} faults")


# ------------------------------------------------------------------------------ where the GPU is


def cuda_library_folders():
    """Where libcudart and libcublasLt may lie, beside what the linker searches by itself."""
    loader = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    roots = [os.environ["CUDA_HOME"]] if "CUDA_HOME" in os.environ else []
    roots += ["/usr/local/cuda", *map(str, sorted(pathlib.Path("/usr/local").glob("cuda-*")))]
    folders = (pathlib.Path(root) / lib for root in roots for lib in ("lib64", "lib"))
    return [*loader, *(str(folder) for folder in folders if folder.is_dir())]


def link(folder, manifest, changed, output):
    """Links libingot.so with some objects changed. The text of a failed link, or None."""
    objects = [changed.get(name, f"base/{name}") for name in manifest["base"]]
    command = ["g++", "-shared", "-Wl,-soname,libingot.so", "-o", str(output), *objects]
    for path in cuda_library_folders():
        command += [f"-L{path}", f"-Wl,-rpath,{path}"]
    # Exact names: a machine that only runs programs lacks the links without a version.
    command += [f"-l:{name}" for name in manifest["libraries"] if not name.startswith("ld-linux")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout + done.stderr


def verdict(returncode, output):
    """(did the tests fail, the first test case that did). A program that did not come as far as a
    test case has noticed nothing."""
    if returncode == 0:
        return False, PASSED
    case = re.search(r"TEST CASE: +(.+)", output)
    if case is None or OUT_OF_MEMORY in output:
        return False, f"DID NOT RUN: status {returncode}: {output.strip()[-200:]}"
    return True, case.group(1).strip()


def run_test(binary, test, case, environment, seconds):
    command = [str(binary), f"--source-file=*{test}.cpp", f"--test-case={case}", "--abort-after=1"]
    # The library beside the program, whatever else the loader would find first; then those of CUDA,
    # in the order in which that library looks for them.
    search = ":".join([str(binary.parent), *cuda_library_folders()])
    try:
        done = subprocess.run(
            command,
            cwd=binary.parent,
            env=os.environ | environment | {"LD_LIBRARY_PATH": search},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return True, f"(no end within {seconds:.0f} s)"
    return verdict(done.returncode, done.stdout)


def try_fault(folder, manifest, fault, environment, seconds):
    place = folder / "run" / fault["id"]
    place.mkdir(parents=True)
    problem = link(folder, manifest, fault["objects"], place / "libingot.so")
    if problem is not None:
        return False, f"DOES NOT LINK: {problem.strip()[-300:]}"
    # The program finds the library beside itself.
    os.link(folder / fault["target"], place / fault["target"])
    try:
        return run_test(
            place / fault["target"], fault["test"], fault["case"], environment, seconds
        )
    finally:
        shutil.rmtree(place)


def run_all(folder, manifest, faults, environment, jobs, limit, must_pass=False):
    """Results in the order of `faults`; tests of large tensors after the others. limit(fault) is
    what its test may take, in seconds."""
    results = {}

    def one(fault):
        began = time.monotonic()
        noticed, by = try_fault(folder, manifest, fault, environment, limit(fault))
        results[fault["id"]] = {
            "id": fault["id"],
            "noticed": noticed,
            "by": by,
            "seconds": round(time.monotonic() - began, 1),
        }
        good = by == PASSED if must_pass else noticed
        print(
            f"{'ok  ' if good else 'FAIL'} {fault['id']:32} {time.monotonic() - began:5.1f} s  "
            f"{'' if good and must_pass else by}",
            flush=True,
        )

    large = [fault for fault in faults if fault["test"] in LARGE_TESTS]
    others = [fault for fault in faults if fault["test"] not in LARGE_TESTS]
    for group, workers in ((others, jobs), (large, min(jobs, LARGE_JOBS))):
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(one, group))
    return [results[fault["id"]] for fault in faults]


def broken(results):
    return [result["id"] for result in results if result["by"] != PASSED]


def run(archive, only, json_path, jobs, seconds, cpu_half):
    """Tries the faults of an archive; what went wrong, or None. With cpu_half, which needs no GPU, each library must link and
    pass: the faults are in CUDA code, so nothing but the way there is tried."""
    environment = {"INGOT_SOURCE_DIR": str(ROOT), "OMP_NUM_THREADS": "2"}
    environment |= {} if cpu_half else {"INGOT_REQUIRE_CUDA": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        with lzma.open(archive) as stream, tarfile.open(fileobj=stream) as tar:
            tar.extractall(folder)
        manifest = json.loads((folder / MANIFEST).read_text())
        faults = [f for f in manifest["faults"] if not only or f["id"] in only]
        # Without a fault every test must pass, else a failure says nothing.
        tests = sorted({(f["target"], f["test"], f["case"]) for f in faults})
        clean = [
            {"id": f"none-{number}-{test}", "target": target, "test": test, "case": case,
             "objects": {}}
            for number, (target, test, case) in enumerate(tests)
        ]
        passes = run_all(folder, manifest, clean, environment, jobs, lambda _: 600, must_pass=True)
        failing = broken(passes)
        if failing:
            return f"without any fault fail: {', '.join(failing)}"
        # A test that passes must not be taken for one that hangs.
        taken = {test: result["seconds"] for test, result in zip(tests, passes)}
        results = run_all(
            folder, manifest, faults, environment, jobs,
            lambda f: seconds + 2 * taken[f["target"], f["test"], f["case"]], must_pass=cpu_half)
    if cpu_half:
        failing = broken(results)
        print(f"{len(results) - len(failing)} of {len(results)} libraries link and pass")
        return f"do not link or do not pass: {', '.join(failing)}" if failing else None
    if json_path is not None:
        json_path.write_text(json.dumps({"faults": results}, indent=1) + "\n")
    missed = [r["id"] for r in results if not r["noticed"]]
    print(f"{len(results) - len(missed)} of {len(results)} CUDA faults were noticed")
    return f"not noticed: {', '.join(missed)}" if missed else None
