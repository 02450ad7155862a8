# shellcheck shell=bash
# The local .venv: made from the system's python, filled from tools/requirements*.txt.

# A venv whose interpreter is gone (system upgrade, moved folder) is made anew.
ensure_interpreter() {
    if "$REPO/.venv/bin/python" -c pass >/dev/null 2>&1; then return 0; fi
    local python
    python="$(system_python)" || die \
        "there is no python $MIN_PYTHON or newer in /usr/bin" \
        "install python3 (Debian) or python3.11 (RHEL), or name one with INGOT_PYTHON=PATH"
    rm -rf "$REPO/.venv"
    "$python" -m venv "$REPO/.venv" || die \
        "$python cannot make a virtual environment in $REPO/.venv" \
        "install the package python3-venv (Debian) or python3.11 (RHEL)"
    say "  made .venv with $("$REPO/.venv/bin/python" -V)"
}

# install_requirements FILE [PIP_OPTION...]: asks pip only when a list or the interpreter changed since last time.
# (All lists count: they include each other.)
install_requirements() {
    local file="$1" stamp state
    shift
    stamp="$REPO/.venv/installed-$(basename "$file" .txt)"
    state="$(hash_of "$(cat "$REPO"/tools/requirements*.txt)" "$("$REPO/.venv/bin/python" -V)")"
    if [ -r "$stamp" ] && [ "$(<"$stamp")" = "$state" ]; then return 0; fi
    "$REPO/.venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "$@" -r "$file" </dev/null || die \
        "pip could not install ${file#"$REPO"/} into .venv" \
        "check the network and pip's index settings, and run this again"
    echo "$state" >"$stamp"
    say "  installed ${file#"$REPO"/}"
}

# ensure_venv run|test|cudnn: the tests need the run's packages and some more; cudnn is what
# model.attention=cudnn is built from. (--no-deps: its headers alone are used.)
ensure_venv() {
    ensure_interpreter
    if [ "$1" = cudnn ]; then
        install_requirements "$REPO/tools/requirements-cudnn.txt" --no-deps
        return 0
    fi
    install_requirements "$REPO/tools/requirements.txt"
    if [ "$1" = test ]; then install_requirements "$REPO/tools/requirements-test.txt"; fi
}
