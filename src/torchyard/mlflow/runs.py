"""What MLflow's routes need of runs.

Owns: the verbs. A run is a `Job`: `type` `command` for a job's own run, `run` for one that a
client started; its id is the job's name.
Leaves: how they are kept to the one who implements them over jobs/.
Always: a workspace or a run that does not exist raises `NotFound`; deleted ones are still found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from torchyard.base.files import Writing
from torchyard.jobs.records.dataset_inputs import DatasetInput
from torchyard.jobs.records.types import Experiment, Job, Status
from torchyard.jobs.requests.run_search import View
from torchyard.jobs.requests.runs import Tags


@dataclass(frozen=True)
class Artifact:
    """One file of a run, its path below the run's artifacts."""

    path: str
    size_bytes: int


class Runs(Protocol):
    """Experiments, runs and their files, by workspace."""

    def experiment(self, workspace: str, number: int) -> Experiment: ...

    def experiment_named(self, workspace: str, name: str) -> Experiment | None:
        """A deleted one too."""

    def find_experiments(self, workspace: str, view: View) -> Sequence[Experiment]:
        """One page of those that fit."""

    def create_experiment(
        self, workspace: str, name: str, tags: Mapping[str, str], artifact_location: str = ""
    ) -> Experiment:
        """
        Raises:
            Conflict: the name is taken, be it by a deleted one.
        """

    def change_experiment(
        self,
        workspace: str,
        number: int,
        *,
        name: str | None = None,
        deleted: bool | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> Experiment:
        """Change what is not None; a tag that is None goes, the others are merged.

        Raises:
            Conflict: the name is taken.
        """

    def run(self, workspace: str, name: str) -> Job: ...

    def find_runs(
        self, experiment_ids: Collection[int], view: View, implied_tags: Mapping[str, str]
    ) -> Sequence[Job]:
        """One page of the runs that fit, without their specs."""

    def add_datasets(self, job: Job, inputs: Sequence[DatasetInput]) -> None:
        """Note what a run was given; what it has already stays."""

    def datasets_of(self, job_ids: Collection[int]) -> Mapping[int, Sequence[DatasetInput]]: ...

    def datasets_in(
        self, experiment_ids: Collection[int]
    ) -> Sequence[tuple[int, str, str, str | None]]:
        """(experiment, name, digest, context) of every data set used there."""

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
        """A run that is no job, Running, with a new id; `display_name` empty makes one up.

        The same `request` makes it once.
        """

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
        """Change what is not None; a tag that is None goes, the others are merged.

        `status` comes for runs that are no job only, and moves freely: MLflow lets a client
        take up a run that has ended. A status that is not an end clears `ended_at`. `tags` may
        be a function of the tags that there are, called where nobody else writes.
        """

    def artifacts(self, workspace: str, name: str, folder: str = "") -> Sequence[Artifact]:
        """Every file below a folder of the run's; paths are relative to it."""

    def artifact(self, workspace: str, name: str, path: str) -> Path:
        """The file on the server's disk, to be read only."""

    def write_artifact(
        self, workspace: str, name: str, path: str
    ) -> AbstractContextManager[Writing]: ...

    def delete_artifact(self, workspace: str, name: str, path: str) -> None:
        """A file, or everything below a folder; nothing when it is not there."""
