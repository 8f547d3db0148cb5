"""Pipelines of the workspace, over HTTP.

Owns: which request each verb is.
Leaves: submitting, streaming, canceling and deleting to jobs.py: a pipeline is a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Step(Resource):
    """A step of a pipeline.

    `outcome` is empty while it waits, then `live`, `completed`, `failed`, `canceled` or `skipped`.
    `job` is the name of its job, empty before there is one. `takes` has the step and the output
    that each input is which another step makes.
    """

    name: str
    component: str
    outcome: str
    reason: str
    job: str
    status: str
    takes: Mapping[str, Mapping[str, str]]
    started_at: datetime | None
    ended_at: datetime | None
    duration_s: float | None


class Pipelines:
    """Pipelines: jobs whose steps are jobs.

    Example::

        job = client.jobs.create(yaml.safe_load(open("pipeline.yml")))
        for step in client.pipelines.steps(job.wait().name):
            print(step.name, step.outcome)
    """

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport, self._workspace_path = transport, workspace_path

    def steps(self, name: str) -> Listing[Step]:
        """The steps of a pipeline, in the order in which they can run.

        Raises:
            NotFound: no such job.
            InvalidInput: the job is no pipeline.
        """
        path = f"{self._workspace_path}/pipelines/{quote(name, safe='')}/steps"
        return Listing(_step(row) for row in self._transport.get(path)["steps"])


def _step(raw: Json) -> Step:
    return Step(
        raw=raw,
        name=read.text(raw, "name"),
        component=read.text(raw, "component"),
        outcome=read.text(raw, "outcome"),
        reason=read.text(raw, "reason"),
        job=read.text(raw, "job"),
        status=read.text(raw, "status"),
        takes=raw["takes"],
        started_at=read.optional_moment(raw, "started_at"),
        ended_at=read.optional_moment(raw, "ended_at"),
        duration_s=read.optional_number(raw, "duration_s"),
    )
