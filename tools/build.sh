#!/usr/bin/env bash
# usage: tools/build.sh PRESET|auto|best [--link] [TARGET...]
#
# Configures build/PRESET when that is still to do, and builds the targets (all of them by default).
#   auto   the preset for the device of this machine: cuda with a usable NVIDIA device, else cpu
#   best   everything the machine allows: cuda where nvcc is found, else cpu
#   --link makes the built programs callable from the repository root
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/setup" && pwd)"
# shellcheck source=tools/setup/common.sh
source "$here/common.sh"
# shellcheck source=tools/setup/device.sh
source "$here/device.sh"

PROGRAMS=(train_gpt golden_check export_hf bench_kernels)

resolve_preset() {
    local device
    case "$1" in
        auto)
            device="$(choose_device "${DEVICE:-auto}")"
            echo "$device"
            ;;
        best) if find_nvcc >/dev/null; then echo cuda; else echo cpu; fi ;;
        *) echo "$1" ;;
    esac
}

# Ninja configures again by itself when a CMake file changes; the stamp is for what it cannot see.
configure() {
    local preset="$1" arguments=() frontend openblas stamp state
    if [ "$preset" = cuda ]; then arguments+=("-DINGOT_NVCC=$(find_nvcc)"); fi
    # Found by CMake; their paths here make it look again.
    openblas="$("$SYSTEM_ROOT/sbin/ldconfig" -p 2>/dev/null | sed -n 's/.*openblas.* => //p' || true)"
    frontend="$(find "$REPO"/.venv/lib -path '*/include/cudnn_frontend.h' 2>/dev/null || true)"
    stamp="$REPO/build/$preset/configured-with"
    state="${arguments[*]-} $frontend $openblas"
    if [ -e "$REPO/build/$preset/build.ninja" ] && [ -r "$stamp" ] && [ "$(<"$stamp")" = "$state" ]; then
        return 0
    fi
    (cd "$REPO" && cmake --preset "$preset" "${arguments[@]}")
    echo "$state" >"$stamp"
}

link_programs() {
    local preset="$1" program built
    for program in "${PROGRAMS[@]}"; do
        built="build/$preset/$program"
        if [ -x "$REPO/$built" ]; then ln -sfn "$built" "$REPO/$program"; fi
    done
}

main() {
    local preset link=no targets=()
    [ "$#" -ge 1 ] || die "tools/build.sh needs a preset" "use auto, best, or a name from CMakePresets.json"
    preset="$(resolve_preset "$1")"
    shift
    if [ "${1:-}" = --link ]; then
        link=yes
        shift
    fi
    if [ "$#" -gt 0 ]; then targets=(--target "$@"); fi
    configure "$preset"
    cmake --build "$REPO/build/$preset" --parallel "${JOBS:-$(nproc)}" "${targets[@]}"
    if [ "$link" = yes ]; then link_programs "$preset"; fi
}

main "$@"
