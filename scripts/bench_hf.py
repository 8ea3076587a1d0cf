#!/usr/bin/env python3
"""Decode speed of Hugging Face transformers on the weights that Prony serves: the peer to beat.

Reads SmolLM2-135M-Instruct from its GGUF file (dequantised, as prony-sut does it) and runs
`generate` greedily with prompts of 128 tokens and 64 new ones, alone and sixteen at a time. Every
step is stamped as its tokens come; the gaps between steps give decode speed: the fastest tenth and
the median, in tokens per second, for f32 and bf16. On a machine that others use too, run it between two runs of the Rust bench and
compare the fastest tenths:

    python3 -m venv /tmp/hf && /tmp/hf/bin/pip install torch==2.11.0 transformers==5.24.0 gguf accelerate
    cargo bench -p prony-models --bench decode_step
    /tmp/hf/bin/python scripts/bench_hf.py --threads 2 --repeats 5
    cargo bench -p prony-models --bench decode_step
"""

import argparse
import statistics
import time

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Stamps(BaseStreamer):
    """Keeps the time at which each token arrived; the first call carries the prompt."""

    def __init__(self):
        self.times = []

    def put(self, value):
        self.times.append(time.perf_counter())

    def end(self):
        pass


def gaps(model, ids, n_new):
    stamps = Stamps()
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=n_new,
            max_new_tokens=n_new,
            pad_token_id=2,
            streamer=stamps,
        )
    assert out.shape[1] == ids.shape[1] + n_new
    prefill = stamps.times[1] - stamps.times[0]
    return prefill, [b - a for a, b in zip(stamps.times[1:], stamps.times[2:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=".models/SmolLM2-135M-Instruct", help="folder of the GGUF")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batches", default="1,16", help="16 at most")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    base = AutoModelForCausalLM.from_pretrained(args.model, gguf_file=GGUF, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    all_ids = torch.randint(100, 40000, (16, 128), generator=generator)
    for name in args.dtypes.split(","):
        model = base.to(getattr(torch, name)).eval()
        for batch in map(int, args.batches.split(",")):
            ids = all_ids[:batch]
            gaps(model, ids, 4)
            prefills, steps = [], []
            for _ in range(args.repeats if batch == 1 else 1):
                prefill, decode = gaps(model, ids, 64)
                prefills.append(prefill)
                steps += decode
            steps.sort()
            print(
                f"transformers {name} batch {batch}: "
                f"fastest tenth {batch / steps[len(steps) // 10]:.1f}, "
                f"median {batch / statistics.median(steps):.1f} tokens/s, "
                f"prefill best {min(prefills) * 1e3:.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
