"""`kill -9` of the server and of processes of steps at random moments while pipelines run.

    python tests/faults/pipeline_kills.py --kills 200 --seed 7

Every step writes its name into what it makes, after what it took: the last one shows whether each
got what the one before it made. Counted afterwards: pipelines that did not complete, steps whose
output is wrong, steps that completed twice or of whose equal ones two ran, what is left over.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.fault_site import ENDED, Site, having, made, until
from torchyard.shared.processes import send

KINDS = ("server", "process", "server and process")

_AT_ONCE = 3


@dataclass
class Counts:
    kinds: Counter[str] = field(default_factory=Counter)
    processes: int = 0
    pipelines: int = 0
    wrong: list[str] = field(default_factory=list)


def run(kills: int, seed: int, kinds: tuple[str, ...] = KINDS) -> Counts:
    """Do it; the same seed asks for the same pauses."""
    chance, counts, names = random.Random(seed), Counts(), list[str]()
    with made() as site:
        cluster = {"name": "faulty", "type": "amlcompute", "max_instances": 6}
        site.ask("PUT", "computes/faulty", cluster)
        for number in range(kills):
            kind = kinds[number % len(kinds)]
            _keep_busy(site, names)
            time.sleep(chance.random() * 1.5)
            if "process" in kind:
                counts.processes += _kill_process(site, chance)
            if "server" in kind:
                site.kill()
                time.sleep(chance.random())
                site.start()
            counts.kinds[kind] += 1
        counts.pipelines = len(names)
        counts.wrong = [why for name in names for why in _wrong(site, name)] + _left_over(site)
    return counts


def document(site: Site, name: str) -> dict[str, Any]:
    """Five steps, two of them equal; each begins with what it takes."""
    done = site.files / f"{name}.done"

    def step(word: str, *takes: str) -> dict[str, Any]:
        read = " ".join(f"${{{{inputs.{each}}}}}/text" for each in takes)
        command = (
            f"sleep 0.2; cat /dev/null {read} > ${{{{outputs.data}}}}/text; "
            f"echo {word} >> ${{{{outputs.data}}}}/text; echo {word} >> {done}"
        )
        inputs = {each: f"${{{{parent.jobs.{each}.outputs.data}}}}" for each in takes}
        return {
            "command": command,
            "environment": "python",
            "inputs": inputs,
            "outputs": {"data": None},
        }

    return {
        "type": "pipeline",
        "name": name,
        "settings": {"default_compute": "faulty"},
        "torchyard": {"retry": {"max_attempts": 20, "backoff_s": 0.1}},
        "jobs": {
            "first": step("first"),
            "left": step("left", "first"),
            "right": step("right", "first"),
            "same": step("right", "first"),
            "last": step("last", "left", "right", "same"),
        },
    }


def _keep_busy(site: Site, names: list[str]) -> None:
    live = [name for name in names if site.job(name)["status"] not in ENDED]
    for _ in range(_AT_ONCE - len(live)):
        name = f"pipe-{len(names)}"
        names.append(name)
        site.patiently("POST", "jobs", document(site, name))


def _kill_process(site: Site, chance: random.Random) -> int:
    """How many were killed."""
    living = having(f"{site.scratch}/")
    for one in chance.sample(living, min(1, len(living))):
        send(one.pid, one.start_time, signal.SIGKILL)
    return min(1, len(living))


def _wrong(site: Site, name: str) -> list[str]:
    job = site.wait(name, 300)
    if job["status"] != "Completed":
        return [f"{name}: {job['status']}: {job['error']}"]
    steps = {each["name"]: each for each in site.ask("GET", f"pipelines/{name}/steps")["steps"]}
    problems = []
    if {each["outcome"] for each in steps.values()} != {"completed"}:
        problems.append(f"{name}: {[(each['name'], each['outcome']) for each in steps.values()]}")
    last = steps["last"]["job"]
    text = site.ask("GET", f"jobs/{last}/outputs/data/text")
    if text != b"first\nleft\nfirst\nright\nfirst\nright\nlast\n":
        problems.append(f"{name}: the last step made {text!r}")
    attempts = {each["job"]: site.job(each["job"])["attempt"] for each in steps.values()}
    done = Counter((site.files / f"{name}.done").read_text().split())
    for word, count in done.items():
        # What was killed after its last word, and before its end was known, says it again.
        most = attempts[steps[word]["job"]]
        if not 1 <= count <= most:
            problems.append(f"{name}: step {word} ran to its end {count} times in {most} attempts")
    if steps["same"]["job"] != steps["right"]["job"]:
        problems.append(f"{name}: equal steps ran twice")
    return problems


def _left_over(site: Site) -> list[str]:
    def remaining() -> list[str]:
        return [path.name for path in site.scratch.iterdir()]

    try:
        until(lambda: not remaining(), 60.0, "nothing is left", 0.2)
    except AssertionError:
        return [f"left over: {what}" for what in remaining()]
    return []


def report(counts: Counts) -> str:
    lines = [
        f"{counts.kinds.total()} kills: {dict(counts.kinds)}, {counts.processes} processes of "
        f"steps; {counts.pipelines} pipelines: {len(counts.wrong)} things wrong"
    ]
    return "\n".join([*lines, *(f"  {line}" for line in counts.wrong)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    counts = run(options.kills, options.seed)
    print(report(counts))
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
