"""Seconds of an all_reduce for sizes from 1 KB up, by the variables that this process has.

With the word `msccl`, torchyard's layer translates MSCCL's variables first, as it does at the
start of each Python of an environment that lists it.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import rank as own
import torch
import torch.distributed as dist

_SOURCE = Path(__file__).parents[3] / "compat" / "msccl" / "src"


def main(largest: int, is_translated: bool) -> None:
    if is_translated:
        sys.path.insert(0, str(_SOURCE))
        import msccl

        msccl.init()
    device = own.begin()
    seconds: dict[int, float] = {}
    size = 1024
    while size <= largest:
        values = torch.ones(size // 4, device=device)
        tries = []
        for number in range(15):
            values.fill_(1)
            if device.type == "cuda":
                torch.cuda.synchronize()
            started = time.perf_counter()
            dist.all_reduce(values)
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number >= 5:
                tries.append(time.perf_counter() - started)
        assert values.eq(dist.get_world_size()).all()
        seconds[size] = statistics.median(tries)
        size *= 8
    own.answer({"seconds": seconds, "algorithms": os.environ.get("NCCL_ALGO")})


if __name__ == "__main__":
    main(int(sys.argv[1]), "msccl" in sys.argv[2:])
