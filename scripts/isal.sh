#!/usr/bin/env bash
# Builds ISA-L, which `strake bench run G9` compares with, into build/isal. Nothing of Strake links to it.
#
# Usage: scripts/isal.sh [SOURCE]     SOURCE is a git repository of ISA-L [default: the project's own]
#
# Debian's libisal2 works too and is years older: without the kernels that newer CPUs are fast with.
set -euo pipefail
cd "$(dirname "$0")/.."

source=${1:-https://github.com/intel/isa-l.git}
version=v2.32.1
library=build/isal/lib/libisal.so.2

if [[ ! -e $library ]]; then
    missing=()
    for pair in git:git cmake:cmake nasm:nasm cc:gcc make:make; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair##*:}")
    done
    if [[ ${#missing[@]} -gt 0 ]]; then
        printf 'isal: installing %s: they build ISA-L\n' "${missing[*]}"
        [[ $(id -u) -eq 0 ]] || { printf 'isal: not root: run  sudo apt-get install %s\n' "${missing[*]}" >&2; exit 1; }
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    git clone -q "$source" "$work/source"
    git -C "$work/source" checkout -q "$version"
    cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
        -DISAL_BUILD_TESTS=OFF -DISAL_BUILD_PERF_TESTS=OFF >"$work/log" 2>&1 &&
        cmake --build "$work/build" -j2 >>"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    mkdir -p build/isal/lib
    cp -P "$work"/build/libisal.so* build/isal/lib/
fi
printf 'isal: %s %s is here; use it with  STRAKE_ISAL=%s/%s\n' ISA-L "$version" "$PWD" "$library"
