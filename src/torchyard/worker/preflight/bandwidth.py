"""How fast the nodes of a cluster talk: an all-reduce, measured by `yard compute check`.

Owns: a ring over plain sockets, the same by torch where the environment has it, the figures.
Leaves: what is wrong with the nodes to preflight.py, printing to the command.
Always: it runs as a job's script, with nothing but the standard library; the result of each
all-reduce is compared with what it must be.

`bus` is what NCCL's tests call so: what each node sends a second while all send at once. For the
ring it counts the sending alone, since Python's arithmetic is slower than a good network.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

MARK = "torchyard-check "
_BLOCK_BYTES = 4096
_RUNS = 3
_WAIT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--torch", action="store_true")
    asked = parser.parse_args()
    size_bytes = asked.mb << 20
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world == 1:
        return
    _by_sockets(rank, world, size_bytes)
    if asked.torch:
        _by_torch(rank, world, size_bytes)


def _by_sockets(rank: int, world: int, size_bytes: int) -> None:
    ring = Ring(rank, world)
    blocks = [
        random.Random(one).getrandbits(8 * _BLOCK_BYTES).to_bytes(_BLOCK_BYTES, "little")
        for one in range(world)
    ]
    expected = 0
    for block in blocks:
        expected ^= int.from_bytes(block, "little")
    # Whole blocks in each part, so that the result is one block again and again.
    times = max(1, size_bytes // (_BLOCK_BYTES * world)) * world
    data = bytearray(blocks[rank] * times)
    wanted = expected.to_bytes(_BLOCK_BYTES, "little") * times

    def once() -> None:
        own = bytearray(data)
        ring.all_reduce(own)
        if own != wanted:
            sys.exit(f"rank {rank}: the all-reduce gave a wrong result")

    def moving_s() -> float:
        moved_s, ring.moving_s = ring.moving_s, 0.0
        return moved_s

    _measure("sockets", "ring over TCP", rank, world, len(data), once, ring.barrier, moving_s)
    ring.close()


def _by_torch(rank: int, world: int, size_bytes: int) -> None:
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    cuda = bool(torch.cuda.is_available() and dist.is_nccl_available())
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend)
    data = torch.full((size_bytes // 4,), float(rank + 1), device=device)

    def once() -> None:
        own = data.clone()
        dist.all_reduce(own)
        if float(own[0]) != world * (world + 1) / 2:
            sys.exit(f"rank {rank}: torch's all-reduce gave a wrong result")

    name = f"torch {torch.__version__}, {backend}"
    _measure(backend, name, rank, world, size_bytes, once, dist.barrier)
    dist.destroy_process_group()


def _measure(
    kind: str,
    name: str,
    rank: int,
    world: int,
    size_bytes: int,
    once: Callable[[], None],
    barrier: Callable[[], None],
    moving_s: Callable[[], float] | None = None,
) -> None:
    """
    Args:
        moving_s: how much of what passed since it was last asked went into sending.
    """
    once()
    took_s, sent_s = [], []
    for _ in range(_RUNS):
        barrier()
        if moving_s is not None:
            moving_s()
        began = time.perf_counter()
        once()
        took_s.append(time.perf_counter() - began)
        sent_s.append(took_s[-1] if moving_s is None else moving_s())
    if rank == 0:
        best_s = min(took_s)
        bus = 2 * (world - 1) / world * size_bytes / min(sent_s)
        told = {
            "kind": kind,
            "name": name,
            "nodes": world,
            "size_bytes": size_bytes,
            "best_s": round(best_s, 6),
            "bus_bytes_per_s": round(bus),
        }
        print(MARK + json.dumps(told), flush=True)


class Ring:
    """Each rank sends to the next and receives from the one before it."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self.moving_s = 0.0
        hosts = os.environ["HOST_LIST"].split(",")
        listener = socket.create_server((_bindable(hosts[rank]), 0))
        ports = _all_ports(rank, world, listener.getsockname()[1])
        after = (rank + 1) % world
        self._next = socket.create_connection((hosts[after], ports[after]), _WAIT_S)
        listener.settimeout(_WAIT_S)
        self._before, _ = listener.accept()
        listener.close()
        for sock in (self._next, self._before):
            sock.settimeout(_WAIT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def all_reduce(self, data: bytearray) -> None:
        """Exclusive or over all ranks, in place; its length is divisible by their number."""
        view, part = memoryview(data), len(data) // self._world
        got = bytearray(part)

        def at(number: int) -> memoryview:
            start = number % self._world * part
            return view[start : start + part]

        for step in range(self._world - 1):
            self._swap(at(self._rank - step), memoryview(got))
            mine = at(self._rank - step - 1)
            both = int.from_bytes(mine, "little") ^ int.from_bytes(got, "little")
            mine[:] = both.to_bytes(part, "little")
        for step in range(self._world - 1):
            self._swap(at(self._rank - step + 1), at(self._rank - step))

    def barrier(self) -> None:
        self.all_reduce(bytearray(self._world))

    def close(self) -> None:
        self._next.close()
        self._before.close()

    def _swap(self, out: memoryview, into: memoryview) -> None:
        """Send to the next while receiving from the one before."""
        began = time.perf_counter()
        sender = threading.Thread(target=self._next.sendall, args=(out,))
        sender.start()
        got = 0
        while got < len(into):
            count = self._before.recv_into(into[got:])
            if not count:
                raise ConnectionError(f"rank {self._rank}: the rank before hung up")
            got += count
        sender.join()
        self.moving_s += time.perf_counter() - began


def _bindable(host: str) -> str:
    # Loopback alone where no other machine takes part.
    return host if host.startswith("127.") else ""


def _all_ports(rank: int, world: int, own: int) -> list[int]:
    """Every rank's port, told to rank 0 at the job's own meeting place."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank > 0:
        return _tell(place, rank, own)
    ports = {0: own}
    come = []
    with socket.create_server((_bindable(place[0]), place[1])) as server:
        server.settimeout(_WAIT_S)
        while len(ports) < world:
            sock, _ = server.accept()
            other = json.loads(sock.makefile().readline())
            ports[other["rank"]] = other["port"]
            come.append(sock)
    answer = json.dumps([ports[one] for one in range(world)]).encode() + b"\n"
    for sock in come:
        sock.sendall(answer)
        sock.close()
    return [ports[one] for one in range(world)]


def _tell(place: tuple[str, int], rank: int, own: int) -> list[int]:
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            with socket.create_connection(place, 5.0) as sock:
                sock.settimeout(_WAIT_S)
                sock.sendall(json.dumps({"rank": rank, "port": own}).encode() + b"\n")
                found: list[int] = json.loads(sock.makefile().readline())
                return found
        except OSError:
            # Rank 0 may still start.
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
