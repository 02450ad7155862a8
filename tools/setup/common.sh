# shellcheck shell=bash
# Shared by the setup scripts: where things are, and how they speak to the user.
#
# INGOT_SETUP_ROOT is put in front of the system paths that are inspected (/sys, /etc, /usr/local),
# so that tests can describe a machine that is not this one.

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
SYSTEM_ROOT="${INGOT_SETUP_ROOT:-}"
MIN_PYTHON=3.11
export REPO SYSTEM_ROOT MIN_PYTHON

say() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }

# die MESSAGE [FIX]: what is wrong with its value, then what to do about it.
die() {
    printf 'error: %s\n' "$1" >&2
    if [ "$#" -gt 1 ]; then printf '  fix: %s\n' "$2" >&2; fi
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# version_at_least HAVE WANT: compares dotted versions.
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# hash_of TEXT...: a short name for the state that a stamp file stands for.
hash_of() { printf '%s\n' "$@" | sha256sum | cut -c 1-16; }

# The python to make .venv from: INGOT_PYTHON, or the first of the system's that is new enough. It is
# never one of a version manager: apt and dnf look after the system's own. RHEL 9 has 3.9 as python3
# and newer ones beside it. Fails where there is none.
system_python() {
    local candidate
    for candidate in "${INGOT_PYTHON:-}" "$SYSTEM_ROOT"/usr/bin/python3{,.11,.12,.13,.14}; do
        [ -x "$candidate" ] || continue
        if "$candidate" -c "import sys; sys.exit(sys.version_info < (${MIN_PYTHON/./, }))" 2>/dev/null
        then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}
