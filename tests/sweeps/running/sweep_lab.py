"""A sweep on fake nodes: its keeper's rounds, and trials that end as a test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs import support
from jobs.support import Worker, attempt_of
from torchyard.base.clock import FakeClock
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions as jobs
from torchyard.jobs.history.history_records import Metric
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.sweeps import actions
from torchyard.sweeps.records.types import Trial
from torchyard.sweeps.running.keeper import Keeper
from torchyard.sweeps.stopping.rungs import RungResult

SWEEP: dict[str, Any] = {
    "type": "sweep",
    "name": "tuning",
    "trial": {
        "command": "python train.py --lr ${{search_space.lr}}",
        "environment": "python",
    },
    "search_space": {"lr": {"type": "uniform", "min_value": 0.01, "max_value": 0.1}},
    "sampling_algorithm": {"type": "random", "seed": 7},
    "objective": {"goal": "minimize", "primary_metric": "loss"},
    "limits": {"max_total_trials": 4, "max_concurrent_trials": 2},
}


@dataclass
class SweepLab:
    """One sweep and who runs it; `kill` forgets all that the server had in memory."""

    services: Services
    scheduler: Scheduler
    clock: FakeClock
    executor: FakeExecutor
    name: str = "tuning"

    def __post_init__(self) -> None:
        self.services.job_types[actions.TYPE] = actions.JOBS
        self.keeper = Keeper(self.services)

    def create(self, **changes: Any) -> Job:
        document = {**SWEEP, **changes}
        self.name = document["name"]
        return actions.create(self.services, support.WORKSPACE, document, support.ME)[0]

    def kill(self) -> None:
        self.keeper.stop()
        self.keeper = Keeper(self.services)

    def round(self) -> None:
        self.clock.advance(1)
        self.keeper.run_all()
        self.scheduler.run_round()

    @property
    def sweep(self) -> Job:
        return jobs.get(self.services, support.WORKSPACE, self.name)

    def status(self) -> Status:
        return self.sweep.status

    @property
    def trials(self) -> list[Trial]:
        return actions.trials(self.services, self.sweep)

    @property
    def rungs(self) -> list[RungResult]:
        return actions.rungs(self.services, self.sweep)

    def job(self, number: int) -> Job:
        return jobs.get(self.services, support.WORKSPACE, f"{self.name}_{number}")

    def running(self) -> list[int]:
        return [trial.number for trial in self.trials if trial.status in ("Starting", "Running")]

    def log(self, number: int, values: Sequence[float], key: str = "loss") -> None:
        start = self.services.history.counts([self.job(number).id], key).get(self.job(number).id, 0)
        points = [Metric(key, 1000 + n, n, value) for n, value in enumerate(values, start)]
        self.services.history.append(self.job(number).id, points)

    def end(self, number: int, *values: float, key: str = "loss") -> None:
        """Let a running trial log these and complete."""
        self.log(number, values, key)
        Worker(self.services, attempt_of(self.services, self.job(number))).whole_life()

    def fail(self, number: int) -> None:
        worker = Worker(self.services, attempt_of(self.services, self.job(number)))
        worker.tell("node_started", hostname="h", pid=1, addresses=[])
        worker.fails(1)

    def obey_cancel(self, number: int) -> None:
        """Let a running trial end that was asked to stop."""
        attempt = attempt_of(self.services, self.job(number))
        worker = Worker(self.services, attempt)
        worker.tell("node_started", hostname="h", pid=1, addresses=[])
        worker.tell("node_exited", exit_code=-15, error={"code": "canceled", "message": "stopped"})
        self.executor.finish(attempt.id)

    def run(self, loss: Callable[[Mapping[str, Any]], float], limit: int = 100) -> None:
        """Until the sweep ends, let every trial complete with the loss of its parameters."""
        for _ in range(limit):
            self.round()
            if self.sweep.status.ended:
                return
            for number in self.running():
                self.end(number, loss(self.trials[number].parameters))
        raise AssertionError(f"{self.name} is {self.sweep.status.value}")
