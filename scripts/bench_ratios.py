#!/usr/bin/env python3
"""The lines that `bench_peers.sh` collected, as a table: Prony, its peer, ratio, ratio asked for.

Every line is `NAME: fastest tenth F, median M tokens/s` (or texts/s). Of a name that was measured
twice, the better one counts, for Prony as for its peers.
"""

import re
import sys

LINE = re.compile(r"^(?P<name>.+): fastest tenth (?P<fast>[0-9.]+),")

# What, Prony's line, its peers' lines of which the best counts, and the ratio asked for.
TARGETS = [
    ("decode, batch 1, bf16", "bf16 batch 1", ["transformers bfloat16 batch 1"], 1.5),
    ("decode, batch 1, bf16", "bf16 batch 1", ["llama.cpp bf16 batch 1"], 1.3),
    ("decode, batch 1, int8", "bf16/int8 batch 1", ["llama.cpp q8_0 batch 1"], 1.1),
    ("decode, batch 1, int4", "bf16/int4 batch 1", ["llama.cpp q4_1 batch 1"], 1.2),
    (
        "decode, batch 16, int8",
        "bf16/int8 batch 16",
        [f"llama.cpp {kind} batch 16" for kind in ("q4_1", "q8_0", "bf16")],
        3.0,
    ),
    ("decode, batch 16, bf16", "bf16 batch 16", ["transformers bfloat16 batch 16"], 3.0),
    (
        "prefill of 128, int8-dynamic",
        "bf16/int8-dynamic prefill",
        [f"llama.cpp {kind} prefill" for kind in ("q4_1", "q8_0", "bf16")],
        2.5,
    ),
    ("MiniLM 128x8, bf16", "bf16 128x8", ["transformers bfloat16 128x8"], 1.2),
    ("MiniLM 128x32, bf16", "bf16 128x32", ["transformers bfloat16 128x32"], 1.2),
    ("MiniLM 128x8, int8", "bf16/int8 128x8", ["transformers bfloat16 128x8"], 1.5),
    ("MiniLM 128x8, int8-dynamic", "bf16/int8-dynamic 128x8", ["transformers bfloat16 128x8"], 1.5),
    ("MiniLM 128x32, int8-dynamic", "bf16/int8-dynamic 128x32", ["transformers bfloat16 128x32"], 1.5),
]


def main():
    best = {}
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            if found := LINE.match(line):
                name = found["name"]
                best[name] = max(best.get(name, 0.0), float(found["fast"]))
    print(f"{'what':30} {'prony':>9} {'peer':>9} {'ratio':>6} {'asked':>6}  of")
    for what, own, peers, asked in TARGETS:
        own = best.get(f"prony {own}")
        known = {peer: best[peer] for peer in peers if peer in best}
        if own is None or not known:
            print(f"{what:30} not measured")
            continue
        peer = max(known, key=known.get)
        ratio = own / known[peer]
        mark = "" if ratio >= asked else "  MISSED"
        print(f"{what:30} {own:9.1f} {known[peer]:9.1f} {ratio:6.2f} {asked:6.2f}  {peer}{mark}")


if __name__ == "__main__":
    main()
