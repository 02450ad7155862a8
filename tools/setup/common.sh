# shellcheck shell=bash
# Shared by the setup scripts: where things are, and how they speak to the user.
#
# INGOT_SETUP_ROOT is put in front of the system paths that are inspected (/sys, /etc, /usr/local),
# so that tests can describe a machine that is not this one.

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
SYSTEM_ROOT="${INGOT_SETUP_ROOT:-}"
# The system's own python: it is the one whose packages apt and dnf manage.
SYSTEM_PYTHON="${INGOT_PYTHON:-/usr/bin/python3}"
export REPO SYSTEM_ROOT SYSTEM_PYTHON

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
