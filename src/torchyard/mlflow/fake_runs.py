"""Runs in memory and their files in one folder; for tests."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from torchyard.base import files
from torchyard.base.errors import Conflict, NotFound
from torchyard.jobs.types import Experiment, Job, Status
from torchyard.mlflow.runs import Artifact


class FakeRuns:
    """Implements `Runs`. `add_job` makes what a client can't: a run that is a job's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._experiments: dict[int, Experiment] = {}
        self._jobs: dict[str, Job] = {}

    def add_job(
        self, workspace: str, name: str, experiment_id: int, status: Status = Status.RUNNING
    ) -> Job:
        return self._add(workspace, name, "command", experiment_id, "someone", name, _now(), status)

    def merge_tags(self, job_id: int, tags: Mapping[str, str]) -> None:
        """What `History` needs to keep tags."""
        job = next(job for job in self._jobs.values() if job.id == job_id)
        self._jobs[job.name] = replace(job, tags={**job.tags, **tags})

    def experiment(self, workspace: str, number: int) -> Experiment:
        found = self._experiments.get(number)
        if found is None or found.workspace != workspace:
            raise NotFound(f"experiment `{number}` does not exist")
        return found

    def experiments(self, workspace: str) -> Sequence[Experiment]:
        found = [one for one in self._experiments.values() if one.workspace == workspace]
        return found[::-1]

    def create_experiment(self, workspace: str, name: str, tags: Mapping[str, str]) -> Experiment:
        self._refuse_taken(workspace, name)
        number = len(self._experiments) + 1
        made = Experiment(number, workspace, name, _now(), dict(tags))
        self._experiments[number] = made
        return made

    def change_experiment(
        self,
        workspace: str,
        number: int,
        *,
        name: str | None = None,
        deleted: bool | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> Experiment:
        found = self.experiment(workspace, number)
        if name is not None and name != found.name:
            self._refuse_taken(workspace, name)
            found = replace(found, name=name)
        if deleted is not None:
            found = replace(found, deleted=deleted)
        self._experiments[number] = replace(found, tags=_merged(found.tags, tags))
        return self._experiments[number]

    def run(self, workspace: str, name: str) -> Job:
        found = self._jobs.get(name)
        if found is None or found.workspace != workspace:
            raise NotFound(f"run `{name}` does not exist")
        return found

    def runs(self, workspace: str, experiment_ids: Collection[int]) -> Sequence[Job]:
        return [
            job
            for job in self._jobs.values()
            if job.workspace == workspace and job.experiment_id in experiment_ids
        ]

    def create_run(
        self,
        workspace: str,
        *,
        experiment_id: int,
        owner: str,
        display_name: str,
        started_at: datetime,
        parent: str,
        tags: Mapping[str, str],
    ) -> Job:
        name = f"run{len(self._jobs) + 1}"
        self._add(
            workspace,
            name,
            "run",
            experiment_id,
            owner,
            display_name or f"made-up-{name}",
            started_at,
            Status.RUNNING,
        )
        self._jobs[name] = replace(self._jobs[name], parent=parent, tags=dict(tags))
        return self._jobs[name]

    def change_run(
        self,
        workspace: str,
        name: str,
        *,
        display_name: str | None = None,
        status: Status | None = None,
        ended_at: datetime | None = None,
        deleted: bool | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> Job:
        job = self.run(workspace, name)
        if display_name is not None:
            job = replace(job, display_name=display_name)
        if status is not None:
            assert job.type == "run", "a job's own run is ended by its job"
            job = replace(job, status=status, ended_at=ended_at if status.ended else None)
        if deleted is not None:
            job = replace(job, deleted=deleted)
        self._jobs[name] = replace(job, tags=_merged(job.tags, tags))
        return self._jobs[name]

    def artifacts(self, workspace: str, name: str) -> Sequence[Artifact]:
        self.run(workspace, name)
        folder = self._folder / name
        return [Artifact(path, size) for path, size in files.walk(folder)]

    def artifact(self, workspace: str, name: str, path: str) -> Path:
        self.run(workspace, name)
        found = files.inside(self._folder / name, path)
        if not found.is_file():
            raise NotFound(f"run `{name}` has no file `{path}`")
        return found

    def write_artifact(
        self, workspace: str, name: str, path: str
    ) -> AbstractContextManager[files.Writing]:
        self.run(workspace, name)
        return files.whole(files.inside(self._folder / name, path))

    def delete_artifact(self, workspace: str, name: str, path: str) -> None:
        self.run(workspace, name)
        found = files.inside(self._folder / name, path)
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)

    def _refuse_taken(self, workspace: str, name: str) -> None:
        if any(one.name == name for one in self.experiments(workspace)):
            raise Conflict(f"experiment `{name}` exists")

    def _add(
        self,
        workspace: str,
        name: str,
        kind: str,
        experiment_id: int,
        owner: str,
        display_name: str,
        started_at: datetime,
        status: Status,
    ) -> Job:
        experiment = self.experiment(workspace, experiment_id)
        self._jobs[name] = Job(
            id=len(self._jobs) + 1,
            workspace=workspace,
            name=name,
            type=kind,
            experiment_id=experiment_id,
            experiment_name=experiment.name,
            status=status,
            owner=owner,
            display_name=display_name,
            spec={},
            spec_hash="",
            compute="",
            node_count=1,
            processes_per_node=1,
            created_at=started_at,
            started_at=started_at,
        )
        return self._jobs[name]


def _merged(tags: dict[str, str], changes: Mapping[str, str | None] | None) -> dict[str, str]:
    both = {**tags, **(changes or {})}
    return {key: value for key, value in both.items() if value is not None}


def _now() -> datetime:
    return datetime.now(timezone.utc)
