"""Measure the bandwidth between the nodes of a cluster for `yard compute check`.

Owns: an all-reduce over plain sockets, the same by torch if the environment has it, the figures.
Leaves: checking the nodes to preflight.py, printing to the command.
Always: it runs as a job's script and needs only the standard library; the result of every
all-reduce is verified.

`bus` is the bus bandwidth of NCCL's tests: how much each node sends per second while all send at
once. For the ring only the time spent sending counts, because Python's arithmetic is slower than a
good network.
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
    arguments = parser.parse_args()
    size_bytes = arguments.mb << 20
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world_size == 1:
        return
    _by_sockets(rank, world_size, size_bytes)
    if arguments.torch:
        _by_torch(rank, world_size, size_bytes)


def _by_sockets(rank: int, world_size: int, size_bytes: int) -> None:
    ring = Ring(rank, world_size)
    blocks = [
        random.Random(number).getrandbits(8 * _BLOCK_BYTES).to_bytes(_BLOCK_BYTES, "little")
        for number in range(world_size)
    ]
    expected = 0
    for block in blocks:
        expected ^= int.from_bytes(block, "little")
    # Each part holds whole blocks, so the result is a single block repeated.
    repeats = max(1, size_bytes // (_BLOCK_BYTES * world_size)) * world_size
    data = bytearray(blocks[rank] * repeats)
    expected_bytes = expected.to_bytes(_BLOCK_BYTES, "little") * repeats

    def all_reduce_once() -> None:
        values = bytearray(data)
        ring.all_reduce(values)
        if values != expected_bytes:
            sys.exit(f"rank {rank}: the all-reduce returned a wrong result")

    def time_sending_s() -> float:
        elapsed_s, ring.sending_s = ring.sending_s, 0.0
        return elapsed_s

    _measure(
        "sockets",
        "ring over TCP",
        rank,
        world_size,
        len(data),
        all_reduce_once,
        ring.barrier,
        time_sending_s,
    )
    ring.close()


def _by_torch(rank: int, world_size: int, size_bytes: int) -> None:
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    cuda = bool(torch.cuda.is_available() and dist.is_nccl_available())
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend)
    data = torch.full((size_bytes // 4,), float(rank + 1), device=device)

    def all_reduce_once() -> None:
        values = data.clone()
        dist.all_reduce(values)
        if float(values[0]) != world_size * (world_size + 1) / 2:
            sys.exit(f"rank {rank}: torch's all-reduce returned a wrong result")

    name = f"torch {torch.__version__}, {backend}"
    _measure(backend, name, rank, world_size, size_bytes, all_reduce_once, dist.barrier)
    dist.destroy_process_group()


def _measure(
    kind: str,
    name: str,
    rank: int,
    world_size: int,
    size_bytes: int,
    all_reduce_once: Callable[[], None],
    barrier: Callable[[], None],
    time_sending_s: Callable[[], float] | None = None,
) -> None:
    """
    Args:
        time_sending_s: the seconds spent sending since its last call; None counts all of the time.
    """
    all_reduce_once()
    durations_s, sending_s = [], []
    for _ in range(_RUNS):
        barrier()
        if time_sending_s is not None:
            time_sending_s()
        started = time.perf_counter()
        all_reduce_once()
        durations_s.append(time.perf_counter() - started)
        sending_s.append(durations_s[-1] if time_sending_s is None else time_sending_s())
    if rank == 0:
        best_s = min(durations_s)
        bus = 2 * (world_size - 1) / world_size * size_bytes / min(sending_s)
        result = {
            "kind": kind,
            "name": name,
            "nodes": world_size,
            "size_bytes": size_bytes,
            "best_s": round(best_s, 6),
            "bus_bytes_per_s": round(bus),
        }
        print(MARK + json.dumps(result), flush=True)


class Ring:
    """Each rank sends to the next one and receives from the previous one."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self.sending_s = 0.0
        hosts = os.environ["HOST_LIST"].split(",")
        listener = socket.create_server((_bind_address(hosts[rank]), 0))
        ports = _all_ports(rank, world_size, listener.getsockname()[1])
        next_rank = (rank + 1) % world_size
        self._next = socket.create_connection((hosts[next_rank], ports[next_rank]), _WAIT_S)
        listener.settimeout(_WAIT_S)
        self._previous, _ = listener.accept()
        listener.close()
        for connection in (self._next, self._previous):
            connection.settimeout(_WAIT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def all_reduce(self, data: bytearray) -> None:
        """XOR over all ranks, in place; the length is a multiple of the number of ranks."""
        view, part = memoryview(data), len(data) // self._world_size
        received = bytearray(part)

        def at(number: int) -> memoryview:
            start = number % self._world_size * part
            return view[start : start + part]

        for step in range(self._world_size - 1):
            self._exchange(at(self._rank - step), memoryview(received))
            own_part = at(self._rank - step - 1)
            combined = int.from_bytes(own_part, "little") ^ int.from_bytes(received, "little")
            own_part[:] = combined.to_bytes(part, "little")
        for step in range(self._world_size - 1):
            self._exchange(at(self._rank - step + 1), at(self._rank - step))

    def barrier(self) -> None:
        self.all_reduce(bytearray(self._world_size))

    def close(self) -> None:
        self._next.close()
        self._previous.close()

    def _exchange(self, outgoing: memoryview, incoming: memoryview) -> None:
        """Send to the next rank while receiving from the previous one."""
        started = time.perf_counter()
        sender = threading.Thread(target=self._next.sendall, args=(outgoing,))
        sender.start()
        received = 0
        while received < len(incoming):
            count = self._previous.recv_into(incoming[received:])
            if not count:
                raise ConnectionError(f"rank {self._rank}: the previous rank closed the connection")
            received += count
        sender.join()
        self.sending_s += time.perf_counter() - started


def _bind_address(host: str) -> str:
    # Only loopback if the job runs on one machine.
    return host if host.startswith("127.") else ""


def _all_ports(rank: int, world_size: int, own_port: int) -> list[int]:
    """Every rank's port, collected by rank 0 at the job's rendezvous address."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank > 0:
        return _send_port(address, rank, own_port)
    ports = {0: own_port}
    connections = []
    with socket.create_server((_bind_address(address[0]), address[1])) as server:
        server.settimeout(_WAIT_S)
        while len(ports) < world_size:
            connection, _ = server.accept()
            message = json.loads(connection.makefile().readline())
            ports[message["rank"]] = message["port"]
            connections.append(connection)
    answer = json.dumps([ports[number] for number in range(world_size)]).encode() + b"\n"
    for connection in connections:
        connection.sendall(answer)
        connection.close()
    return [ports[number] for number in range(world_size)]


def _send_port(address: tuple[str, int], rank: int, own_port: int) -> list[int]:
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            with socket.create_connection(address, 5.0) as connection:
                connection.settimeout(_WAIT_S)
                connection.sendall(json.dumps({"rank": rank, "port": own_port}).encode() + b"\n")
                all_ports: list[int] = json.loads(connection.makefile().readline())
                return all_ports
        except OSError:
            # Rank 0 may not have started yet.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
