"""`Runs` over the room of jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

from torchyard.base.files import Writing
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.dataset_inputs import DatasetInput
from torchyard.jobs.records.types import Experiment, Job, Status
from torchyard.jobs.requests import runs
from torchyard.jobs.requests.run_search import View
from torchyard.jobs.requests.runs import Tags
from torchyard.jobs.services import Services
from torchyard.mlflow.runs import Artifact


class JobRuns:
    """Each verb is an action of jobs/."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def experiment(self, workspace: str, number: int) -> Experiment:
        return runs.experiment(self._services, workspace, number)

    def experiment_named(self, workspace: str, name: str) -> Experiment | None:
        return runs.experiment_named(self._services, workspace, name)

    def find_experiments(self, workspace: str, view: View) -> Sequence[Experiment]:
        return runs.find_experiments(self._services, workspace, view)

    def create_experiment(
        self, workspace: str, name: str, tags: Mapping[str, str], artifact_location: str = ""
    ) -> Experiment:
        return runs.create_experiment(self._services, workspace, name, tags, artifact_location)

    def change_experiment(
        self,
        workspace: str,
        number: int,
        *,
        name: str | None = None,
        deleted: bool | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> Experiment:
        return runs.change_experiment(
            self._services, workspace, number, name=name, deleted=deleted, tags=tags
        )

    def run(self, workspace: str, name: str) -> Job:
        return actions.get(self._services, workspace, name)

    def find_runs(
        self, experiment_ids: Collection[int], view: View, implied_tags: Mapping[str, str]
    ) -> Sequence[Job]:
        return runs.find_runs(self._services, experiment_ids, view, implied_tags)

    def add_datasets(self, job: Job, inputs: Sequence[DatasetInput]) -> None:
        runs.add_datasets(self._services, job, inputs)

    def datasets_of(self, job_ids: Collection[int]) -> Mapping[int, Sequence[DatasetInput]]:
        return runs.datasets_of(self._services, job_ids)

    def datasets_in(
        self, experiment_ids: Collection[int]
    ) -> Sequence[tuple[int, str, str, str | None]]:
        return runs.datasets_in(self._services, experiment_ids)

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
        request: str = "",
        made_by: str = "",
    ) -> Job:
        return runs.create_run(
            self._services,
            workspace,
            experiment_id=experiment_id,
            owner=owner,
            display_name=display_name,
            started_at=started_at,
            parent=parent,
            tags=tags,
            request=request,
            made_by=made_by,
        )

    def change_run(
        self,
        workspace: str,
        name: str,
        *,
        display_name: str | None = None,
        status: Status | None = None,
        ended_at: datetime | None = None,
        deleted: bool | None = None,
        tags: Tags | None = None,
    ) -> Job:
        return runs.change_run(
            self._services,
            workspace,
            name,
            display_name=display_name,
            status=status,
            ended_at=ended_at,
            deleted=deleted,
            tags=tags,
        )

    def artifacts(self, workspace: str, name: str, folder: str = "") -> Sequence[Artifact]:
        found = artifacts.list_of(self._services, self.run(workspace, name), folder)
        return [Artifact(artifact.path, artifact.size_bytes) for artifact in found]

    def artifact(self, workspace: str, name: str, path: str) -> Path:
        return artifacts.file(self._services, self.run(workspace, name), path)

    def write_artifact(
        self, workspace: str, name: str, path: str
    ) -> AbstractContextManager[Writing]:
        return artifacts.writing(self._services, self.run(workspace, name), path)

    def delete_artifact(self, workspace: str, name: str, path: str) -> None:
        artifacts.delete(self._services, self.run(workspace, name), path)
