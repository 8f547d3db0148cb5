"""A training loop as far as its history is concerned: fixed work, then some metrics, again.

    python training_loop.py --steps 5000 --metrics 20 --work-ms 2 --device-ms 8
                            [--singly] [--no-logging]

The work of a step is arithmetic on the processor and a wait, as for a device that trains. Its
metrics are logged by one `log_metrics`, or singly, by a `log_metric` each.

It runs as a job, with the real mlflow, and knows nothing of torchyard. What each step took goes
to `outputs/steps.json`: `[[when it began, in s since 1970, step in s, [each call in s]], ...]`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path


def work(units: int) -> float:
    """The same arithmetic each time, so that its time tells how free the processor is."""
    total = 0.0
    for number in range(units):
        total += number * 0.5
    return total


def units_in(seconds: float) -> int:
    """How much work fits into `seconds` when nothing disturbs."""
    best = min(_seconds(100_000) for _ in range(20))
    return max(1, int(100_000 * seconds / best))


def _seconds(units: int) -> float:
    started = time.perf_counter()
    work(units)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--metrics", type=int, required=True)
    parser.add_argument("--work-ms", type=float, required=True)
    parser.add_argument("--device-ms", type=float, default=0.0)
    parser.add_argument("--singly", action="store_true")
    parser.add_argument("--no-logging", action="store_true")
    arguments = parser.parse_args()

    if not arguments.no_logging:
        import mlflow

        mlflow.log_param("steps", arguments.steps)
    units = units_in(arguments.work_ms / 1000)
    taken = []
    Path("outputs/began").touch()
    for step in range(arguments.steps):
        began, started = time.time(), time.perf_counter()
        work(units)
        time.sleep(arguments.device_ms / 1000)
        times = [time.perf_counter()]
        if not arguments.no_logging:
            values = {f"m{number:02d}": step + number / 100 for number in range(arguments.metrics)}
            if arguments.singly:
                for key, value in values.items():
                    mlflow.log_metric(key, value, step=step)
                    times.append(time.perf_counter())
            else:
                mlflow.log_metrics(values, step=step)
                times.append(time.perf_counter())
        calls = [after - before for before, after in itertools.pairwise(times)]
        taken.append((began, times[-1] - started, calls))
    written = Path("outputs/steps.part")
    written.write_text(json.dumps(taken))
    written.rename("outputs/steps.json")


if __name__ == "__main__":
    main()
