"""What the server's metrics are, beside those of its requests.

Owns: jobs, queue, nodes, scheduler, database, disk, process: their names and where each is read.
Leaves: counting requests to requests.py, the text to exposition.py, SQL to jobs and compute.
Always: no name of a person, workspace, cluster or job is a label; a scrape costs a few queries that
an index answers, and what grows with the history is counted once a minute.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torchyard
from torchyard.app.monitoring.exposition import Family, Sample, by_label, counter, gauge
from torchyard.app.monitoring.probes import OK, Probes
from torchyard.base.errors import TorchyardError
from torchyard.base.home import backup_record
from torchyard.compute import actions as computes
from torchyard.jobs.requests import statistics
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import FileServices
from torchyard.shared import processes
from torchyard.workspaces.audit import Audit

_ENDED_KEPT_S = 60.0
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class ServerMetrics:
    """Reads the numbers of one server process and its home; for any thread."""

    def __init__(
        self, services: FileServices, scheduler: Scheduler, probes: Probes, audit: Audit
    ) -> None:
        self._services = services
        self._scheduler = scheduler
        self._probes = probes
        self._audit = audit
        self._lock = threading.Lock()
        self._ended: dict[str, int] = {}
        self._ended_until = float("-inf")

    def families(self) -> Iterator[Family]:
        yield Family(
            "torchyard_build_info",
            "The version of torchyard.",
            "gauge",
            (Sample(1, {"version": torchyard.__version__}),),
        )
        ping_s = self._probes.ping_database()
        yield gauge(
            "torchyard_database_up", "Whether the database answers.", float(ping_s is not None)
        )
        if ping_s is not None:
            yield gauge("torchyard_database_ping_seconds", "Time of the smallest query.", ping_s)
            try:
                yield from self._of_jobs()
            except TorchyardError:
                pass  # It was lost in between; the next scrape says that it is not up.
        yield from self._of_scheduler()
        yield from self._of_audit()
        yield from _of_backups(self._services.home)
        yield from _of_disk(self._services.home)
        yield from _of_process()

    def _of_jobs(self) -> Iterator[Family]:
        services = self._services
        live = statistics.live_jobs(services)
        yield by_label(
            "torchyard_jobs",
            "Jobs by status, of all workspaces. Ended ones are counted once a minute.",
            "gauge",
            "status",
            sorted({**live, **self._ended_jobs()}.items()),
        )
        queue = statistics.queue(services)
        yield gauge("torchyard_queue_jobs", "Jobs that wait for nodes.", queue.jobs)
        yield gauge("torchyard_queue_nodes", "Nodes that they wait for.", queue.nodes)
        yield gauge(
            "torchyard_queue_oldest_seconds",
            "Age of the oldest job that waits for nodes; 0 if none does.",
            queue.oldest_s,
        )
        nodes = computes.count_nodes(services.db)
        yield by_label(
            "torchyard_nodes",
            "Nodes of all clusters: held by a job, idle, and the most that there may be.",
            "gauge",
            "state",
            [("held", nodes.held), ("idle", nodes.idle), ("maximum", nodes.maximum)],
        )

    def _ended_jobs(self) -> dict[str, int]:
        with self._lock:
            if time.monotonic() >= self._ended_until:
                self._ended = dict(statistics.ended_jobs(self._services))
                self._ended_until = time.monotonic() + _ENDED_KEPT_S
            return self._ended

    def _of_scheduler(self) -> Iterator[Family]:
        rounds = self._scheduler.rounds
        yield counter("torchyard_scheduler_rounds_total", "Rounds that ended.", rounds.count)
        yield counter(
            "torchyard_scheduler_failed_rounds_total",
            "Rounds of which a part failed.",
            rounds.failed,
        )
        yield counter("torchyard_scheduler_seconds_total", "Time that rounds took.", rounds.total_s)
        yield gauge(
            "torchyard_scheduler_last_round_age_seconds",
            "Time since a round ended; it grows if the scheduler hangs.",
            rounds.age_s(),
        )
        yield by_label(
            "torchyard_ready",
            "The checks of /readyz: 1 if the part works.",
            "gauge",
            "check",
            [(name, float(word == OK)) for name, word in self._probes.checks().items()],
        )

    def _of_audit(self) -> Iterator[Family]:
        audit = self._audit
        yield counter("torchyard_audit_lines_total", "Audit lines written.", audit.written)
        sink = audit.sink
        lost = [("log", float(audit.failed)), ("sink", float(sink.lost if sink else 0))]
        yield by_label(
            "torchyard_audit_lost_lines_total",
            "Audit lines that could not be written to the log, or sent to the sink.",
            "counter",
            "place",
            lost,
        )
        waiting = sink.waiting if sink else 0
        yield gauge("torchyard_audit_sink_backlog", "Lines that wait for the sink.", waiting)


def _of_backups(home: Path) -> Iterator[Family]:
    """Times are 0 for what has not been, so that an alert on their age notices it."""
    record = backup_record.read(home)
    yield gauge(
        "torchyard_backup_timestamp_seconds",
        "Time of the last backup, since 1970; 0 without one.",
        record.backup.at.timestamp() if record.backup else 0,
    )
    yield gauge(
        "torchyard_backup_proof_timestamp_seconds",
        "Time of the last proof of a backup, since 1970; 0 without one.",
        record.proof.at.timestamp() if record.proof else 0,
    )
    yield gauge(
        "torchyard_backup_proof_held",
        "Whether the last proof held: 1, or 0, also without one.",
        float(record.proof is not None and record.proof.held),
    )
    yield gauge(
        "torchyard_backup_failed",
        "Whether the server's own last backup failed, or could not be proved.",
        float(record.scheduled is not None and bool(record.scheduled.error)),
    )


def _of_disk(home: Path) -> Iterator[Family]:
    try:
        disk = os.statvfs(home)
    except OSError:
        return
    yield gauge(
        "torchyard_home_disk_free_bytes",
        "Free space on the disk of the home folder, for the server's user.",
        disk.f_bavail * disk.f_frsize,
    )
    yield gauge(
        "torchyard_home_disk_size_bytes",
        "Size of the disk of the home folder.",
        disk.f_blocks * disk.f_frsize,
    )
    yield gauge(
        "torchyard_home_disk_free_inodes", "Files that can still be created there.", disk.f_favail
    )


def _of_process() -> Iterator[Family]:
    """Under the names that Prometheus' own libraries use."""
    times = os.times()
    yield counter("process_cpu_seconds_total", "CPU time of the server.", times.user + times.system)
    status = _status()
    yield gauge("process_resident_memory_bytes", "Its memory.", status.get("VmRSS", 0) << 10)
    yield gauge("process_virtual_memory_bytes", "Its addresses.", status.get("VmSize", 0) << 10)
    yield gauge("torchyard_process_threads", "Its threads.", status.get("Threads", 0))
    yield gauge("process_open_fds", "Its open files.", len(os.listdir("/proc/self/fd")))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield gauge("process_max_fds", "The most files that it may open.", limit)
    started_s = processes.start_time(os.getpid()) / _CLOCK_TICKS + _boot_time_s()
    yield gauge("process_start_time_seconds", "When it started, since 1970.", round(started_s, 2))


def _status() -> dict[str, int]:
    """The numbers of /proc/self/status; sizes in KiB."""
    numbers = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        word = value.split()
        if word and word[0].isdecimal():
            numbers[name] = int(word[0])
    return numbers


def _boot_time_s() -> float:
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0
