"""Releases on fake nodes: real builds of small wheels, and validation jobs that end as a test says.

Owns: the lab, the wheels, what ranks wrote.
Leaves: the jobs' own tests to tests/jobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments import wheels
from jobs import support
from jobs.support import Worker, attempt_of
from torchyard.base.clock import FakeClock
from torchyard.environments import assets, contents
from torchyard.environments.types import EnvironmentAsset
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import job_queries
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.releases import actions, job_types
from torchyard.releases.records.types import RELEASE
from torchyard.releases.running.keeper import Keeper

NAME = "vision"
ONLY = ["interpreter", "requested-imports"]
HARDWARE = {"cpu": "a processor", "cores": 2, "gpus": [], "python": "3.11"}


def entry(id: str, package: str, published: str, **changes: Any) -> dict[str, Any]:
    """An entry of OSV about every version of a package before 3."""
    affected = {
        "package": {"ecosystem": "PyPI", "name": package},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3"}]}],
    }
    return {"id": id, "published": published, "summary": "bad", "affected": [affected], **changes}


@dataclass
class ReleaseLab:
    """One environment and who releases it; `kill` forgets all that the server had in memory."""

    services: Services
    scheduler: Scheduler
    clock: FakeClock
    executor: FakeExecutor
    wheels: Path
    job: str = ""
    wrong_answer: Mapping[str, Any] = field(default_factory=dict)
    """What validation jobs answer of themselves in place of the truth."""
    silent: bool = False
    """Whether they answer nothing."""

    def __post_init__(self) -> None:
        self.services.job_types.update(validation=job_types.VALIDATIONS, release=job_types.RELEASES)
        self.keeper = Keeper(self.services)
        wheels.put(self.wheels, "alpha", "1.0", requires=("beta",))
        wheels.put(self.wheels, "beta", "1.0")

    def register(self, *requirements: str, name: str = NAME, **changes: Any) -> EnvironmentAsset:
        lines = list(requirements or ("alpha>=1,<3",))
        request = assets.read_document({"name": name, "pip_requirements": lines, **changes})
        resolver = self.services.environments.resolver
        asset = assets.register(
            self.services.db, self.clock, support.WORKSPACE, request, "me", resolver.resolve
        )
        spec = resolver.resolve(f"{name}:{asset.version}", support.WORKSPACE)
        self.services.environments.builds.run(spec)
        return asset

    def advise(self, *entries: Mapping[str, Any]) -> None:
        """Make these the workspace's advisories."""
        some = entries or (entry("PYSEC-0", "other", "2020-01-01T00:00:00Z"),)
        set_id = hashlib.sha256(json.dumps(some).encode()).hexdigest()
        piece = {"set": set_id, "entries": list(some), "last": True}
        actions.put_advisories(self.services, support.WORKSPACE, piece, "me")

    def release(self, name: str = NAME, **request: Any) -> dict[str, Any]:
        made = actions.create(
            self.services, RELEASE, support.WORKSPACE, name, {"only": ONLY, **request}, support.ME
        )
        self.job = made["job"]
        return made

    def kill(self) -> None:
        self.keeper.stop()
        self.keeper = Keeper(self.services)

    def round(self) -> None:
        self.clock.advance(1)
        self.keeper.run_all()
        self.scheduler.run_round()

    @property
    def document(self) -> dict[str, Any]:
        return actions.show(self.services.db, support.WORKSPACE, self.job)

    @property
    def gates(self) -> dict[str, str]:
        return {gate["name"]: gate["status"] for gate in self.document["gates"]}

    @property
    def versions(self) -> list[str]:
        listed = assets.list_versions(self.services.db, support.WORKSPACE, NAME)
        return [asset.version for asset in listed]

    def children(self) -> list[Job]:
        return job_queries.list_in(self.services, support.WORKSPACE, parent=self.job)

    def run(self, failing: Mapping[str, str] | None = None, limit: int = 200) -> dict[str, Any]:
        """Until it ends, let every validation job end, its workloads passed but these (name: why).

        A reason that begins with `-` skips the workload.
        """
        for _ in range(limit):
            self.round()
            if self.document["status"] in ("Completed", "Failed", "Canceled"):
                return self.document
            for child in self.children():
                if child.status.value in ("Starting", "Running"):
                    self.write_results(child, failing or {})
                    Worker(self.services, attempt_of(self.services, child)).whole_life()
        raise AssertionError(f"{self.job} is {self.document['status']}")

    def answer(self, job: Job) -> dict[str, Any]:
        """What the job's environment says of itself."""
        resolver, builds = self.services.environments.resolver, self.services.environments.builds
        folder = builds.run(resolver.resolve(job.document["environment"], support.WORKSPACE))
        there = contents.read(folder)
        answer = {"packages": there["packages"], "python": there["python"], "machine": "x86_64"}
        return {**answer, "variables": {}, **self.wrong_answer}

    def write_results(self, job: Job, failing: Mapping[str, str]) -> None:
        """What rank 0 of a validation job leaves behind."""
        lines: list[dict[str, Any]] = [
            {"hardware": HARDWARE, "rank": 0, "ranks": 1},
            *([] if self.silent else [{"answer": self.answer(job), "rank": 0}]),
        ]
        for name in ONLY:
            reason = failing.get(name, "")
            status = "skipped" if reason.startswith("-") else "failed" if reason else "passed"
            row = {"name": name, "rank": 0, "status": status, "reason": reason.lstrip("-")}
            lines.append({**row, "seconds": 0.5, "figures": {} if reason else {"accuracy": 0.97}})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        path = "outputs/validation/rank-0.jsonl"
        with artifacts.writing(self.services.datastores, job, path) as writing:
            writing.write(text.encode())
