"""From killed ranks to the next step after they have resumed.

python benchmarks/checkpoint_resume.py [--size-mb 1000] [--rounds 5] [--folder FOLDER]

Two ranks with the same state (DDP) save, go on, and are killed by SIGKILL, as when one of them dies
and its job ends the other. Two new ones start as soon as these are dead, make an optimizer, load
and do a step. Figures are in milliseconds, medians over the rounds of the rank that was later:

- killed to step: from the kill to the end of the first step after the load;
- import torch: how long that took of it;
- first optimizer: of a process, for which torch imports its other half (torch._dynamo, sympy) in
  every training; DDP does the same;
- without import torch: what is left beside the first of these;
- without torch's imports: what is left beside both, goal 1 s for 1 GB;
- load: the call alone.

The checkpoint's files were written a moment ago: they come from the machine's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANKS = 2
LIMIT_S = 300
STEPS = 3

RANK = """
import json, os, sys, time
started = time.time()
import torch
imported = time.time()
weights = torch.nn.Parameter(torch.ones(64, 64))
optimizer = torch.optim.SGD([weights])
made = time.time()
import torch.distributed as dist
from torchyard.train import checkpoint

folder, size_mb, steps, attempt = sys.argv[1], *map(int, sys.argv[2:])
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", f"file://{folder}/rendezvous-{attempt}", rank=rank,
    world_size=int(os.environ["WORLD_SIZE"]))
length = size_mb * 250_000 // 32
state = {f"layer{number}": torch.empty(length) for number in range(32)}
checkpoint.configure(folder + "/checkpoints", keep_last=1)
loading = time.time()
loaded = checkpoint.load(state)
loaded_at = time.time()
first = loaded[0] if loaded else 0
for step in range(first, first + steps):
    optimizer.zero_grad()
    (weights @ weights).sum().backward()
    dist.all_reduce(weights.grad)
    optimizer.step()
    if step == first:
        times = {"import torch": imported - started, "first optimizer": made - imported,
                 "load": loaded_at - loading,
                 "step": time.time(), "first": first}
        print(json.dumps(times), flush=True)
checkpoint.save(first + steps, state).wait()
print("saved", flush=True)
time.sleep(600)
"""


class Ranks:
    """Both ranks of one attempt."""

    def __init__(self, folder: Path, size_mb: int, attempt: int) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, folder, str(size_mb), str(STEPS), str(attempt)],
                stdout=subprocess.PIPE, text=True,
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS)},
            )
            for rank in range(RANKS)
        ]  # fmt: skip

    def read(self) -> list[str]:
        """The next line of each.

        Raises:
            SystemExit: one has ended.
        """
        lines = [process.stdout.readline() for process in self._processes if process.stdout]
        if "" in lines:
            print(f"error: rank {lines.index('')} ended before it had resumed", file=sys.stderr)
            print("hint: see what it printed; try a smaller --size-mb", file=sys.stderr)
            raise SystemExit(1)
        return lines

    def kill(self) -> float:
        """Return when they are dead, in seconds since 1970."""
        killed_at = time.time()
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
        for process in self._processes:
            process.wait(LIMIT_S)
            if process.stdout:
                process.stdout.close()
        return killed_at


def measure(folder: Path, size_mb: int, rounds: int) -> dict[str, float]:
    results: list[dict[str, float]] = []
    ranks = Ranks(folder, size_mb, 0)
    try:
        ranks.read()
        for attempt in range(1, rounds + 1):
            ranks.read()  # saved
            killed_at = ranks.kill()
            ranks = Ranks(folder, size_mb, attempt)
            lines: list[dict[str, Any]] = [json.loads(line) for line in ranks.read()]
            assert {times["first"] for times in lines} == {attempt * STEPS}, lines
            later = max(lines, key=lambda times: times["step"])
            total = later["step"] - killed_at
            without = total - later["import torch"]
            results.append({
                "killed to step": total, "import torch": later["import torch"],
                "first optimizer": later["first optimizer"], "without import torch": without,
                "without torch's imports": without - later["first optimizer"],
                "load": later["load"],
            })  # fmt: skip
    finally:
        ranks.kill()
    return {
        name: round(1000 * statistics.median(result[name] for result in results), 1)
        for name in results[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where to write, by default a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="checkpoints-", dir=options.folder) as folder:
        figures = measure(Path(folder), options.size_mb, options.rounds)
    print(json.dumps({"size_mb": options.size_mb, "ms": figures}, indent=1))


if __name__ == "__main__":
    main()
