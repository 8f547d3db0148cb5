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
    `job` is the name of its job, empty before there is one; `reused_from` names the pipeline that
    it was a step of, where this one did not run it. `takes` has the step and the output
    that each input is which another step makes.
    """

    name: str
    component: str
    outcome: str
    reason: str
    job: str
    reused_from: str
    status: str
    takes: Mapping[str, Mapping[str, str]]
    started_at: datetime | None
    ended_at: datetime | None
    duration_s: float | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation(Resource):
    """Why a step ran, or the job itself where `step` is empty.

    `other` is the job that it was reused from or is compared with, empty for none; `reasons` name
    the file, the input, the value, the package that differs.
    """

    step: str
    job: str
    is_reused: bool
    other: str
    reasons: tuple[str, ...]


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
            InvalidInput: the job is not a pipeline.
        """
        path = f"{self._workspace_path}/pipelines/{quote(name, safe='')}/steps"
        return Listing(_step(row) for row in self._transport.get(path)["steps"])

    def explain(self, name: str) -> Listing[Explanation]:
        """Why a job ran: of a pipeline, each step; of another job, what differs from the last one
        of its experiment.

        Raises:
            NotFound: no such job.
        """
        path = f"{self._workspace_path}/explanations/{quote(name, safe='')}"
        return Listing(_explanation(row) for row in self._transport.get(path)["value"])


def _explanation(raw: Json) -> Explanation:
    return Explanation(
        raw=raw,
        step=read.text(raw, "step"),
        job=read.text(raw, "job"),
        is_reused=bool(raw["is_reused"]),
        other=read.text(raw, "other"),
        reasons=read.texts(raw, "reasons"),
    )


def _step(raw: Json) -> Step:
    return Step(
        raw=raw,
        name=read.text(raw, "name"),
        component=read.text(raw, "component"),
        outcome=read.text(raw, "outcome"),
        reason=read.text(raw, "reason"),
        job=read.text(raw, "job"),
        reused_from=read.text(raw, "reused_from"),
        status=read.text(raw, "status"),
        takes=raw["takes"],
        started_at=read.optional_moment(raw, "started_at"),
        ended_at=read.optional_moment(raw, "ended_at"),
        duration_s=read.optional_number(raw, "duration_s"),
    )
