#!/usr/bin/env python3
"""Decode and prefill speed of llama.cpp on the weights that Prony serves: the peer to beat.

Requantises SmolLM2-135M-Instruct's Q4_1 file to Q8_0, BF16 and F32 with llama.cpp's own tool, then
measures what `cargo bench -p prony-models --bench decode_step` measures: a prompt of 128 tokens
alone, and steps of 1, 4 and 16 sequences with 128 tokens of context each. Prints the fastest tenth
and the median of 60 steps, in tokens per second. The greedy choice is not timed. Run it between two
runs of the Rust bench:

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install llama-cpp-python==0.3.36
    cargo bench -p prony-models --bench decode_step
    /tmp/peers/bin/python scripts/bench_llama_cpp.py --threads 2
    cargo bench -p prony-models --bench decode_step
"""

import argparse
import ctypes
import os
import statistics
import tempfile
import time

import llama_cpp as llama

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_TYPES = {"Q8_0": 7, "BF16": 32, "F32": 0}
CONTEXT = 128
STEPS = 60


def requantised(source, kind, folder):
    if kind == "Q4_1":
        return source
    target = os.path.join(folder, f"{kind}.gguf")
    params = llama.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[kind]
    params.allow_requantize = True
    failed = llama.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params))
    assert failed == 0, f"llama.cpp cannot make {kind} of {source}"
    return target


class Engine:
    def __init__(self, path, threads, sequences):
        model_params = llama.llama_model_default_params()
        self.model = llama.llama_model_load_from_file(path.encode(), model_params)
        params = llama.llama_context_default_params()
        params.n_ctx = sequences * 256
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, params)
        assert self.context, "llama.cpp gives no context"
        self.memory = llama.llama_get_memory(self.context)
        self.sequences = sequences
        self.batch = llama.llama_batch_init(512, 0, 1)

    def close(self):
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.context)
        llama.llama_model_free(self.model)

    def run(self, rows):
        """One pass over (token, position, sequence, whether its logits are wanted)."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted
        start = time.perf_counter()
        failed = llama.llama_decode(self.context, self.batch)
        llama.llama_synchronize(self.context)
        assert failed == 0, f"llama_decode: {failed}"
        return time.perf_counter() - start

    def prefill(self, sequence):
        last = CONTEXT - 1
        rows = [(100 + 37 * i % 40000, i, sequence, i == last) for i in range(CONTEXT)]
        return self.run(rows)

    def clear(self):
        llama.llama_memory_clear(self.memory, True)


def report(name, times, tokens):
    times = sorted(times)
    fast, median = times[len(times) // 10], statistics.median(times)
    print(f"llama.cpp {name}: fastest tenth {tokens / fast:.1f}, "
          f"median {tokens / median:.1f} tokens/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=".models/SmolLM2-135M-Instruct", help="folder of the GGUF")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kinds", default="Q4_1,Q8_0,BF16")
    args = parser.parse_args()
    silence = llama.llama_log_callback(lambda *_: None)
    # llama.llama_log_set(silence, ctypes.c_void_p())
    llama.llama_backend_init()
    source = os.path.join(args.model, GGUF)
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.kinds.split(","):
            path = requantised(source, kind, folder)
            for sequences in (1, 4, 16):
                engine = Engine(path, args.threads, sequences)
                if sequences == 1:
                    times = []
                    for _ in range(11):
                        times.append(engine.prefill(0))
                        engine.clear()
                    report(f"{kind} prefill", times[1:], CONTEXT)
                for sequence in range(sequences):
                    engine.prefill(sequence)
                times = []
                for step in range(STEPS):
                    at = CONTEXT + step
                    rows = [(200 + s, at, s, True) for s in range(sequences)]
                    times.append(engine.run(rows))
                report(f"{kind} batch {sequences}", times, sequences)
                engine.close()


if __name__ == "__main__":
    main()
