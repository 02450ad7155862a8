#!/usr/bin/env bash
# Prepares a machine. Each command does only what is still to do and is quick when nothing is.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/setup" && pwd)"
# shellcheck source=tools/setup/common.sh
source "$here/common.sh"
# shellcheck source=tools/setup/packages.sh
source "$here/packages.sh"
# shellcheck source=tools/setup/device.sh
source "$here/device.sh"
# shellcheck source=tools/setup/venv.sh
source "$here/venv.sh"

usage() {
    cat <<'TEXT'
usage: tools/setup.sh COMMAND
  packages build|ci      install the system packages that are missing (apt or dnf)
  venv run|test|cudnn    make .venv and install tools/requirements*.txt
  device auto|cpu|cuda   print the device to train on, or stop with the reason
  nvcc                   print the path of nvcc; fails where there is none
TEXT
}

case "${1:-}" in
    packages) ensure_packages "${2:-build}" ;;
    venv) ensure_venv "${2:-run}" ;;
    device) choose_device "${2:-auto}" ;;
    nvcc) find_nvcc ;;
    help | --help | -h) usage ;;
    *)
        usage >&2
        die "unknown command '${1:-}'" "use one of the commands above"
        ;;
esac
