#!/usr/bin/env python3
"""Decode and prefill speed of llama.cpp on the weights that Prony serves: the peer to beat.

Reads SmolLM2-135M-Instruct from its Q4_1 file and from Q8_0 and BF16 files that it makes of that
(once, beside the model or in --made), and does what the Rust bench `decode_step` does: one token
more for each of 1 or 16 sequences of 128 tokens, then back to 128; and a prompt of 128 tokens.
Prints tokens per second: the fastest tenth of the steps and the median. Needs llama-cpp-python;
`scripts/bench_peers.sh` installs it and compares.
"""

import argparse
import ctypes
import os
import time

import llama_cpp as llama

CONTEXT = 128
MOST = 16
TYPES = {
    "q4_1": None,
    "q8_0": llama.LLAMA_FTYPE_MOSTLY_Q8_0,
    "bf16": llama.LLAMA_FTYPE_MOSTLY_BF16,
}


def file_of(kind, source, folder):
    """The file of a type, made from the Q4_1 one where it is missing."""
    if TYPES[kind] is None:
        return source
    made = os.path.join(folder, f"SmolLM2-135M-Instruct.{kind}.gguf")
    if not os.path.exists(made):
        params = llama.llama_model_quantize_default_params()
        params.ftype = TYPES[kind]
        params.allow_requantize = True
        part = made + ".part"
        if llama.llama_model_quantize(source.encode(), part.encode(), ctypes.byref(params)) != 0:
            raise SystemExit(f"{made}: llama.cpp cannot make it")
        os.rename(part, made)
    return made


class Context:
    """A model and room for the sequences."""

    def __init__(self, path, threads):
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama.llama_model_load_from_file(path.encode(), params)
        params = llama.llama_context_default_params()
        params.n_ctx = MOST * (CONTEXT + 64)
        params.n_batch = MOST * CONTEXT
        params.n_seq_max = MOST
        params.n_threads = params.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, params)
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_init(MOST * CONTEXT, 0, 1)

    def decode(self, rows):
        """Rows of token, position, sequence and whether its logits are wanted."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted
        if llama.llama_decode(self.context, self.batch) != 0:
            raise SystemExit("llama_decode failed")
        llama.llama_synchronize(self.context)

    def prefill(self, sequence):
        llama.llama_memory_seq_rm(self.memory, sequence, -1, -1)
        tokens = [100 + 37 * t + 1009 * sequence for t in range(CONTEXT)]
        self.decode([(t, i, sequence, i == CONTEXT - 1) for i, t in enumerate(tokens)])

    def step(self, batch):
        self.decode([(1234, CONTEXT, sequence, True) for sequence in range(batch)])
        for sequence in range(batch):
            llama.llama_memory_seq_rm(self.memory, sequence, CONTEXT, -1)

    def close(self):
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.context)
        llama.llama_model_free(self.model)


def report(name, tokens, runs, run):
    seconds = []
    run()
    for _ in range(runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    seconds.sort()
    fast, median = (tokens / seconds[len(seconds) // n] for n in (10, 2))
    print(f"{name}: fastest tenth {fast:.1f}, median {median:.1f} tokens/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=".models/SmolLM2-135M-Instruct", help="folder of the GGUF")
    parser.add_argument("--made", help="where files of other types are kept; default: the model's")
    parser.add_argument("--types", default="q4_1,q8_0,bf16")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    keep = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(keep, ctypes.c_void_p(0))
    source = os.path.join(args.model, "SmolLM2-135M-Instruct.Q4_1.gguf")
    for kind in args.types.split(","):
        context = Context(file_of(kind, source, args.made or args.model), args.threads)
        # One sequence first: every other that is kept would cost llama.cpp time in each step.
        report(f"llama.cpp {kind} prefill", CONTEXT, 10, lambda: context.prefill(0))
        report(f"llama.cpp {kind} batch 1", 1, 40, lambda: context.step(1))
        for sequence in range(MOST):
            context.prefill(sequence)
        report(f"llama.cpp {kind} batch 16", 16, 20, lambda: context.step(16))
        context.close()


if __name__ == "__main__":
    main()
