"""Sample what the node and its ranks use while they run, as metrics of the job.

Owns: their names, when they are sampled, that it costs little.
Leaves: the figures to system/resource_use.py and system/gpu_use.py, delivery to relay/relay.py.
Always: it never holds up or fails a job: what can't be measured or kept is left out. Sampling takes
half a percent of a core at most: where it costs more, it becomes rarer.

Names: `system/node-<number>/` and `system/rank-<number>/`, then as MLflow calls the figure.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchyard.shared.plan import LaunchPlan
from torchyard.shared.record_rules import NODE_METRICS, RANK_METRICS
from torchyard.worker.system.resource_use import GroupUse, MachineUse, Shares, TreeUse, Use

if TYPE_CHECKING:
    from torchyard.worker.system.gpu_use import GpuUse

_SHARE = 0.005
# So that jobs of a few seconds have figures, too; shares are counted from this part of it on, so
# that jobs of a moment pay nothing.
_FIRST_S = 2.0
_SETTLES = 0.25
# Steps of a later attempt come after those of the ones before.
_STEPS_PER_ATTEMPT = 10_000_000


class Places(NamedTuple):
    """Where the figures of a node are: its scratch folder and the folders of its cgroup."""

    scratch: Path
    cgroup: Sequence[Path] = ()


class SystemMetrics:
    """Sampled in a thread between `start` and `close`.

    Args:
        ranks: the running ranks: their numbers by pid; called from the thread.
        keep: gets the records; may raise OSError.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        node: int,
        folders: Places,
        ranks: Callable[[], Mapping[int, int]],
        keep: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self._plan = plan
        self._prefix = f"{NODE_METRICS}{node}/"
        self._ranks = ranks
        self._keep = keep
        self._closed = threading.Event()
        self._machine = MachineUse(folders.scratch)
        self._group = GroupUse(folders.cgroup)
        self._trees = TreeUse()
        self._shares = Shares()
        self._steps: dict[str, int] = {}
        self._devices = plan.devices[node] if plan.devices else []
        self._gpus: GpuUse | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="system metrics", daemon=True).start()
        if self._devices:
            from torchyard.worker.system.gpu_use import GpuUse  # Many machines have none.

            self._gpus = GpuUse(self._devices, self._record_gpus, self._plan.system_metrics_s)
            self._gpus.start()

    def close(self) -> None:
        self._closed.set()
        if self._gpus is not None:
            self._gpus.close()

    def bystanders(self) -> Collection[int]:
        """Pids of processes that it has started, for whose end nobody needs to wait."""
        return () if self._gpus is None else self._gpus.pids

    def sample(self) -> dict[str, float]:
        """The figures of the moment by key; shares of CPU time from the second time on."""
        ranks = self._ranks()
        uses = {ranks[pid]: use for pid, use in self._trees.read(ranks).items()}
        figures = {f"{self._prefix}{key}": value for key, value in self._machine.read().items()}
        figures.update(self._of_job(uses))
        for rank, use in uses.items():
            figures.update(self._of(f"{RANK_METRICS}{rank}/process_", "memory_rss", use))
        return figures

    def _of_job(self, uses: Mapping[int, Use]) -> dict[str, float]:
        """By the cgroup, which knows processes that have left their rank's tree, too."""
        cpu_s, memory_bytes = self._group.read()
        if not cpu_s:
            cpu_s = sum(use.cpu_s for use in uses.values())
        if not memory_bytes:
            memory_bytes = sum(use.memory_bytes for use in uses.values())
        return self._of(f"{self._prefix}job_", "memory_usage", Use(cpu_s, memory_bytes))

    def _of(self, prefix: str, memory: str, use: Use) -> dict[str, float]:
        figures = {f"{prefix}{memory}_megabytes": round(use.memory_bytes / 1e6, 3)}
        share = self._shares.percentage(prefix, use.cpu_s)
        if share is not None:
            figures[f"{prefix}cpu_percentage"] = share
        return figures

    def _run(self) -> None:
        pause_s = min(_FIRST_S, self._plan.system_metrics_s)
        settle_s = _SETTLES * pause_s
        if self._closed.wait(settle_s):
            return
        try:
            self.sample()  # what later shares are counted from
            pause_s -= settle_s
            while not self._closed.wait(pause_s):
                began = time.thread_time()
                self._record(self.sample())
                cost_s = time.thread_time() - began
                pause_s = max(self._plan.system_metrics_s, cost_s / _SHARE)
        except Exception as error:
            # A machine like none before must not fail a job.
            print(f"no more system metrics: {error!r}", file=sys.stderr, flush=True)

    def _record_gpus(self, figures: Mapping[str, float]) -> None:
        self._record({f"{self._prefix}{key}": value for key, value in figures.items()})

    def _record(self, figures: Mapping[str, float]) -> None:
        timestamp = time.time_ns() // 1_000_000
        records = []
        for key, value in figures.items():
            step = self._steps.get(key, (self._plan.attempt - 1) * _STEPS_PER_ATTEMPT)
            self._steps[key] = step + 1
            records.append(
                {
                    "kind": "metric",
                    "sampled": True,
                    "run": self._plan.job,
                    "key": key,
                    "value": value,
                    "timestamp": timestamp,
                    "step": step,
                }
            )
        if self._closed.is_set():
            return
        try:
            self._keep(records)
        except OSError as error:
            print(f"system metrics not kept: {error}", file=sys.stderr, flush=True)
