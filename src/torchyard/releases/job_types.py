"""Validations and releases as types of jobs.

Owns: the two types, canceling one.
Leaves: creating one to running/creation.py, which is imported with the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job, JobError
from torchyard.jobs.requests import job_queries, parents
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.releases.records.types import CHANGED, RELEASE, VALIDATION
from torchyard.workspaces.types import Identity


class ReleaseJobs:
    """The types of this package's jobs, as jobs/ calls them; see `JobType`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def check(
        self, services: FileServices, workspace: str, document: Mapping[str, Any], uploaded: bool
    ) -> tuple[str, ...]:
        from torchyard.releases.running import candidates, creation

        request = creation.read(self._kind, document)
        candidates.base_of(services.environments, workspace, str(request["environment"]))
        return ()

    def create(
        self,
        services: FileServices,
        workspace: str,
        document: Mapping[str, Any],
        identity: Identity,
    ) -> tuple[Job, bool]:
        from torchyard.releases.running import creation

        return creation.create(services, self._kind, workspace, document, identity)

    def cancel(self, services: Services, job: Job, why: JobError | None, kill: bool) -> Job:
        """The keeper cancels the jobs; with `kill` they are ended here, at once."""
        with services.db.write() as connection:
            parents.request_cancel(connection, job, why, services.clock.now())
        services.signals.notify(jobs.job_key(job))
        services.signals.notify(CHANGED)
        for child in job_queries.list_in(services, job.workspace, parent=job.name) if kill else ():
            if not child.status.ended:
                jobs.cancel(services, child.workspace, child.name, why, kill=True)
        return jobs.get(services, job.workspace, job.name)

    def needs(self, services: RecordServices, workspace: str) -> dict[str, str]:
        return {}


VALIDATIONS, RELEASES = ReleaseJobs(VALIDATION), ReleaseJobs(RELEASE)
