#!/usr/bin/env bash
# usage: tools/gpu_pack.sh [--faults] OUT_DIR
#
# Makes OUT_DIR: everything that tools/gpu_check.sh needs on a machine with a GPU and neither network
# nor compiler. Needs nvcc, but no GPU. --faults also compiles the faults in CUDA code, which takes many
# times as long. Settings: INGOT_PACK_ARCHITECTURES (90a-real), JOBS.
#
#   OUT_DIR/             the tracked files of this tree, and datasets/ with the demo's shards
#   OUT_DIR/bin/         the library, the programs and the tests, stripped, without OpenBLAS
#   OUT_DIR/bin-ptx80-N/ libingot.so with compute_80 PTX alone, at most N bytes of shared memory
#   OUT_DIR/cuda_faults.tar.xz  with --faults
#   OUT_DIR/PACK.json    the commit, what differed from it, the hash of every part's sources
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=tools/setup/common.sh
source "$here/setup/common.sh"
# shellcheck source=tools/setup/corpus.sh
source "$here/setup/corpus.sh"
# shellcheck source=tools/setup/device.sh
source "$here/setup/device.sh"

PROGRAMS=(train_gpt golden_check export_hf bench_kernels tests_core tests_kernels tests_model tests_train)
# What sm_80 and sm_86/sm_89 let a block use.
SHARED_MEMORY_LIMITS=(166912 101376)
LIMIT_MIB=64

# build FOLDER ARCHITECTURES SHARED_MEMORY_LIMIT TARGET...
build() {
    local folder="build/gpu/$1" architectures="$2" limit="$3"
    shift 3
    cmake --preset cuda -B "$folder" "-DINGOT_NVCC=$(find_nvcc)" -DINGOT_OPENBLAS=OFF -DINGOT_CUDNN=ON \
        "-DINGOT_CUDA_ARCHITECTURES=$architectures" "-DINGOT_SHARED_MEMORY_LIMIT=$limit" >/dev/null
    cmake --build "$folder" --parallel "${JOBS:-$(nproc)}" --target "$@"
}

# stage FOLDER OUT FILE...: stripped copies.
stage() {
    local from="build/gpu/$1" out="$2" file
    shift 2
    mkdir -p "$out"
    for file in "$@"; do strip -o "$out/$file" "$from/$file"; done
}

copy_tree() {
    git ls-files -z | while IFS= read -r -d '' file; do
        if [ -f "$file" ]; then printf '%s\0' "$file"; fi
    done | tar --null --files-from=- -cf - | tar -C "$1" -xf -
}

copy_corpus() {
    mkdir -p "$1/$CORPUS"
    cp -r "$CORPUS/shards" "$1/$CORPUS/"
}

report_size() {
    local mib
    (cd "$1" && du -h --max-depth=1 . | sort -h && ls -lh bin bin-*)
    mib="$(du -sm --apparent-size "$1" | cut -f 1)"
    say "$1: $mib MiB of $LIMIT_MIB"
    [ "$mib" -lt "$LIMIT_MIB" ] ||
        die "$1 holds $mib MiB, must be below $LIMIT_MIB" "name fewer INGOT_PACK_ARCHITECTURES"
}

main() {
    local out limit faults=no
    if [ "${1:-}" = --faults ]; then
        faults=yes
        shift
    fi
    [ "$#" -eq 1 ] || die "tools/gpu_pack.sh needs one argument, the folder to make" "name one"
    out="$(realpath -m "$1")"
    cd "$REPO"
    if [ -e "$out" ] && [ ! -e "$out/PACK.json" ] && [ -n "$(ls -A "$out")" ]; then
        die "$out exists and is no earlier pack (it has no PACK.json)" "name another folder"
    fi
    find_nvcc >/dev/null || die "no nvcc on this machine" "install the CUDA toolkit or set CUDA_HOME"
    tools/setup.sh venv run
    tools/setup.sh venv cudnn
    prepare_corpus
    rm -rf "$out"
    mkdir -p "$out"
    build native "${INGOT_PACK_ARCHITECTURES:-90a-real}" 0 "${PROGRAMS[@]}"
    stage native "$out/bin" libingot.so libfake_nvml.so "${PROGRAMS[@]}"
    for limit in "${SHARED_MEMORY_LIMITS[@]}"; do
        build ptx80 80-virtual "$limit" ingot
        stage ptx80 "$out/bin-ptx80-$limit" libingot.so
    done
    if [ "$faults" = yes ]; then
        "$PYTHON" tests/faults/run_faults.py --stage "$out/cuda_faults.tar.xz" --build build/gpu/native
    fi
    copy_tree "$out"
    copy_corpus "$out"
    PYTHONPATH=tools "$PYTHON" -m gpu_check.pack "$out"
    report_size "$out"
}

main "$@"
