"""A training loop logs 100,000 points while its server is killed and away for a minute.

    python benchmarks/server_away.py [--points 100000] [--away 60] [--home FOLDER]

A job of fixed work and a wait, as for a device, logs 20 metrics a step with the real mlflow, by a
`log_metric` each. The first loop has a server all the time and shows what the machine's noise is;
the second one's server is killed with SIGKILL and started again after so many seconds. Both are
cut at the same share of their steps. Afterwards every point has to be there, in order, once:
it ends with 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from figures import progress, temporary_yard
from loop_jobs import METRICS, Step, Torchyard, percentiles_ms

# Of the steps that are expected to pass before the kill.
_BEFORE_S = 15.0


def loop_killed(yard: Torchyard, steps: int, away_s: float) -> tuple[str, float, float]:
    """The job's name; when its server was killed and when it was back, in s since 1970."""
    name = yard.loop(steps, "--singly")
    yard.wait_for_steps(name)
    time.sleep(_BEFORE_S)
    killed = yard.kill_server()
    progress(f"{name}: the server is down for {away_s:g} s")
    time.sleep(away_s)
    return name, killed, yard.start_server()


def wrong(yard: Torchyard, name: str, steps: int) -> list[str]:
    """What the server has that it should not have, or the other way."""
    missing = []
    for number in range(METRICS):
        key = f"m{number:02d}"
        points = yard.points(name, key)
        if points != [(step, step + number / 100) for step in range(steps)]:
            once = len(set(points))
            missing.append(f"{key}: {len(points)} points, {once} different ones, of {steps}")
    return missing


def tell(title: str, phases: dict[str, list[Step]]) -> None:
    print(f"\n{title}")
    for name, steps in phases.items():
        if not steps:
            print(f"  {name:10}  no step")
            continue
        figures = {
            **percentiles_ms("step", [step.took for step in steps]),
            **percentiles_ms("log_metric", [call for step in steps for call in step.calls]),
        }
        line = "".join(f"  {figure} {value:8.3f}" for figure, value in figures.items())
        longest = max(step.took for step in steps) * 1000
        print(f"  {name:10}{len(steps):6} steps{line}  longest step {longest:.0f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--away", type=float, default=60.0, help="seconds without a server")
    parser.add_argument("--home", type=Path, help="kept, with its environment")
    arguments = parser.parse_args()
    steps = arguments.points // METRICS
    with temporary_yard(arguments.home) as variables:
        yard = Torchyard(variables)
        name, killed, back = loop_killed(yard, steps, arguments.away)
        cut = yard.steps(name)
        before = [step for step in cut if step.began < killed]
        during = [step for step in cut if killed <= step.began < back]
        after = [step for step in cut if step.began >= back]
        tell(
            f"{name}: the server killed and away for {back - killed:.0f} s",
            {"before": before, "during": during, "after": after},
        )
        left = yard.steps(other := yard.loop(steps, "--singly"))
        first, second = len(before), len(before) + len(during)
        tell(
            f"{other}: the same with a server all the time",
            {"before": left[:first], "during": left[first:second], "after": left[second:]},
        )
        bad = [f"{each}: {why}" for each in (name, other) for why in wrong(yard, each, steps)]
        print(f"\n{2 * steps * METRICS:,} points asked for, {len(bad)} of {2 * METRICS} keys wrong")
        print("".join(f"  {line}\n" for line in bad), end="")
    return 1 if bad or not during or not after else 0


if __name__ == "__main__":
    sys.exit(main())
