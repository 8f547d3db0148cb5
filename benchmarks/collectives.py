"""What it costs that a job can say who waits for whom: a loop of collectives with and without.

    TORCH_PYTHON=ENVIRONMENT/bin/python python benchmarks/collectives.py [--calls 100000]

The same loop of `all_reduce` over one number runs by gloo on this machine, alternately as a job's
Pythons run it and plainly. Then the list of each rank is asked for, and lists of 1,024 made-up
ranks are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from torchyard.shared import collectives  # noqa: E402
from torchyard.worker.diagnosis import rank_calls  # noqa: E402
from torchyard.worker.files import thin_environment  # noqa: E402

_LOOP = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
number = torch.ones(1)
for _ in range(200):
    dist.all_reduce(number)
begin = time.perf_counter()
for _ in range(int(sys.argv[1])):
    dist.all_reduce(number)
print((time.perf_counter() - begin) / int(sys.argv[1]) * 1e6, flush=True)
sys.stdin.read()
"""
_ROUNDS = 3
_RANKS, _CALLS = 1024, 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    python = Path(os.environ["TORCH_PYTHON"])
    with tempfile.TemporaryDirectory(prefix="torchyard-benchmark-") as scratch:
        folder = Path(scratch)
        hooked = thin_environment.create(python.parents[1], folder / "env") / "python"
        figures: dict[str, list[float]] = {"plain": [], "as a job's": []}
        for each in range(_ROUNDS):
            figures["plain"].append(_loop(python, folder / f"plain-{each}", options))
            figures["as a job's"].append(_loop(hooked, folder / f"job-{each}", options, ask=True))
        for name, values in figures.items():
            print(f"{name:12}{statistics.median(values):8.1f} us a collective  {_range(values)}")
        difference = statistics.median(figures["as a job's"]) - statistics.median(figures["plain"])
        print(f"{'difference':12}{difference:8.1f} us")
    _compare()


def _loop(python: Path, folder: Path, options: argparse.Namespace, ask: bool = False) -> float:
    """Microseconds a collective, of the slowest rank."""
    ranks = []
    for rank in range(options.ranks):
        records = folder / f"rank-{rank}"
        records.mkdir(parents=True)
        variables = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(options.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29531",
            "GLOO_SOCKET_IFNAME": "lo",
            **({"TORCHYARD_ERRORS": str(records)} if ask else {}),
        }
        ranks.append(
            subprocess.Popen(
                [str(python), "-c", _LOOP, str(options.calls)],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    slowest = max(float((rank.stdout or sys.stdin).readline()) for rank in ranks)
    if ask:
        for with_lines in (False, True, True):
            begin = time.perf_counter()
            found, _ = rank_calls.ask(sorted(folder.iterdir()), 30.0, with_lines=with_lines)
            took_ms = (time.perf_counter() - begin) * 1e3
            print(f"lists of {len(found)} ranks{' with lines' * with_lines}: {took_ms:.0f} ms")
    for started in ranks:
        started.communicate("")
    return slowest


def _compare() -> None:
    calls = [
        {"number": number, "name": "nccl:all_reduce", "shapes": "[1024, 1024] float",
         "where": f"train.py line {number % 7}", "done": number < _CALLS}
        for number in range(1, _CALLS + 1)
    ]  # fmt: skip
    lists = [
        {"groups": [{"name": "0", "calls": calls[: _CALLS - (rank == 700)]}]}
        for rank in range(_RANKS)
    ]
    begin = time.perf_counter()
    finding = collectives.compare(
        [collectives.from_json(rank, body) for rank, body in enumerate(lists)]
    )
    assert finding is not None and finding.ranks == (700,)
    print(f"comparing {_RANKS} ranks x {_CALLS} calls: {time.perf_counter() - begin:.2f} s")


def _range(values: list[float]) -> str:
    return f"({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
