"""A cluster from 0 to 2 nodes and back, by the real server.

    .venv/bin/python benchmarks/clusters.py

Prints how long a job of two nodes waits in its Scaling stage on a cluster that has none, and how
long from submission to its ranks' start and from its end to 0 nodes. The peer's figure is quoted:
Ray 2.60's autoscaler, 8 to 12 s up and 5 to 14 s down, from the table of engines that this
project measured on a like machine; it is not measured in this run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from torchyard import Client
from torchyard.base.settings import Settings
from torchyard.client import embedded

TRIES, IDLE_S = 5, 1


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="torchyard-clusters-") as folder:
        settings = Settings(Path(folder))
        client = Client(settings=settings, workspace="default")
        try:
            client.computes.create(
                {
                    "name": "pair",
                    "type": "amlcompute",
                    "max_instances": 2,
                    "idle_time_before_scale_down": IDLE_S,
                }
            )
            rows = [one(client, number) for number in range(TRIES + 1)][1:]  # the first warms up
        finally:
            client.close()
            embedded.stop(settings)
    print(f"0 → 2 nodes, median of {TRIES}")
    names = ("Scaling stage", "submitted to Running", "end to 0 nodes")
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        spread = f"{min(column):.2f} to {max(column):.2f}"
        print(f"  torchyard, {name:<22} {statistics.median(column):6.2f} s  ({spread})")
    print(f"  of the way down, {IDLE_S} s is idle_time_before_scale_down")
    print("  Ray 2.60 autoscaler, quoted: up 8 to 12 s, down 5 to 14 s")


def one(client: Client, number: int) -> tuple[float, float, float]:
    name = f"pair-{number}"
    body = {"name": name, "command": "true", "environment": "python", "compute": "pair"}
    job = client.jobs.create({**body, "resources": {"instance_count": 2}})
    while not (job := job.refresh()).has_ended:
        time.sleep(0.05)
    assert job.status == "Completed" and job.started_at and job.ended_at, job.error
    while client.computes.get("pair").current_node_count:
        time.sleep(0.05)
    counts = client.computes.history("pair").counts
    assert max(count.current for count in counts) == 2 and counts[-1].current == 0
    scaling = next(stage for stage in job.stages if stage.name == "Scaling")
    assert scaling.ended_at
    return (
        (scaling.ended_at - scaling.started_at).total_seconds(),
        (job.started_at - job.created_at).total_seconds(),
        (counts[-1].at - job.ended_at).total_seconds(),
    )


if __name__ == "__main__":
    main()
