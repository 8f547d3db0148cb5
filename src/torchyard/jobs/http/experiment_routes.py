"""HTTP: experiments, for people."""

from __future__ import annotations

from fastapi import APIRouter
from typing_extensions import TypedDict

from torchyard.base.clock import to_text
from torchyard.jobs.requests import runs
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/experiments",
    tags=["experiments"],
    route_class=GuardedRoute,
)


class Experiment(TypedDict):
    id: str
    name: str
    created_at: str
    tags: dict[str, str]
    job_count: int
    last_job_at: str | None


class Experiments(TypedDict):
    value: list[Experiment]


@router.get("")
@needs(Permission.READ)
def list_experiments(services: ServicesOf, workspace: str) -> Experiments:
    counts = runs.job_counts(services.db, workspace)
    return {
        "value": [
            {
                "id": str(experiment.id),
                "name": experiment.name,
                "created_at": to_text(experiment.created_at),
                "tags": experiment.tags,
                "job_count": counts[experiment.id][0] if experiment.id in counts else 0,
                "last_job_at": to_text(counts[experiment.id][1])
                if experiment.id in counts
                else None,
            }
            for experiment in runs.experiments(services.db, workspace)
            if not experiment.deleted
        ]
    }
