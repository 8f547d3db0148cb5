"""Real workers on this machine, reporting to a stub server.

Always: at the end no process of any attempt is left, or the test fails.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchyard.executors.executor import Handle
from torchyard.executors.local import LocalExecutor
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.processes import Process, read, send
from torchyard.worker.system import cgroups, processes
from worker.stub_server import StubServer, running
from worker.worker_programs import worker_programs

_numbers = itertools.count()


class Bench:
    """`plan` makes a plan, `run` sees it through, `launch` only starts it."""

    def __init__(self, home: Path, server: StubServer) -> None:
        self.home = home
        self.server = server
        self.executor = LocalExecutor(home, os.environ)
        self.plans: list[LaunchPlan] = []

    def plan(self, command: str, **changes: Any) -> LaunchPlan:
        attempt_id = f"t{os.getpid()}-{next(_numbers)}"
        plan = LaunchPlan(
            attempt_id=attempt_id,
            attempt=1,
            job="job-1",
            workspace="default",
            experiment="exp",
            command=command,
            distribution="pytorch",
            server_url=self.server.url,
            report_token="yard_a_" + "a" * 43,
            run_token="yard_r_" + "r" * 43,
            scratch=str(self.home / "scratch" / attempt_id),
            blobs=str(self.server.write_blobs(self.home / "blobs")),
            single_host=True,
            grace_s=1.0,
            variables={"AZUREML_RUN_ID": "job-1"},
        )
        return replace(plan, **changes)

    def launch(self, plan: LaunchPlan) -> Handle:
        self.server.node_count = plan.node_count
        self.plans.append(plan)
        return self.executor.launch(plan)

    def run(self, plan: LaunchPlan, timeout_s: float = 60.0) -> Handle:
        handle = self.launch(plan)
        self.wait(handle, timeout_s)
        return handle

    def wait(self, handle: Handle, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.executor.status(handle).over:
            if time.monotonic() > deadline:
                print(self.worker_log(self.plans[-1]), file=sys.stderr)
                raise AssertionError(f"still running: {self.server.events}")
            time.sleep(0.01)

    def exit(self, node: int = 0) -> dict[str, Any]:
        return self.server.find("node_exited", node)

    def who(self, plan: LaunchPlan, node: int = 0) -> dict[str, Any]:
        """The worker's own record, waited for."""
        file = self.node(plan, node) / "worker.json"
        self.server.wait_until(file.exists, goal=str(file))
        body: dict[str, Any] = json.loads(file.read_text())
        return body

    def node(self, plan: LaunchPlan, node: int = 0) -> Path:
        return Path(plan.scratch) / f"node-{node}"

    def worker_log(self, plan: LaunchPlan, node: int = 0) -> str:
        return (self.node(plan, node) / "worker.log").read_text()

    def left(self, plan: LaunchPlan) -> list[Process]:
        """Processes that carry the mark of the plan's attempt."""
        matching = []
        for node in range(plan.node_count):
            matching += processes.family(-1, processes.mark(plan.attempt_id, node))
        return matching

    def wait_until_none_left(self, plan: LaunchPlan, timeout_s: float = 60.0) -> None:
        self.server.wait_until(lambda: not self.left(plan), timeout_s, "processes to end")

    def close(self) -> None:
        """Stop what still runs; ranks that are left over are an error."""
        left = [process for plan in self.plans for process in self.left(plan)]
        for process in [*left, *self._workers()]:
            send(process.pid, process.start_time, signal.SIGKILL)
        deadline = time.monotonic() + 60.0
        # A supervisor whose worker is dead cleans up; one that never forked is simply killed.
        while supervisors := self._programs():
            if time.monotonic() > deadline or not any(map(self._is_supervisor, supervisors)):
                for process in supervisors:
                    send(process.pid, process.start_time, signal.SIGKILL)
            time.sleep(0.02)
        for plan in self.plans:
            for node in range(plan.node_count):
                cgroups.remove(processes.mark(plan.attempt_id, node))  # of a supervisor killed here
        assert not left, f"left behind: {left}"

    def _workers(self) -> list[Process]:
        return [process for process in self._programs() if self._is_worker(process)]

    def _programs(self) -> list[Process]:
        """Workers and supervisors of this bench's plans."""
        return [process for process, _ in worker_programs(self.home).values()]

    def _is_worker(self, process: Process) -> bool:
        return any(process.pid == who["pid"] for who in self._recorded())

    def _is_supervisor(self, process: Process) -> bool:
        return any(process.pid == who["supervisor"]["pid"] for who in self._recorded())

    def _recorded(self) -> list[dict[str, Any]]:
        files = self.home.glob("scratch/*/node-*/worker.json")
        return [who for file in files if "supervisor" in (who := json.loads(file.read_text()))]


@contextmanager
def bench_in(home: Path) -> Iterator[Bench]:
    with running() as server:
        bench = Bench(home, server)
        try:
            yield bench
        finally:
            bench.close()


def is_alive(pid: int) -> bool:
    process = read(pid)
    return process is not None and not process.ended
