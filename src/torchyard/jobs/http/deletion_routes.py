"""HTTP: deleting jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, InvalidSpec
from torchyard.jobs import owners
from torchyard.jobs.cleanup import deletion, removal
from torchyard.jobs.cleanup.deletion import Choice, Plan
from torchyard.jobs.services import FileServices, Services, ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

_KEYS = ("names", "experiment_name", "status", "older_than_s", "dry_run")
# More jobs than these are removed in the background.
_AT_ONCE = 20

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/jobs", tags=["jobs"], route_class=GuardedRoute
)


@router.post("/delete")
@needs(Permission.JOB)
def delete(
    services: ServicesOf, workspace: str, identity: Person, body: Annotated[Any, Body()]
) -> dict[str, Any]:
    """`names`, or some of `experiment_name`, `status`, `older_than_s`; `dry_run` only lists."""
    choice, dry_run = _choice(services.clock, body)
    if dry_run:
        plan = deletion.plan(services, workspace, choice)
        return _plan_json(services, plan)
    return _remove(services, deletion.delete_by(services, workspace, choice, identity))


@router.delete("/{name}")
@needs(Permission.JOB)
def delete_one(services: ServicesOf, workspace: str, name: str, identity: Person) -> dict[str, Any]:
    owners.refuse_foreign_names(services.db, identity, workspace, name)
    return _remove(services, deletion.delete_by(services, workspace, Choice([name]), identity))


def _choice(clock: Clock, body: Any) -> tuple[Choice, bool]:
    fields.refuse_unknown(fields.mapping(body, "what to delete"), _KEYS)
    names, age_s = body.get("names") or [], body.get("older_than_s")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidSpec("`names` must be a list of names", '`["a", "b"]`', at=["names"])
    if age_s is not None and (isinstance(age_s, bool) or not isinstance(age_s, (int, float))):
        raise InvalidSpec(
            "`older_than_s` must be a number of seconds", "86400 is a day", at=["older_than_s"]
        )
    experiment, status = (fields.text(body, key) for key in ("experiment_name", "status"))
    try:
        before = None if age_s is None else clock.now() - timedelta(seconds=age_s)
    except OverflowError:
        raise InvalidSpec(
            "`older_than_s` is too large",
            "use a smaller number",
            at=["older_than_s"],
        ) from None
    choice = Choice(names, experiment, status, before)
    conditions = bool(choice.experiment_name or choice.status or before)
    if conditions == bool(names):
        raise InvalidInput(
            "jobs are deleted either by name or by conditions",
            "give `names`, or some of `experiment_name`, `status`, `older_than_s`",
        )
    return choice, bool(body.get("dry_run"))


def _plan_json(services: FileServices, plan: Plan) -> dict[str, Any]:
    weights = removal.weights(services, plan.jobs)
    jobs = [
        {"name": job.name, "status": job.status.value, **vars(weights[job.name])}
        for job in plan.jobs
    ]
    return {"jobs": jobs, "kept": _kept_json(plan)}


def _remove(services: Services, plan: Plan) -> dict[str, Any]:
    """Remove a few at once; the scheduler removes the others, and those whose worker lingers."""
    pending = names = [job.name for job in plan.jobs]
    if 0 < len(names) <= _AT_ONCE:
        pending = removal.work_now(services, plan.jobs)
    services.wakeup.set()
    return {
        "deleted": names,
        "pending": pending,
        "kept": _kept_json(plan),
    }


def _kept_json(plan: Plan) -> list[dict[str, str]]:
    return [
        {
            "name": kept_job.job.name,
            "reason": kept_job.reason,
            "hint": kept_job.hint,
            "code": kept_job.code,
        }
        for kept_job in plan.kept
    ]
