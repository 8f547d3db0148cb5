"""Nodes of a cluster that Slurm looks after.

Owns: one job of Slurm per attempt: its submission, state and end.
Leaves: queues and nodes to Slurm, the worker on a node to executors/bootstrap_program.py.
Always: a job is found again by its name, which carries the server's and the attempt's id: an
attempt that is launched twice is one job, and two servers of one account are kept apart.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torchyard.executors import bundle
from torchyard.executors.executor import (
    EngineCluster,
    EngineRefused,
    EngineUnreachable,
    Handle,
    Status,
)
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.runner_client import RunnerClient
from torchyard.executors.server_for_nodes import ServerForNodes
from torchyard.executors.slurm import batch_script, cluster, job_states, limits, pending_reasons
from torchyard.executors.slurm.commands import JobRow, Slurm
from torchyard.executors.slurm.durations import UNLIMITED, seconds
from torchyard.executors.slurm.polling import Poll
from torchyard.executors.slurm.settings import SlurmSettings
from torchyard.shared.node_start import NodeStart
from torchyard.shared.plan import LaunchPlan

NAME = "slurm"
_KILL_POLL_S = 0.5
_PARTITIONS_S = 30.0
# After its grace a node still uploads outputs and logs.
_DELIVERY_S = 60.0


def open_engine(
    home: Path,
    environ: Mapping[str, str],
    launches: LaunchFiles,
    server: ServerForNodes,
    runner: RunnerClient | None = None,
) -> SlurmEngine:
    """The engine of one server; it asks Slurm nothing before it is used, and no runner ever: Slurm
    starts jobs as who submits them.
    """
    return SlurmEngine(home, environ, launches, server)


class SlurmEngine:
    """
    Args:
        home: where the worker's zip and the locks of submissions are kept.
        environ: the server's own.
        launches: where nodes' plans are kept until they ask for them.
        server: how nodes reach it.
    """

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        launches: LaunchFiles,
        server: ServerForNodes,
    ) -> None:
        self._home = home
        self._environ = dict(environ)
        self._launches = launches
        self._server = server
        self._lock = threading.Lock()
        self._closed = threading.Event()
        # By the path of slurm.conf.
        self._clusters: dict[str, tuple[Slurm, Poll]] = {}
        self._partitions: dict[SlurmSettings, tuple[float, dict[str, str]]] = {}

    def launch(self, plan: LaunchPlan) -> Handle:
        settings = SlurmSettings.of_cluster(plan.engine_settings)
        slurm, _ = self._cluster(settings.config)
        name = self._job_name(plan.attempt_id)
        words, script = self._words(plan, settings, name), self._script(plan, settings)
        with self._submission(plan.attempt_id) as lock:
            was_begun = self._launches.read(plan.attempt_id) is not None
            job = _found(slurm, name) if was_begun else None
            if job is None:
                limits.check(self._partition(slurm, settings), settings, plan.node_count)
                self._launches.keep(plan)
                job = _submitted(slurm, words, script, lock)
        return self._handle(plan, settings, job)

    def recover(self, plan: LaunchPlan) -> Handle:
        # The supervisor on the node has done it.
        settings = SlurmSettings.of_cluster(plan.engine_settings)
        job = _found(self._cluster(settings.config)[0], self._job_name(plan.attempt_id))
        return self._handle(plan, settings, job or 0)

    def status(self, handle: Handle) -> Status:
        body = handle.body
        slurm, _ = self._cluster(str(body["config"]))
        row, age_s = self._row(body)
        if row is not None and row.state == "PENDING" and pending_reasons.is_hopeless(row.reason):
            # Slurm would keep it for ever.
            slurm.cancel(row.id, row.name)
            why = f"Slurm never starts it: {pending_reasons.text(row.reason)} ({row.reason})"
            nodes = job_states.all_nodes("lost", int(body["nodes"]))
            return Status(nodes, lost_because=dict.fromkeys(range(len(nodes)), why))
        status = job_states.status(row, int(body["nodes"]), float(body["signal_s"]))
        return dataclasses.replace(status, age_s=age_s)

    def probe(self, handle: Handle, silent: Sequence[int], begun: Set[int]) -> Mapping[int, str]:
        body = handle.body
        slurm, _ = self._cluster(str(body["config"]))
        row, _ = self._row(body)
        if row is not None and row.state == "PENDING":
            # Older than what they have reported, perhaps.
            row = self._row_now(slurm, body)
        if row is None or row.state in job_states.OVER:
            return {}
        if row.state == "PENDING":  # they have reported, so it ran before
            return dict.fromkeys(silent, "Slurm has put its job back into the queue")
        names = list(cluster.names_of(row.nodes))
        nodes = {node: names[node] for node in silent if node < len(names)}
        silent_nodes = {node for node, name in nodes.items() if not cluster.answers(slurm, name)}
        lost = {
            node: f"{nodes[node]}: the machine does not respond any more" for node in silent_nodes
        }
        # Asked only when all answer: it would wait for a machine that is gone.
        listed = None if lost else slurm.step_nodes(row.id)
        alive = {name for part in listed or () for name in cluster.names_of(part)}
        if listed is not None:
            ended = "Slurm's processes of the job have ended there"
            absent = {node: name for node, name in nodes.items() if name not in alive}
            lost = {node: f"{name}: {ended}" for node, name in absent.items() if node in begun}
        return lost

    def stop(self, handle: Handle, grace_s: float) -> None:
        body = handle.body
        slurm, poll = self._cluster(str(body["config"]))
        job, state = int(body["job"]), self._state(body)
        if job and grace_s > 0 and state == "PENDING":
            # It may have begun since.
            row = self._row_now(slurm, body)
            state = row.state if row else "COMPLETED"
        if not job or state in job_states.OVER:
            return
        name = self._job_name(str(body["attempt"]))
        if grace_s <= 0 or state == "PENDING":
            slurm.cancel(job, name, "KILL")
            slurm.cancel(job, name)
        else:
            slurm.cancel(job, name, "TERM")
            args = (slurm, body, name, grace_s)
            threading.Thread(target=self._kill_later, args=args, daemon=True).start()
        poll.forget(job)

    def release(self, handle: Handle) -> None:
        """A job that has ended leaves nothing in Slurm; one that has not is ended."""
        body = handle.body
        slurm, _ = self._cluster(str(body["config"]))
        if body["job"] and self._state(body) not in job_states.OVER:
            slurm.cancel(int(body["job"]), self._job_name(str(body["attempt"])))
        with suppress(FileNotFoundError):
            self._lock_file(str(body["attempt"])).unlink()

    def describe(self, settings: Mapping[str, Any]) -> EngineCluster:
        read = SlurmSettings.of_cluster(settings)
        view = cluster.describe(self._cluster(read.config)[0], read)
        self._server.check_reachable(settings, view.nodes)
        return view

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            clusters, self._clusters = self._clusters, {}
        for _, poll in clusters.values():
            poll.close()

    def _cluster(self, config: str) -> tuple[Slurm, Poll]:
        with self._lock:
            if self._closed.is_set():
                raise EngineUnreachable("the server is shutting down", "start it again")
            if config not in self._clusters:
                slurm = Slurm(self._environ, config)
                self._clusters[config] = (slurm, Poll(slurm))
            return self._clusters[config]

    def _partition(self, slurm: Slurm, settings: SlurmSettings) -> dict[str, str]:
        at, partition = self._partitions.get(settings, (0.0, {}))
        if not at or time.monotonic() - at > _PARTITIONS_S:
            partition = limits.partition_of(slurm, settings)
            self._partitions[settings] = (time.monotonic(), partition)
        return partition

    def _job_name(self, attempt_id: str) -> str:
        return f"torchyard-{self._server.server_id[:16]}-{attempt_id}"

    def _comment(self, plan: LaunchPlan) -> str:
        return f"torchyard server {self._server.server_id} attempt {plan.attempt_id}"

    def _words(self, plan: LaunchPlan, settings: SlurmSettings, name: str) -> list[str]:
        words = [
            f"--job-name={name}",
            f"--comment={self._comment(plan)}",
            f"--nodes={plan.node_count}",
            f"--ntasks={plan.node_count}",
            "--ntasks-per-node=1",
            "--no-requeue",
            "--export=ALL",
            "--output=/dev/null",
            "--error=/dev/null",
            "--chdir=/",
            f"--signal=TERM@{_signal_s(plan, settings)}",
        ]
        if plan.cores:
            words.append(f"--cpus-per-task={plan.cores}")
        if plan.memory_bytes:
            words.append(f"--mem={plan.memory_bytes >> 20}M")
        elif settings.exclusive:
            words.append("--mem=0")
        if plan.gpus_per_node and not settings.gres:
            words.append(f"--gres=gpu:{plan.gpus_per_node}")
        return words + settings.words

    def _script(self, plan: LaunchPlan, settings: SlurmSettings) -> str:
        start = NodeStart(
            attempt_id=plan.attempt_id,
            server_urls=plan.server_urls,
            report_token=plan.report_token,
            worker=bundle.worker_sha256(self._home),
            server_id=plan.server_id,
            server_certificate=plan.server_certificate,
            folder=settings.node_folder,
        )
        return batch_script.text(start, settings.python, self._comment(plan))

    def _handle(self, plan: LaunchPlan, settings: SlurmSettings, job: int) -> Handle:
        body = {
            "attempt": plan.attempt_id,
            "job": job,
            "nodes": plan.node_count,
            "config": settings.config,
            "signal_s": _signal_s(plan, settings),
        }
        return Handle(NAME, body)

    @contextmanager
    def _submission(self, attempt_id: str) -> Iterator[int]:
        """Held while a submission is under way: also by an sbatch that outlives its server.

        Raises:
            EngineUnreachable: another submission of the attempt has not ended.
        """
        file = self._lock_file(attempt_id)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise EngineUnreachable("it is being submitted to Slurm") from error
            yield descriptor
        finally:
            os.close(descriptor)

    def _lock_file(self, attempt_id: str) -> Path:
        return self._home / "slurm" / f"{Path(attempt_id).name}.lock"

    def _row(self, body: Mapping[str, Any]) -> tuple[JobRow | None, float]:
        """What Slurm says of an attempt's job, and how many seconds ago.

        A controller that was killed may have given its id to another job since.
        """
        _, poll = self._cluster(str(body["config"]))
        row, age_s = poll.row(int(body["job"])) if body["job"] else (None, 0.0)
        is_it = row is not None and row.name == self._job_name(str(body["attempt"]))
        return row if is_it else None, age_s

    def _row_now(self, slurm: Slurm, body: Mapping[str, Any]) -> JobRow | None:
        """As `_row`, asked for now."""
        row = slurm.jobs([int(body["job"])]).get(int(body["job"]))
        is_it = row is not None and row.name == self._job_name(str(body["attempt"]))
        return row if is_it else None

    def _state(self, body: Mapping[str, Any]) -> str:
        row, _ = self._row(body)
        return row.state if row else "COMPLETED"

    def _kill_later(self, slurm: Slurm, body: Mapping[str, Any], name: str, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        with suppress(EngineUnreachable, EngineRefused):
            while time.monotonic() < deadline:
                if self._state(body) in job_states.OVER or self._closed.wait(_KILL_POLL_S):
                    return
            slurm.cancel(int(body["job"]), name, "KILL")
            slurm.cancel(int(body["job"]), name)


def _submitted(slurm: Slurm, words: Sequence[str], script: str, lock: int) -> int:
    try:
        return slurm.submit(words, script, [lock])
    except EngineRefused as refusal:
        if cluster.is_passing(refusal, cluster.nodes_of(slurm), slurm):
            raise EngineUnreachable(refusal.message, "nodes are down: see `sinfo -R`") from refusal
        raise


def _found(slurm: Slurm, name: str) -> int | None:
    """The attempt's job, if it was submitted; of several the first, and the others are ended."""
    jobs: list[JobRow] = slurm.jobs_named(name) or slurm.past_jobs_named(name)
    for other in jobs[1:]:
        if other.state not in job_states.OVER:
            slurm.cancel(other.id, name)
    return jobs[0].id if jobs else None


def _signal_s(plan: LaunchPlan, settings: SlurmSettings) -> int:
    """How long before its time limit a job is asked to end."""
    notice_s = int(plan.grace_s + _DELIVERY_S)
    limit = seconds(settings.time_limit)
    return min(notice_s, int(limit / 3)) if limit and limit != UNLIMITED else notice_s
