"""Many small jobs on a small cluster: all end well, in turn, never more than fit."""

from __future__ import annotations

import json

import pytest

from end_to_end.yard_under_test import Yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(400)]

JOBS = 200
NODES = 4
NAP = "import time; a = time.time(); time.sleep(0.1); print(a, time.time())"


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """How many of the spans overlap where most do."""
    changes = [(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans]
    peak = now = 0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak


def test_two_hundred_jobs_take_turns_on_four_nodes(yard: Yard) -> None:
    yard("compute", "create", "-n", "four", "--type", "amlcompute", "--max-instances", str(NODES))
    body = {"command": f'python -c "{NAP}"', "environment": "python", "compute": "four"}
    names = [f"small-{number:03}" for number in range(JOBS)]
    for name in names:
        yard.post("jobs", {"name": name, **body})

    wait_until(lambda: yard.job(names[-1])["status"] != "NotStarted", 60, "the last is queued")
    last = json.loads(yard("job", "show", "-n", names[-1], "-o", "json"))
    assert last["status"] == "Queued"
    assert "four" in last["waiting"], last["waiting"]

    spans: list[tuple[float, float]] = []
    claimed = []
    for name in names:
        job = yard.completed(name, timeout_s=300)
        (log,) = yard.logs(name).values()
        start, end = (float(word) for word in log.split())
        spans.append((start, end))
        (scaling,) = (stage for stage in job["stages"] if stage["name"] == "Scaling")
        claimed.append(scaling["end"])
    assert most_at_once(spans) <= NODES
    assert claimed == sorted(claimed), "a job overtook one that was asked for before it"
