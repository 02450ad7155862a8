# shellcheck shell=bash
# System packages: what is missing, and how to install it with apt or dnf.
#
# What counts is whether a thing works, not which package it came from: a requirement is met when
# its probe succeeds, so a machine that has everything is never asked to touch the network.

# One requirement a line: set, probe, its argument, Debian package, RHEL 9 package.
requirements() {
    cat <<'TABLE'
build version g++=11               g++                    gcc-c++
build version cmake=3.21           cmake                  cmake
build command ninja                ninja-build            ninja-build
build command make                 make                   make
build command git                  git                    git
build header  doctest/doctest.h    doctest-dev            doctest-devel
build header  nlohmann/json.hpp    nlohmann-json3-dev     json-devel
build header  CLI/CLI.hpp          libcli11-dev           cli11-devel
build header  xxhash.h             libxxhash-dev          xxhash-devel
build header  cblas.h              libopenblas-openmp-dev openblas-devel
build library openblas             libopenblas-openmp-dev openblas-devel
build python  ensurepip            python3-venv           python3.11
ci    command g++-11               g++-11                 gcc-c++
ci    command clang-format-14      clang-format-14        clang-tools-extra
ci    command shellcheck           shellcheck             ShellCheck
TABLE
}

first_version_in() { grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1; }

probe_version() {
    local tool="${1%%=*}" minimum="${1##*=}" found
    have "$tool" || return 1
    found="$("$tool" --version 2>/dev/null | first_version_in)"
    [ -n "$found" ] && version_at_least "$found" "$minimum"
}

# Fedora and RHEL keep cblas.h in a folder of its own, which the build looks into too.
probe_header() {
    have g++ || return 1
    printf '#if !__has_include(<%s>)\n#error missing\n#endif\n' "$1" |
        g++ -std=c++20 -fsyntax-only -I/usr/include/openblas -x c++ - 2>/dev/null
}

# A library that the linker finds. OpenBLAS needs it beside its header: other packages, the reference
# BLAS among them, bring a cblas.h as well.
probe_library() {
    local program status=0
    have g++ || return 1
    program="$(mktemp)"
    echo 'int main() {}' | g++ -x c++ - -o "$program" "-l$1" 2>/dev/null || status=1
    rm -f "$program"
    return "$status"
}

probe_python() {
    local python
    python="$(system_python)" && "$python" -c "import venv, $1" >/dev/null 2>&1
}

probe() {
    case "$1" in
        command) have "$2" ;;
        version) probe_version "$2" ;;
        header) probe_header "$2" ;;
        library) probe_library "$2" ;;
        python) probe_python "$2" ;;
    esac
}

# missing_requirements SET: the table's lines whose probe fails. The set ci includes build.
missing_requirements() {
    local wanted="$1" set kind argument debian rhel
    while read -r set kind argument debian rhel; do
        if [ "$wanted" = build ] && [ "$set" != build ]; then continue; fi
        probe "$kind" "$argument" || printf '%s %s %s %s\n' "$kind" "$argument" "$debian" "$rhel"
    done < <(requirements)
}

os_release() {
    local file="$SYSTEM_ROOT/etc/os-release"
    if [ -r "$file" ]; then sed -n "s/^$1=//p" "$file" | tr -d '"' | head -n 1; fi
}

package_manager() {
    if have apt-get; then
        echo apt
    elif have dnf; then
        echo dnf
    else
        echo none
    fi
}

# RHEL 9 and its rebuilds keep half of what is needed in CodeReady Builder (CRB) and in EPEL.
dnf_repository_commands() {
    case "$(os_release ID)" in
        fedora) ;;
        rhel)
            echo "subscription-manager repos --enable codeready-builder-for-rhel-9-$(uname -m)-rpms"
            echo "dnf -y install https://dl.fedoraproject.org/pub/epel/epel-release-latest-9.noarch.rpm"
            ;;
        *)
            echo "dnf -y install dnf-plugins-core epel-release"
            echo "dnf config-manager --set-enabled crb"
            ;;
    esac
}

# install_commands MANAGER PACKAGE...: one command a line, the same whether they are run or printed.
install_commands() {
    local manager="$1"
    shift
    case "$manager" in
        apt)
            echo "apt-get update"
            echo "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $*"
            ;;
        dnf)
            dnf_repository_commands
            echo "dnf -y install $*"
            ;;
    esac
}

# How root's commands are started: prints nothing for root, sudo where it works, or fails.
root_prefix() {
    if [ "$(id -u)" = 0 ]; then return 0; fi
    have sudo || return 1
    if sudo -n true 2>/dev/null || [ -t 0 ]; then echo sudo; else return 1; fi
}

# The packages among those asked for that the package manager does not know.
unknown_packages() {
    local manager="$1" package
    shift
    for package in "$@"; do
        case "$manager" in
            apt) apt-get install --simulate "$package" >/dev/null 2>&1 || printf '%s ' "$package" ;;
            dnf) dnf -q list "$package" >/dev/null 2>&1 || printf '%s ' "$package" ;;
        esac
    done
}

run_install_commands() {
    local manager="$1" prefix="$2" line unknown
    shift 2
    while read -r line; do
        say "  + ${prefix:+$prefix }$line"
        # shellcheck disable=SC2086  # an empty prefix is no word
        if ! $prefix sh -c "$line" </dev/null; then
            # A third-party list that cannot be refreshed need not matter: the install decides.
            if [ "$line" = "apt-get update" ]; then
                warn "apt-get update failed; trying the lists that are there"
                continue
            fi
            unknown="$(unknown_packages "$manager" "$@")"
            die "installing system packages failed at: $line${unknown:+; not available here: $unknown}" \
                "enable the repository that has the package, or install it by hand, and run this again"
        fi
    done < <(install_commands "$manager" "$@")
}

check_installed() {
    local set="$1" kind argument debian rhel left=""
    while read -r kind argument debian rhel; do
        left+="  $kind ${argument/=/ at least } (Debian: $debian, RHEL: $rhel)"$'\n'
    done < <(missing_requirements "$set")
    [ -z "$left" ] || die "still missing after the installation:"$'\n'"${left%$'\n'}" \
        "install the named package in a version that has it, and run this again"
}

# ensure_packages SET: installs what is missing, or stops with the one command that would.
ensure_packages() {
    local set="$1" manager prefix column lines packages
    lines="$(missing_requirements "$set")"
    if [ -z "$lines" ]; then
        say "  all there"
        return 0
    fi
    manager="$(package_manager)"
    if [ "$manager" = dnf ]; then column=4; else column=3; fi
    packages="$(awk -v c="$column" '!seen[$c]++ { printf "%s%s", n++ ? " " : "", $c }' <<<"$lines")"
    if [ "$manager" = none ]; then
        die "neither apt-get nor dnf is on this machine; missing (by Debian's names): $packages" \
            "install what carries these names here, and run this again"
    fi
    if ! prefix="$(root_prefix)"; then
        # shellcheck disable=SC2086  # a list of words
        die "missing system packages: $packages; installing them needs root or sudo" \
            "as root: $(install_commands "$manager" $packages | paste -sd '#' | sed 's/#/ \&\& /g')"
    fi
    say "  missing: $packages"
    # shellcheck disable=SC2086  # a list of words
    run_install_commands "$manager" "$prefix" $packages
    hash -r
    check_installed "$set"
}
