"""A server with a cluster of another engine, which is a fake."""

from __future__ import annotations

from dataclasses import replace

from jobs import support
from torchyard.compute import actions as computes
from torchyard.executors.engines import Engines
from torchyard.executors.fake import FakeEngine, FakeExecutor
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.records import attempt_store, progress
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Attempt, Job, Stage
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

URLS = ("https://10.0.0.9:8766", "https://[fd00::9]:8766")


class Lab:
    """A server with a cluster `lab` of an engine, and its scheduler's rounds."""

    def __init__(self, services: Services) -> None:
        self.engine = FakeEngine("slurm", most_nodes=3)
        engines = Engines(FakeExecutor(), {"slurm": lambda: self.engine})
        addresses = NodeAddresses(URLS, "-----BEGIN CERTIFICATE-----")
        for_nodes = ServerForNodes("server", lambda: addresses)
        self.services = replace(services, engines=engines, for_nodes=for_nodes)
        computes.create(
            services.db,
            services.clock,
            support.WORKSPACE,
            {"name": "lab", "torchyard": {"engine": "slurm", "partition": "gpu"}},
            engines=engines.names,
        )
        self.scheduler = Scheduler(self.services, engines, "http://127.0.0.1:1")

    def submit(self, **changes: object) -> Job:
        job = support.submit(self.services, compute="lab", **changes)
        self.rounds()
        return self.again(job)

    def rounds(self, count: int = 1) -> None:
        for _ in range(count):
            self.scheduler.run_round()
            assert self.scheduler.trouble == ""

    def again(self, job: Job) -> Job:
        return support.again(self.services, job)

    def worker(self, job: Job, node: int = 0) -> support.Worker:
        return support.Worker(self.services, support.attempt_of(self.services, job), node)

    def attempt_id(self, job: Job) -> str:
        return support.attempt_of(self.services, job).id

    def attempts(self, job: Job) -> list[Attempt]:
        with self.services.db.read() as connection:
            return attempt_store.attempts_of(connection, job.id)

    def reason(self, job: Job) -> str:
        return waiting_reasons.describe(self.services, self.again(job))

    def notices(self, job: Job) -> list[str]:
        return list(notices_of(actions.events(self.services.db, job, 0)))

    def stages(self, job: Job) -> list[Stage]:
        events = list(actions.events(self.services.db, job, 0))
        return [span.name for span in progress.timeline(events)]
