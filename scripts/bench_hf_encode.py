#!/usr/bin/env python3
"""Texts per second of Hugging Face transformers on all-MiniLM-L6-v2: the peer of the bench `encode`.

Runs the model and mean pooling on ids of the shapes that the Rust bench runs (texts of one length,
so that no token is padding, with an attention mask as transformers' own pipelines give it), in f32
and bf16, and prints texts per second: the fastest tenth of the runs and the median. On a machine
that others use too, run it between two runs of the Rust bench and compare the fastest tenths:

    python3 -m venv /tmp/hf && /tmp/hf/bin/pip install torch==2.11.0 transformers==5.24.0
    cargo bench -p prony-models --bench encode
    /tmp/hf/bin/python scripts/bench_hf_encode.py --threads 1,2
    cargo bench -p prony-models --bench encode
"""

import argparse
import time

import torch
from transformers import AutoModel

# Tokens of a text and texts of a batch, as in crates/models/benches/encode.rs.
SHAPES = [(128, 1), (128, 8), (128, 32), (16, 32)]


def texts(tokens, batch):
    inner = [[2000 + (37 * t + 1009 * i) % 20000 for t in range(tokens - 2)] for i in range(batch)]
    return torch.tensor([[101, *row, 102] for row in inner])


def encode(model, ids, mask):
    with torch.inference_mode():
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        return torch.nn.functional.normalize(states.mean(1), dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=".models/all-MiniLM-L6-v2", help="its folder")
    parser.add_argument("--threads", default="2", help="thread counts, with commas between")
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    args = parser.parse_args()
    for name in args.dtypes.split(","):
        model = AutoModel.from_pretrained(args.model, dtype=getattr(torch, name)).eval()
        for threads in map(int, args.threads.split(",")):
            torch.set_num_threads(threads)
            for tokens, batch in SHAPES:
                ids = texts(tokens, batch)
                mask = torch.ones_like(ids)
                encode(model, ids, mask)
                seconds, end = [], time.perf_counter() + args.seconds
                while len(seconds) < 10 or time.perf_counter() < end:
                    start = time.perf_counter()
                    encode(model, ids, mask)
                    seconds.append(time.perf_counter() - start)
                seconds.sort()
                of = "" if args.threads == str(threads) else f" threads {threads}"
                fast, median = (batch / seconds[len(seconds) // n] for n in (10, 2))
                print(
                    f"transformers {name} {tokens}x{batch}{of}: "
                    f"fastest tenth {fast:.1f}, median {median:.1f} texts/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
