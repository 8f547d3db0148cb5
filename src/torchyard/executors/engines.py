"""All engines of a server behind one executor.

Owns: which executor an attempt goes to, opening an engine when it is first used, what clusters
said of themselves last.
Leaves: starting nodes to them.
Always: a launched attempt stays with the engine that its handle names; an engine that no cluster
uses is neither imported nor opened; a cluster that did not answer in time is left alone for a
while, so that it does not hold up the jobs of others.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from torchyard.base.feature import load
from torchyard.executors.cluster_settings import ClusterSettings, NodeSettings
from torchyard.executors.executor import (
    Engine,
    EngineCluster,
    EngineRefused,
    EngineUnreachable,
    Executor,
    Handle,
    Probing,
    Status,
)
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.runner_client import RunnerClient
from torchyard.executors.server_for_nodes import ServerForNodes
from torchyard.shared.plan import LOCAL, LaunchPlan

Opener = Callable[[], Engine]
_T = TypeVar("_T")
# A refusal that took longer holds up the scheduler. The cluster is asked again after some times as
# long, so that it costs the others at most a part of each round.
_SLOW_S = 0.5
_PAUSES = 3.0
_LONGEST_PAUSE_S = 30.0

ENGINES = ("ray", "slurm")
"""Those beside `local`; each is a folder beside this module, whose module `engine` has
`open_engine`, and `settings` has `SETTINGS`."""


@cache
def settings() -> dict[str, type[ClusterSettings]]:
    """What a cluster's document may say of each engine."""
    further = {engine: load(f"executors.{engine}.settings:SETTINGS") for engine in ENGINES}
    return {LOCAL: ClusterSettings, **further}


def settings_of(engine: str) -> type[ClusterSettings]:
    """The same of one engine, also of one that this installation does not know."""
    return settings().get(engine, NodeSettings)


def openers(
    home: Path,
    environ: Mapping[str, str],
    launches: LaunchFiles,
    server: ServerForNodes,
    runner: RunnerClient | None = None,
) -> dict[str, Opener]:
    """How to open the engines, by name; imports none of them."""
    return {
        engine: partial(_open, engine, home, environ, launches, server, runner)
        for engine in ENGINES
    }


def refused(runner: RunnerClient | None) -> dict[str, EngineRefused]:
    """The engines that may start nothing on this server, with the reason."""
    if runner is None:
        return {}
    return {
        engine: EngineRefused(
            f"jobs on {engine} run as the server's own Unix user, and this server has a runner so "
            "that none do",
            "run a server of your own on a login node; torchyard can't submit as other users yet",
        )
        for engine, model in settings().items()
        if model.runs_as_server and engine != LOCAL
    }


def _open(name: str, *arguments: Any) -> Engine:
    engine: Engine = load(f"executors.{name}.engine:open_engine")(*arguments)
    return engine


class Engines:
    """
    Args:
        local: the engine of this machine's nodes.
        openers: the others, by name.
        refused: engines that may start nothing here, with the reason.
        now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        local: Executor | None = None,
        openers: Mapping[str, Opener] | None = None,
        refused: Mapping[str, EngineRefused] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        # By engine and cluster: until when it is not asked, and what it was like.
        self._silent: dict[tuple[str, ...], tuple[float, EngineUnreachable]] = {}
        self._refused = dict(refused or {})
        self._local_executor = local
        self._openers = dict(openers or {})
        self._opened: dict[str, Engine] = {}
        self._lock = threading.Lock()
        # By engine and settings: when it was asked, and the answer.
        self._views: dict[tuple[str, str], tuple[float, EngineCluster]] = {}

    @property
    def local(self) -> Executor:
        """The engine of this machine's nodes."""
        assert self._local_executor is not None
        return self._local_executor

    @property
    def names(self) -> tuple[str, ...]:
        """The engines that clusters may have."""
        return (LOCAL, *self._openers)

    def launch(self, plan: LaunchPlan) -> Handle:
        if plan.engine == LOCAL:
            return self.local.launch(plan)
        self._check(plan.engine)
        if plan.engine not in self._openers:
            raise EngineRefused(
                f"engine `{plan.engine}` is not served by this server",
                "install torchyard with the extra that brings it",
            )
        engine = self._of(plan.engine)
        return self._ask(plan.engine, plan.engine_settings, lambda: engine.launch(plan))

    def recover(self, plan: LaunchPlan) -> Handle:
        executor = self._executor(plan.engine)
        return self._ask(plan.engine, plan.engine_settings, lambda: executor.recover(plan))

    def status(self, handle: Handle) -> Status:
        executor = self._executor(handle.executor)
        return self._ask(handle.executor, handle.body, lambda: executor.status(handle))

    def stop(self, handle: Handle, grace_s: float) -> None:
        executor = self._executor(handle.executor)
        self._ask(handle.executor, handle.body, lambda: executor.stop(handle, grace_s))

    def probe(self, handle: Handle, silent: Sequence[int], begun: Set[int]) -> Mapping[int, str]:
        """Those of the nodes whose workers are silent because their machines are gone."""
        engine = self._executor(handle.executor)
        if not isinstance(engine, Probing):
            return {}
        return self._ask(handle.executor, handle.body, lambda: engine.probe(handle, silent, begun))

    def release(self, handle: Handle) -> None:
        if not self.is_local(handle.executor):
            engine = self._of(handle.executor)
            self._ask(handle.executor, handle.body, lambda: engine.release(handle))

    def describe(
        self, engine: str, settings: Mapping[str, Any], max_age_s: float = 0.0
    ) -> EngineCluster:
        """What a cluster's engine says, or said at most so long ago.

        Raises:
            EngineUnreachable: with what is wrong, and the next step.
            EngineRefused: it may start nothing here.
        """
        self._check(engine)
        key = (engine, json.dumps(dict(settings), sort_keys=True))
        at, view = self._views.get(key, (0.0, None))
        if view is not None and time.monotonic() - at < max_age_s:
            return view
        asked_at = time.monotonic()
        view = self._of(engine).describe(settings)
        self._silent.pop(_cluster(engine, settings), None)
        self._views[key] = (asked_at, view)
        return view

    def last_view(self, engine: str, settings: Mapping[str, Any]) -> EngineCluster | None:
        """What it said last, however long ago; asks nobody."""
        key = (engine, json.dumps(dict(settings), sort_keys=True))
        return self._views[key][1] if key in self._views else None

    def close(self) -> None:
        """Jobs go on."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for engine in opened.values():
            engine.close()

    def is_local(self, engine: str) -> bool:
        """Whether its attempts work in folders of this machine."""
        return engine not in self._openers and engine not in ENGINES

    def _ask(self, engine: str, body: Mapping[str, Any], question: Callable[[], _T]) -> _T:
        """
        Args:
            body: of a handle, or a cluster's settings.

        Raises:
            EngineUnreachable: the cluster does not answer, or did not a moment ago.
        """
        if self.is_local(engine):
            return question()
        cluster = _cluster(engine, body)
        until, failure = self._silent.get(cluster, (0.0, None))
        started = self._now()
        if failure is not None and started < until:
            raise EngineUnreachable(failure.message, failure.hint)
        try:
            answer = question()
        except EngineUnreachable as error:
            ended = self._now()
            if ended - started > _SLOW_S:
                pause_s = min(_PAUSES * (ended - started), _LONGEST_PAUSE_S)
                self._silent[cluster] = (ended + pause_s, error)
            raise
        self._silent.pop(cluster, None)
        return answer

    def _check(self, engine: str) -> None:
        if engine in self._refused:
            refusal = self._refused[engine]
            raise EngineRefused(refusal.message, refusal.hint)

    def _executor(self, engine: str) -> Executor:
        return self.local if self.is_local(engine) else self._of(engine)

    def _of(self, engine: str) -> Engine:
        with self._lock:
            if engine not in self._opened:
                if engine not in self._openers:
                    raise EngineUnreachable(
                        f"engine `{engine}` is not served by this server",
                        "install torchyard with the extra that brings it",
                    )
                self._opened[engine] = self._openers[engine]()
            return self._opened[engine]


def _cluster(engine: str, body: Mapping[str, Any]) -> tuple[str, ...]:
    settings = body.get("settings", body)
    keys = settings_of(engine).cluster_keys
    return (engine, *(str(settings.get(key) or "") for key in keys))
