#!/usr/bin/env bash
# Prony and its peers side by side on this machine, in one session: decode, prefill and embeddings.
#
#   scripts/bench_peers.sh [FOLDER]
#
# FOLDER (default target/peers) gets a virtual environment with Hugging Face transformers and
# llama-cpp-python (compiled for this processor: minutes), the files of other types that llama.cpp
# runs, and `lines.txt` with what every program printed. Prony runs before and after its peers, so
# that a machine that others use too shows as two different numbers. The table at the end has one
# line for each target: the ratio of the fastest tenths, and the ratio asked for.
# Needs `scripts/setup.sh` first, python3, a C++ compiler and about five minutes without company.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/peers}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
python=$folder/venv/bin/python
lines=$folder/lines.txt
threads=${PRONY_BENCH_THREADS:-2}
export PRONY_BENCH_THREADS=$threads

if ! "$python" -c 'import gguf, llama_cpp, torch, transformers' 2>/dev/null; then
  python3 -m venv "$folder/venv"
  "$python" -m pip install --quiet torch==2.11.0 transformers==5.24.0 accelerate==1.15.0 \
    gguf==0.19.0
  # GCC 12 drops the stores to the tile configuration of AMX as dead, and llama.cpp crashes.
  CMAKE_ARGS="-DGGML_NATIVE=ON -DCMAKE_CXX_FLAGS=-fno-tree-dse\ -fno-dse" \
    "$python" -m pip install --quiet llama-cpp-python==0.3.36
fi

if [ -z "${LIBTORCH:-}" ]; then
  export LIBTORCH=$PWD/.libtorch/torch
fi
cargo bench --quiet -p prony-models --benches --no-run

prony() {
  cargo bench --quiet -p prony-models --bench "$1" -- --quick '^$' | grep '/s$' | sed 's/^/prony /'
}

{
  prony decode_step
  "$python" scripts/bench_hf.py --threads "$threads"
  "$python" scripts/bench_llama.py --threads "$threads" --made "$folder"
  prony decode_step
  prony encode
  "$python" scripts/bench_hf_encode.py --threads "$threads"
  prony encode
} | tee "$lines"
"$python" scripts/bench_ratios.py "$lines"
