# shellcheck shell=bash
# Which device `make run` trains on. The PCI bus decides: a machine that has an NVIDIA device and
# cannot use it is an error to be mended, not a reason to train on the CPU in silence.

# PCI addresses of NVIDIA display or 3D controllers (vendor 0x10de, class 0x03xxxx), one a line.
nvidia_pci_devices() {
    local dir
    for dir in "$SYSTEM_ROOT"/sys/bus/pci/devices/*/; do
        if grep -qsx 0x10de "$dir/vendor" && grep -qs '^0x03' "$dir/class"; then
            basename "$dir"
        fi
    done
}

# nvcc from PATH, CUDA_HOME, or the newest /usr/local/cuda*; fails where there is none.
find_nvcc() {
    local candidate
    if have nvcc; then
        command -v nvcc
        return 0
    fi
    for candidate in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$SYSTEM_ROOT/usr/local/cuda/bin/nvcc"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            echo "$candidate"
            return 0
        fi
    done
    candidate="$(find "$SYSTEM_ROOT/usr/local" -maxdepth 3 -path '*/cuda-*/bin/nvcc' 2>/dev/null |
        sort -V | tail -n 1)"
    [ -n "$candidate" ] && echo "$candidate"
}

nvcc_release() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p'; }

# require_working_cuda PCI_ADDRESS: nvcc, the driver and a context, in the order they are needed.
require_working_cuda() {
    local pci="$1" nvcc release report
    local or_cpu="or train on the CPU with: make run DEVICE=cpu"
    nvcc="$(find_nvcc)" || die \
        "PCI device $pci is an NVIDIA GPU, but nvcc is not in PATH, in CUDA_HOME (${CUDA_HOME:-unset}) or in /usr/local/cuda*" \
        "install the CUDA toolkit or set CUDA_HOME; $or_cpu"
    release="$(nvcc_release "$nvcc" || true)"
    [ -n "$release" ] || die "$nvcc does not run: '$nvcc --version' names no release" \
        "repair the CUDA toolkit; $or_cpu"
    if ! report="$("$(system_python || echo python3)" "$REPO/tools/setup/cuda_probe.py" --toolkit "$release" 2>&1)"; then
        die "PCI device $pci is an NVIDIA GPU, but it cannot be used: $report" \
            "see what nvidia-smi says and repair or reload the driver; $or_cpu"
    fi
    say "$report, nvcc $release ($nvcc)" >&2
}

# choose_device auto|cpu|cuda: prints cpu or cuda, or stops with the reason.
choose_device() {
    local wanted="$1" pci devices
    mapfile -t devices < <(nvidia_pci_devices)
    pci="${devices[0]-}"
    case "$wanted" in
        cpu) echo cpu ;;
        auto | cuda)
            if [ -n "$pci" ]; then
                require_working_cuda "$pci"
                echo cuda
            elif [ "$wanted" = cuda ]; then
                die "DEVICE=cuda, but the PCI bus shows no NVIDIA device" "use DEVICE=auto or DEVICE=cpu"
            else
                echo cpu
            fi
            ;;
        *) die "DEVICE=$wanted is not one of auto, cpu, cuda" "use DEVICE=auto" ;;
    esac
}
