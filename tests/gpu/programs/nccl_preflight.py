"""Whether ranks reach each other: a sum, a ring of messages, an exchange, and a bandwidth."""

from __future__ import annotations

import time

import rank as own
import torch
import torch.distributed as dist


def main() -> None:
    device = own.begin()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    value = torch.full((1000,), float(rank + 1), device=device)
    dist.all_reduce(value)
    assert value.eq(ranks * (ranks + 1) / 2).all()
    if ranks > 1:
        received = torch.empty(4, device=device)
        sent = torch.full((4,), float(rank), device=device)
        calls = [
            dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
            dist.P2POp(dist.irecv, received, (rank - 1) % ranks),
        ]
        for call in dist.batch_isend_irecv(calls):
            call.wait()
        assert received.eq((rank - 1) % ranks).all()
    parts = torch.arange(ranks, dtype=torch.float32, device=device) + 10 * rank
    exchanged = torch.empty_like(parts)
    dist.all_to_all_single(exchanged, parts)
    assert exchanged.tolist() == [rank + 10.0 * other for other in range(ranks)]
    megabytes = 64 if device.type == "cuda" else 4
    large = torch.ones(megabytes * 2**18, device=device)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        dist.all_reduce(large)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    own.answer({"device": str(device), "gigabytes_s": megabytes / 1024 / min(seconds)})


if __name__ == "__main__":
    main()
