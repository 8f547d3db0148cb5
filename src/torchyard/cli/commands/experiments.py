"""`yard experiment …`."""

from __future__ import annotations

from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import Session, archivable, at_most, common, many
from torchyard.cli.terminal import tables

group = noun("experiment")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda experiment: experiment["name"]),
    ("JOBS", lambda experiment: experiment.get("job_count", experiment.get("jobs"))),
    ("CREATED", lambda experiment: tables.moment(experiment.get("created_at"))),
    ("LAST JOB", lambda experiment: tables.moment(experiment.get("last_job_at"))),
]


@group.command("list")
@many
@archivable
@common
def list_experiments(session: Session, max_results: int | None, archived: str) -> None:
    """List experiments, which group jobs.

    Example: yard experiment list
    """
    experiments = session.client().experiments.list()
    tables.rows(session.form, at_most(experiments.raw, archived, max_results), _COLUMNS)
