"""A queue of 10,000 jobs and 1,000 simulated nodes: decisions, memory, and who waits for them.

    python benchmarks/scheduling.py [--jobs 10000] [--nodes 1000] [--seconds 60]
        [--database postgresql://…/empty-database]

Nothing is started: an executor that pretends, and workers that report in the server's own process
what real ones would send. There is no peer in the table: what could be had cheaply either has no
gangs of nodes (task queues), or needs a daemon for every node (Slurm). Beside each look at the
queue stands the plain way to do it: read every queued job, then decide.
"""

from __future__ import annotations

import argparse
import heapq
import http.client
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from figures import clean_variables, remove
from server import wait_for_answer
from sqlalchemy import insert, update

from torchyard.app import application as apps
from torchyard.base.clock import to_text
from torchyard.base.db import Database
from torchyard.compute import actions as computes
from torchyard.environments.types import EnvironmentSpec
from torchyard.executors.executor import Handle, Status
from torchyard.jobs.admission import machine, queue, queue_store, shares
from torchyard.jobs.admission.queue import Waiting
from torchyard.jobs.attempts import node_reports, report_fields
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Status as JobStatus
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.shared.plan import LaunchPlan

CLUSTER = "big"
SIZES = (1, 1, 1, 1, 2, 2, 4, 8)
# How long the jobs run that fill the nodes, and the later ones: so many end in a second that the
# server has to keep up, not the jobs.
FIRST_RUN_S, RUN_S = (4.0, 8.0), (0.5, 2.0)
_ROWS = 500


class Environments:
    """Every environment is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.resolver = self.builds = self.folders = self.images = self

    def resolve(self, definition: Any) -> EnvironmentSpec:
        return EnvironmentSpec("3.11", (str(definition),), "benchmark")

    def find(self, spec: EnvironmentSpec) -> Path:
        return self._folder

    use = find

    def plan(self, folder: Path) -> None:
        return None


class Simulation:
    """An executor, and its workers: they report when their ranks start, and when they end."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        self.started = 0
        # When the nodes were full for the first time, and how many jobs had started then.
        self.filled: tuple[float, int] | None = None
        self._free = nodes
        self.ended = 0
        # Processor seconds of what workers do themselves, in processes of their own.
        self.own_s = 0.0
        self.services: Services | None = None
        self._chance = random.Random(seed)
        self._states: dict[str, list[Any]] = {}
        self._due: list[tuple[float, int, str, int, bool]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def launch(self, plan: LaunchPlan) -> Handle:
        now = time.monotonic()
        with self._lock:
            if plan.attempt_id not in self._states:
                self.started += 1
                self._free -= plan.node_count
                if self._free < max(SIZES) and self.filled is None:
                    self.filled = (now, self.started)
                length_s = self._chance.uniform(*(RUN_S if self.filled else FIRST_RUN_S))
                self._states[plan.attempt_id] = ["running"] * plan.node_count
                for at, ends in ((now, False), (now + length_s, True)):
                    entry = (at, next(self._numbers), plan.attempt_id, plan.node_count, ends)
                    heapq.heappush(self._due, entry)
        return Handle("simulated", {"id": plan.attempt_id, "nodes": plan.node_count})

    recover = launch

    def status(self, handle: Handle) -> Status:
        return Status(tuple(self._states.get(handle.body["id"], ())))

    def stop(self, handle: Handle, grace_s: float) -> None: ...

    def live(self, stopping: threading.Event) -> None:
        """Report what is due, one node after the other."""
        while not stopping.wait(0.01):
            self.report_all(self._due_now())

    def _due_now(self) -> list[tuple[str, int, bool]]:
        due = []
        with self._lock:
            while self._due and self._due[0][0] <= time.monotonic():
                due.append(heapq.heappop(self._due)[2:])
        return due

    def report_all(self, due: Sequence[tuple[str, int, bool]]) -> None:
        """Each node of these attempts reports for itself, as workers do."""
        for attempt_id, nodes, ends in due:
            for node in range(nodes):
                self._report(attempt_id, node, ends)
            if ends:
                self.ended += 1
                with self._lock:
                    self._free += nodes
                self._states[attempt_id] = ["exited"] * nodes

    def _report(self, attempt_id: str, node: int, ends: bool) -> None:
        assert self.services is not None
        begun = time.thread_time()
        at = to_text(self.services.clock.now())
        facts: list[tuple[str, dict[str, Any]]] = [("ranks_started", {"ranks": []})]
        if ends:
            facts = [("node_finalizing", {}), ("node_exited", {"exit_code": 0, "error": None})]
        events = [
            {"seq": number + (1 if ends else 0), "at": at, "kind": kind, "body": body}
            for number, (kind, body) in enumerate(facts)
        ]
        self.own_s += time.thread_time() - begun
        node_events = report_fields.read_events(node, events)
        node_reports.receive(self.services, attempt_id, node, node_events)


def built(home: Path, database: str, url: str, nodes: int) -> tuple[apps.Parts, Simulation]:
    """A server's parts over a home of its own, with a cluster and nothing real behind it."""
    simulation = Simulation(nodes)
    parts = apps.build(home, url, {}, executor=simulation, database=database)
    pretended: Any = Environments(home)
    services = replace(parts.services, environments=pretended)
    simulation.services = services
    document = {"name": CLUSTER, "max_instances": nodes}
    computes.create(services.db, services.clock, "default", document, home=home)
    scheduler = Scheduler(services, simulation, url)
    return apps.Parts(**{**vars(parts), "services": services, "scheduler": scheduler}), simulation


def fill(services: Services, count: int, sizes: Sequence[int], seed: int = 2) -> None:
    """Jobs that wait for nodes, as they stand in the tables once they are prepared."""
    chance = random.Random(seed)
    body = {"command": "python train.py --epochs 3", "environment": "python", "compute": CLUSTER}
    environment = EnvironmentSpec("3.11", ("python",), "benchmark")
    from torchyard.jobs import actions
    from torchyard.jobs.records import names

    with services.db.write() as connection:
        experiment = actions.ensure_experiment(connection, services.clock, "default", "Default")
        last = connection.execute(store.jobs.select().order_by(store.jobs.c.id.desc()).limit(1))
        first = (last.scalar() or 0) + 1
        now = services.clock.now()
        rows = [
            {
                **{"id": first + number, "workspace": "default", "name": names.generate()},
                **{"type": "command", "experiment_id": experiment.id, "status": "Queued"},
                **{"owner": f"user{number % 20}", "display_name": "job", "spec": body},
                **{"spec_hash": "0" * 64, "environment": environment.to_json()},
                **{"environment_hash": environment.hash, "compute": CLUSTER},
                **{"node_count": chance.choice(sizes), "processes_per_node": 1},
                **{"created_at": now, "tags": {}, "properties": {}, "parent": "", "attempt": 0},
                **{"deleted": False, "archived": False, "description": ""},
                **{"priority_rank": chance.choice([0, 1, 1, 1, 2])},
                **{"limit_s": chance.choice([None, None, 600.0, 3600.0])},
            }
            for number in range(count)
        ]
        for start in range(0, count, _ROWS):
            some = rows[start : start + _ROWS]
            connection.execute(insert(store.jobs), some)
            connection.execute(
                insert(store.events),
                [
                    {"job_id": row["id"], "seq": 1, "at": now, "kind": "stage", "body": _SCALING}
                    for row in some
                ],
            )
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT setval('jobs_id_seq', (SELECT max(id) FROM jobs))")


_SCALING = {"stage": "Scaling", "state": "start", "waited_for": ""}


def plainly(services: Services) -> int:
    """The obvious way: every queued job is read, then sorted and looked at."""
    now = services.clock.now()
    with services.db.read() as connection:
        every = shares.read(connection, machine.bounds(services))
        jobs = store.jobs_in(connection, [JobStatus.QUEUED])
        running = [
            every.running(job, now.timestamp()) for job in queue_store.list_running(connection)
        ]
    waiting = [
        Waiting(job.id, job.compute, every.needs(job), job.priority_rank, job.limit_s or 0.0)
        for job in jobs
    ]
    return len(queue.decide(waiting, every.capacity, running).starts)


def median_ms(call: Callable[[], Any], tries: int = 15) -> float:
    took = []
    for _ in range(tries):
        begun = time.process_time()
        call()
        took.append((time.process_time() - begun) * 1000)
    return sorted(took)[tries // 2]


def growth(jobs: int, nodes: int, new_home: Callable[[], tuple[Path, str]]) -> None:
    """One round, as the queue grows tenfold; the cluster is full but for what the head needs."""
    print(f"\none round with {nodes} nodes busy, median ms of CPU")
    print(f"  {'queued jobs':44}{jobs // 10:>10}{jobs:>10}{'growth':>9}")
    table: dict[str, list[float]] = {}
    for count in (jobs // 10, jobs):
        home, database = new_home()
        parts, simulation = built(home, database, "http://127.0.0.1:1", nodes)
        services, scheduler = parts.services, parts.scheduler
        # Running jobs have four nodes each and waiting ones need eight: four stay free.
        fill(services, nodes // 4 - 1, (4,))
        while median_ms(scheduler.claimer.claim, 1) and simulation.started < nodes // 4 - 1:
            pass
        fill(services, count, (8,), seed=3)
        with services.db.write() as connection:
            # All workers were heard of, however long it took to get here.
            seen_at = services.clock.now() + timedelta(hours=1)
            connection.execute(update(attempt_store.attempt_nodes).values(seen_at=seen_at))
        rows: dict[str, Callable[[], object]] = {
            "the queue, nobody fits (4 free, all need 8)": scheduler.claimer.claim,
            "the same, every job read (the plain way)": partial(plainly, services),
            "waiting jobs' environments and inputs": scheduler.preparer.prepare,
            "workers that are gone": scheduler.watcher.watch,
            "heartbeats": scheduler._heartbeats.check,
            "everything": scheduler.run_round,
        }
        for name, call in rows.items():
            tries = 5 if "plain" in name else 15
            table.setdefault(name, []).append(median_ms(call, tries))
        table.setdefault("one job ends, the next starts", []).append(each_alone(parts, simulation))
        scheduler.preparer.close()
        services.db.close()
    for name, (small, large) in table.items():
        print(f"  {name:44}{small:10.1f}{large:10.1f}{large / small:8.1f}x")


def filling(jobs: int, nodes: int, new_home: Callable[[], tuple[Path, str]]) -> None:
    """All nodes are free, and the queue is full: how fast they are given out."""
    print(f"\n{nodes} nodes are filled")
    for count in (jobs // 10, jobs):
        parts, simulation = built(*new_home(), "http://127.0.0.1:1", nodes)
        fill(parts.services, count, SIZES)
        begun, before = (time.perf_counter(), time.process_time()), -1
        while simulation.started > before:
            before = simulation.started
            parts.scheduler.claimer.claim()
        wall_s, cpu_s = time.perf_counter() - begun[0], time.process_time() - begun[1]
        print(
            f"  {count:6} queued: {before} decisions, {before / cpu_s:6.0f} a second of CPU, "
            f"{before / wall_s:6.0f} a second on this machine as it is"
        )
        parts.scheduler.preparer.close()
        parts.services.db.close()


def each_alone(parts: apps.Parts, simulation: Simulation, tries: int = 15) -> float:
    """Jobs of eight nodes take what two of four gave back: a round that makes one decision."""
    took = []
    for number in range(tries):
        with parts.services.db.read() as connection:
            going = [job for job in queue_store.list_running(connection) if job.node_count == 4]
        for job in going[: 1 if not number else 2]:
            simulation.report_all([(job.attempt_id, 4, False)])
            simulation.report_all([(job.attempt_id, 4, True)])
        before = simulation.started
        begun = time.process_time()
        parts.scheduler.claimer.claim()
        took.append((time.process_time() - begun) * 1000)
        assert simulation.started == before + 1
    return sorted(took)[tries // 2]


# The whole server


def serve(arguments: argparse.Namespace) -> None:
    """The server's process: everything real but what is launched."""
    import resource
    import socket

    import uvicorn

    home = Path(arguments.home)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    parts, simulation = built(home, arguments.database, url, arguments.nodes)
    empty_mb = _resident_mb()
    fill(parts.services, arguments.jobs, SIZES)
    token = _token(parts)
    started = parts.scheduler.start
    parts.scheduler.start = lambda: None  # type: ignore[method-assign]
    stopping = threading.Event()
    threading.Thread(
        target=simulation.live, args=(stopping,), name="simulation", daemon=True
    ).start()
    server = uvicorn.Server(uvicorn.Config(apps.create_app(parts), port=port, log_level="error"))

    def orders() -> None:
        begun = 0.0
        for line in sys.stdin:
            if line.strip() == "begin":
                started()
                begun = time.monotonic()
            filled_at, filled = simulation.filled or (0.0, 0)
            events = {
                "filled": filled,
                "filled_s": max(0.0, filled_at - begun),
                "simulation_s": simulation.own_s,
                "threads": _thread_seconds(),
                "started": simulation.started,
                "ended": simulation.ended,
                "memory_mb": _resident_mb(),
                "cpu_s": time.process_time(),
                "most_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "trouble": parts.scheduler.trouble,
            }
            print(json.dumps(events), flush=True)
        stopping.set()
        server.should_exit = True

    threading.Thread(target=orders, daemon=True).start()
    print(json.dumps({"url": url, "token": token, "empty_mb": empty_mb}), flush=True)
    server.run()


def _thread_seconds() -> dict[str, float]:
    """Processor seconds of the threads that run, by name; of a pool together."""
    seconds: dict[str, float] = {}
    for thread in threading.enumerate():
        if thread.ident is not None:
            clock = time.pthread_getcpuclockid(thread.ident)
            name = thread.name.partition("-")[0] if "AnyIO" in thread.name else thread.name
            seconds[name] = seconds.get(name, 0.0) + time.clock_gettime(clock)
    return seconds


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def _token(parts: apps.Parts) -> str:
    from torchyard.workspaces import people

    with parts.services.db.write() as connection:
        return people.home_token(connection, "me", parts.services.clock.now())


def measure_whole_server(arguments: argparse.Namespace, home: Path, database: str) -> None:
    """Fill the nodes, then let jobs end and others start, while somebody asks for the list."""
    command = [sys.executable, __file__, "--serve", "--home", str(home), "--database", database]
    command += ["--jobs", str(arguments.jobs), "--nodes", str(arguments.nodes)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_variables()
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        requests, answers = process.stdin, process.stdout
        try:
            server = json.loads(answers.readline())

            def ask(verb: str) -> dict[str, Any]:
                requests.write(verb + "\n")
                requests.flush()
                events: dict[str, Any] = json.loads(answers.readline())
                return events

            idle = listed(server, lambda: False, 5.0)
            begun = time.monotonic()
            ask("begin")
            marks: list[tuple[float, dict[str, Any]]] = []

            def sample() -> bool:
                if not marks or time.monotonic() - begun > marks[-1][0] + 1:
                    marks.append((time.monotonic() - begun, ask("how")))
                return False

            busy = listed(server, sample, arguments.seconds)
            marks.append((time.monotonic() - begun, ask("how")))
            tell(server, arguments.jobs, marks, idle, busy)
        finally:
            process.stdin.close()
            process.wait(30)


def listed(server: dict[str, Any], meanwhile: Callable[[], bool], seconds: float) -> list[float]:
    """Milliseconds of each `GET …/jobs`, one after the other."""
    connection = http.client.HTTPConnection(urlsplit(server["url"]).netloc, timeout=120)
    wait_for_answer(server["url"] + "/health", time.monotonic())
    headers = {"Authorization": f"Bearer {server['token']}"}
    took: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.perf_counter()
        connection.request("GET", "/v1/workspaces/default/jobs?limit=50", headers=headers)
        answer = connection.getresponse()
        content = answer.read()
        took.append((time.perf_counter() - begun) * 1000)
        assert answer.status == 200, content
        meanwhile()
        time.sleep(0.01)
    return took


def tell(
    server: dict[str, Any],
    jobs: int,
    marks: list[tuple[float, dict[str, Any]]],
    idle: list[float],
    busy: list[float],
) -> None:
    last_s, last = marks[-1]
    print(f"\nthe whole server, {last_s:.0f} s")
    rate = last["filled"] / max(last["filled_s"], 0.001)
    print(f"  decisions/s while nodes are filled      {rate:8.0f}   (in {last['filled_s']:.1f} s)")
    # From when the jobs that filled the nodes have ended, for as long as some are queued.
    steady = [
        (at, events)
        for at, events in marks
        if at > last["filled_s"] + FIRST_RUN_S[1] and events["started"] < jobs - 500
    ]
    if len(steady) > 1:
        (from_s, first), (until_s, final) = steady[0], steady[-1]
        done = final["started"] - first["started"]
        print(f"  decisions/s while as many end           {done / (until_s - from_s):8.0f}")
        cpu_s = final["cpu_s"] - first["cpu_s"]
        print(f"  decisions/s of the server's CPU         {done / max(cpu_s, 0.001):8.0f}", end="")
        print("   (launches, reports and lists included)")
        own_s = final["simulation_s"] - first["simulation_s"]
        print(f"  ms of CPU a decision                    {cpu_s / done * 1000:8.2f}", end="")
        print(f"   ({own_s / done * 1000:.2f} of it by the simulated workers)")
        for name, seconds in sorted(final["threads"].items()):
            part_s = seconds - first["threads"].get(name, 0.0)
            if part_s > cpu_s / 100:
                print(f"    {name:38}{part_s / done * 1000:8.2f}")
    print(f"  started, ended                          {last['started']:8}{last['ended']:8}")
    print(f"  memory MB: empty, with the queue, most  {server['empty_mb']:8.0f}", end="")
    print(f"{last['memory_mb']:8.0f}{last['most_mb']:8.0f}")
    for name, took in (("nothing else to do", idle), ("meanwhile", busy)):
        ordered = sorted(took)
        last_of = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        print(
            f"  job list, {name:20} ms: median {ordered[len(ordered) // 2]:7.1f}"
            f"  p99 {last_of:7.1f}  longest {ordered[-1]:7.1f}  ({len(ordered)} times)"
        )
    if last["trouble"]:
        print(f"  trouble: {last['trouble']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--database", default="", help="of PostgreSQL; its content is replaced")
    parser.add_argument("--only", choices=["filling", "growth", "whole"], default="")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--home", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments)
        return
    folders: list[Path] = []

    def new_home() -> tuple[Path, str]:
        folders.append(Path(tempfile.mkdtemp(prefix="torchyard-scheduling-")))
        if arguments.database:
            empty(arguments.database)
        return folders[-1] / "home", arguments.database

    try:
        if arguments.only in ("", "filling"):
            filling(arguments.jobs, arguments.nodes, new_home)
        if arguments.only in ("", "growth"):
            growth(arguments.jobs, arguments.nodes, new_home)
        if arguments.only in ("", "whole"):
            measure_whole_server(arguments, *new_home())
    finally:
        for folder in folders:
            remove(folder)


def empty(url: str) -> None:
    """Away with every table of the database."""
    db = Database(url)
    with db.engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    db.close()


if __name__ == "__main__":
    main()
