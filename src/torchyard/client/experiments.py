"""Experiments of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Experiment(Resource):
    """A name under which jobs are kept together.

    Args:
        id: MLflow's number of it, as a text.
        last_job_at: when its newest job was created; None without jobs.
    """

    id: str
    name: str
    tags: Mapping[str, str]
    job_count: int
    created_at: datetime
    last_job_at: datetime | None

    _shown = ("name", "job_count")


class Experiments:
    """Names under which jobs are kept together."""

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport = transport
        self._path = f"{workspace_path}/experiments"

    def list(self) -> Listing[Experiment]:
        """All experiments of the workspace."""
        return Listing(_experiment(row) for row in self._transport.get(self._path)["value"])


def _experiment(raw: Json) -> Experiment:
    return Experiment(
        raw=raw,
        id=read.text(raw, "id"),
        name=raw["name"],
        tags=read.mapping(raw, "tags"),
        job_count=read.integer_at(raw, "job_count"),
        created_at=read.moment(raw, "created_at"),
        last_job_at=read.optional_moment(raw, "last_job_at"),
    )
