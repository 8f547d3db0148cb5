"""A server and a real engine to break: Ray with Redis behind its head, Slurm, machines that joined.

Owns: starting and ending them, each kind of kill, what must not be left on any node.
Leaves: which kill comes when, and what became of the jobs, to engine_kills.py.
Always: processes are ended by their ids; a kill that ends a part of an engine starts it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from faults import fault_site
from faults.fault_site import Site
from ray import ray_cluster
from ray.ray_cluster import RayCluster
from slurm.slurm_cluster import SlurmCluster
from torchyard.base.home.uv import find_uv
from torchyard.executors.ray.ray_environment import RayEnvironment, RayEnvironments, RayVersion
from torchyard.node_agent.ray_node import processes_of_session
from torchyard.shared.processes import Process, read

_LAUNCH_LIMIT_S = 15.0
_LONGEST_AWAY_S = 2.0
_RAY_MACHINES = 3
_JOINED_MACHINES = 3
_HEAD_STARTS = 3
Kill = Callable[[random.Random], bool]


class Launches:
    """The launches of a server: a plan is kept before its engine is called."""

    def __init__(self, site: Site) -> None:
        self._folder = site.home / "launches"
        self._before: set[str] = set()

    def begin(self) -> None:
        self._before = self._names()

    def wait(self) -> bool:
        """For the next launch after `begin`."""
        deadline = time.monotonic() + _LAUNCH_LIMIT_S
        while time.monotonic() < deadline:
            if self._names() - self._before:
                return True
            time.sleep(0.0005)
        return False

    def _names(self) -> set[str]:
        return {file.name for file in self._folder.glob("*.json")}


class EngineSite(Protocol):
    """
    Attributes:
        kills: each kind; False where there was nothing to kill.
        harmless: the kinds that take nothing from a job that runs: it needs no other attempt.
        at_launch: the kinds that wait for a launch by themselves.
    """

    site: Site
    launches: Launches
    kills: dict[str, Kill]
    harmless: frozenset[str]
    at_launch: frozenset[str]

    def job_processes(self) -> list[int]:
        """What runs of jobs on any node."""

    def list_remaining(self) -> list[str]:
        """What the engine still has of jobs that are over."""

    def repair(self) -> None:
        """Before a round: all that was killed takes jobs again."""


class _Common:
    """What is killed on every engine; `folder` is of the nodes."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.folder = folder
        self.launches = Launches(site)
        self.kills: dict[str, Kill] = {
            "rank": self._kill_of(self._is_rank),
            "worker": self._kill_of(self._is_worker),
            "starter": self._kill_of(self._is_starter),
            "bootstrap": self._kill_of(self._is_bootstrap, _LAUNCH_LIMIT_S),
            "server": self._kill_server,
            "server in a launch": self._kill_server_in_launch,
        }

    def marked(self) -> list[int]:
        raise NotImplementedError

    def job_processes(self) -> list[int]:
        """Of torchyard: the bootstrap, what runs the worker's zip, the ranks."""
        kinds = (self._is_rank, self._is_worker, self._is_starter, self._is_bootstrap)
        return [pid for pid in self.marked() if any(is_kind(pid) for is_kind in kinds)]

    def _kill_of(self, is_kind: Callable[[int], bool], limit_s: float = 1.0) -> Kill:
        def kill(chance: random.Random) -> bool:
            deadline = time.monotonic() + limit_s
            while time.monotonic() < deadline:
                chosen = [pid for pid in self.marked() if is_kind(pid)]
                if chosen:
                    return _kill_pid(chance.choice(chosen))
                time.sleep(0.002)
            return False

        return kill

    def _is_rank(self, pid: int) -> bool:
        return b"\0RANK=" in _read(pid, "environ") and b"main.py" in _read(pid, "cmdline")

    def _is_worker(self, pid: int) -> bool:
        """A worker or its supervisor."""
        return self._is_of_zip(pid) and self._is_of_zip(_parent(pid))

    def _is_starter(self, pid: int) -> bool:
        return self._is_of_zip(pid) and not self._is_of_zip(_parent(pid))

    def _is_of_zip(self, pid: int) -> bool:
        """Starter, supervisor and worker, each a fork of the one before."""
        words = _read(pid, "cmdline")
        return str(self.folder).encode() in words and b"\0--start\0" in words

    def _is_bootstrap(self, pid: int) -> bool:
        """Also what waits for it, and what Slurm runs before it."""
        words = _read(pid, "cmdline")
        return b"_TRY_FOR_S = " in words and not words.startswith((b"srun", b"/bin/sh"))

    def _kill_server(self, chance: random.Random) -> bool:
        self.site.kill()
        time.sleep(chance.random() * _LONGEST_AWAY_S)
        self.site.start()
        return True

    def _kill_server_in_launch(self, chance: random.Random) -> bool:
        """Between the record of a launch and the call of the engine, or in the call."""
        if not self.launches.wait():
            return False
        time.sleep(chance.choice((0.0, 0.0, 0.3 * chance.random())))
        return self._kill_server(chance)


class _WithBridge(_Common):
    """What Ray's clusters have in common."""

    harmless = frozenset({"server", "server in a launch", "bridge", "bridge in a launch"})
    at_launch = frozenset({"bootstrap", "server in a launch", "bridge in a launch"})

    def __init__(self, site: Site, folder: Path) -> None:
        super().__init__(site, folder)
        self.kills |= {
            "bridge": self._kill_bridge,
            "bridge in a launch": self._kill_bridge_in_launch,
            "actor": self._kill_of(lambda pid: b"ray::Node" in _read(pid, "cmdline")),
        }

    def _bridges(self) -> list[int]:
        assert self.site.server is not None
        children = [process.pid for process in _children(self.site.server.pid)]
        return [pid for pid in children if b"bridge_program.py" in _read(pid, "cmdline")]

    def _kill_bridge(self, chance: random.Random) -> bool:
        return any([_kill_pid(pid) for pid in self._bridges()])

    def _kill_bridge_in_launch(self, chance: random.Random) -> bool:
        if not self.launches.wait():
            return False
        time.sleep(chance.random() * 0.1)
        return self._kill_bridge(chance)


class RaySite(_WithBridge):
    """Ray, whose head keeps its state in Redis."""

    def __init__(self, site: Site, cluster: RayCluster) -> None:
        super().__init__(site, cluster.folder / "n")
        self.cluster = cluster
        self.kills |= {
            "node's Ray": self._kill_ray_of_node,
            "machine": self._kill_machine,
            "head": self._kill_head,
        }

    def marked(self) -> list[int]:
        return self.cluster.processes()

    def list_remaining(self) -> list[str]:
        return self.cluster.list_remaining()

    def repair(self) -> None:
        for number, process in list(self.cluster.nodes.items()):
            if process.poll() is not None:
                del self.cluster.nodes[number]
                self.cluster.start_node(number)

    def _kill_ray_of_node(self, chance: random.Random) -> bool:
        number = chance.choice(sorted(self.cluster.nodes))
        self.cluster.kill_node(number)
        time.sleep(chance.random() * _LONGEST_AWAY_S)
        self.cluster.start_node(number)
        return True

    def _kill_machine(self, chance: random.Random) -> bool:
        number = chance.choice(sorted(self.cluster.nodes))
        self.cluster.kill_machine(number)
        time.sleep(chance.random() * _LONGEST_AWAY_S)
        self.cluster.start_node(number)
        return True

    def _kill_head(self, chance: random.Random) -> bool:
        self.cluster.kill_head()
        time.sleep(chance.random() * _LONGEST_AWAY_S)
        self._start_head()
        return True

    def _start_head(self) -> None:
        """As a service does: again, when a busy machine was too slow for Ray's own limits."""
        for _ in range(_HEAD_STARTS - 1):
            try:
                return self.cluster.start_head()
            except AssertionError:
                self.cluster.kill_head()
        self.cluster.start_head()


class JoinedSite(_WithBridge):
    """Machines that `yard node join` keeps in a cluster whose head the server looks after."""

    def __init__(self, site: Site, folder: Path, environment: RayEnvironment) -> None:
        super().__init__(site, folder)
        self._environment = environment
        self._agents: dict[int, subprocess.Popen[bytes]] = {}
        self.kills |= {
            "agent": self._kill_agent,
            "machine": self._kill_machine,
            "head": self._kill_head,
            "head's first process": self._kill_head_alone,
        }
        for number in range(_JOINED_MACHINES):
            self._join(number)

    def marked(self) -> list[int]:
        return [process.pid for process in fault_site.having(str(self.folder))]

    def list_remaining(self) -> list[str]:
        return []  # its head has no address that a test could ask without its token

    def repair(self) -> None:
        """As systemd does with `yard node install`'s unit."""
        for number, agent in list(self._agents.items()):
            if agent.poll() is not None:
                self._join(number)

    def joined(self) -> int:
        machines = self.site.ask("GET", "machines")["value"]
        return sum(machine["state"] == "joined" for machine in machines)

    def close(self) -> None:
        for agent in self._agents.values():
            _kill_tree(agent.pid)
            agent.wait()
        for pid in self._head():
            _kill_pid(pid)
        for pid in self.marked():
            _kill_pid(pid)

    def _join(self, number: int) -> None:
        home = self.folder / str(number)
        if not home.exists():
            (home / "n").mkdir(parents=True, mode=0o700)
            ray_cluster.lend_environment(home / "n", self._environment)
        words = ["node", "join", self.site.url, "--compute", "lab", "--name", f"m{number}"]
        words += ["--address", f"127.0.0.{number + 2}"]
        words += ["--token-file", str(self.site.home / "token")]
        variables = {
            **os.environ,
            "TORCHYARD_HOME": str(home),
            "TORCHYARD_NODE_FOLDER": str(home / "n"),
            "TORCHYARD_NODE_COPY": "1",
        }
        with open(home / "agent.log", "ab") as log:
            self._agents[number] = subprocess.Popen(
                [str(Path(sys.executable).with_name("yard")), *words],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _kill_agent(self, chance: random.Random) -> bool:
        return _kill_pid(self._agents[chance.randrange(_JOINED_MACHINES)].pid)

    def _kill_machine(self, chance: random.Random) -> bool:
        _kill_tree(self._agents[chance.randrange(_JOINED_MACHINES)].pid)
        return True

    def _head(self) -> list[int]:
        """The first process, and the others of its session."""
        for file in (self.site.home / "engines" / "heads").glob("*/head.json"):
            leader = int(json.loads(file.read_text())["pid"])
            others = [process.pid for process in processes_of_session(leader)]
            return [leader, *(pid for pid in others if pid != leader)]
        return []

    def _kill_head(self, chance: random.Random) -> bool:
        return any([_kill_pid(pid) for pid in self._head()])

    def _kill_head_alone(self, chance: random.Random) -> bool:
        return any([_kill_pid(pid) for pid in self._head()[:1]])


class SlurmSite(_Common):
    """Slurm with two nodes, its accounting and its database."""

    harmless = frozenset({"server", "server in a launch", "sbatch"})
    at_launch = frozenset({"bootstrap", "server in a launch", "sbatch"})

    def __init__(self, site: Site, cluster: SlurmCluster) -> None:
        super().__init__(site, cluster.folder / "nodes")
        self.cluster = cluster
        self.kills |= {
            "sbatch": self._kill_sbatch,
            "srun, its step or the script": self._kill_of(self._is_of_slurm),
            "slurmd": self._kill_slurmd,
            "machine": self._kill_machine,
            "controller": self._kill_controller,
            "controller, in order": self._restart_controller,
        }

    def marked(self) -> list[int]:
        return self.cluster.processes_of_jobs()

    def job_processes(self) -> list[int]:
        return self.marked()

    def list_remaining(self) -> list[str]:
        return self.cluster.jobs()

    def repair(self) -> None:
        """As an administrator does with nodes that Slurm has drained or given up."""
        states = self.cluster.node_states()
        if any(state.startswith(("down", "drain")) for state in states):
            with contextlib.suppress(AssertionError):  # it is there again
                self.cluster.run("scontrol", "update", "NodeName=n1,n2", "State=RESUME")

    def _is_of_slurm(self, pid: int) -> bool:
        words = _read(pid, "cmdline")
        return words.startswith((b"srun", b"slurmstepd", b"/bin/sh")) and b"slurmd" != words[:6]

    def _kill_sbatch(self, chance: random.Random) -> bool:
        deadline = time.monotonic() + _LAUNCH_LIMIT_S
        assert self.site.server is not None
        while time.monotonic() < deadline:
            for process in _children(self.site.server.pid):
                if _read(process.pid, "comm").startswith(b"sbatch"):
                    time.sleep(chance.random() * 0.03)
                    return _kill_pid(process.pid)
            time.sleep(0.001)
        return False

    def _kill_slurmd(self, chance: random.Random) -> bool:
        node = chance.choice(("n1", "n2"))
        self.cluster.kill(node)
        time.sleep(chance.random() * _LONGEST_AWAY_S)
        self.cluster.start_node(node)
        return True

    def _kill_machine(self, chance: random.Random) -> bool:
        node = chance.choice(("n1", "n2"))
        self.cluster.kill_machine(node)
        time.sleep(chance.random() * _LONGEST_AWAY_S)
        self.cluster.start_node(node)
        return True

    def _kill_controller(self, chance: random.Random) -> bool:
        self.cluster.kill("slurmctld")
        time.sleep(chance.random() * _LONGEST_AWAY_S)
        self.cluster.start_controller()
        return True

    def _restart_controller(self, chance: random.Random) -> bool:
        self.cluster.stop("slurmctld")
        time.sleep(chance.random() * _LONGEST_AWAY_S)
        self.cluster.start_controller()
        return True


@contextlib.contextmanager
def ray_site() -> Iterator[RaySite]:
    """A Ray of three machines of two cores each, and a server whose cluster `lab` it is."""
    environment = _ray_environment()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ty-redis-")))
        port = stack.enter_context(ray_cluster.running_redis(folder))
        cluster = RayCluster(environment, _RAY_MACHINES, redis_port=port, reconnect_s=120)
        stack.callback(cluster.close)
        site = Site(fault_site.new_home(), _own_port())
        ray_cluster.lend_environment(site.home, environment)
        made = RaySite(stack.enter_context(fault_site.started(site)), cluster)
        _create_cluster(site, {**cluster.settings, "node_folder": str(made.folder)})
        yield made


@contextlib.contextmanager
def slurm_site() -> Iterator[SlurmSite]:
    """A Slurm of two nodes, and a server whose cluster `lab` it is."""
    with contextlib.ExitStack() as stack:
        cluster = SlurmCluster(slurmd_timeout_s=15).start()
        stack.callback(cluster.close)
        environ = {"SLURM_CONF": str(cluster.config)}
        site = stack.enter_context(fault_site.made(_own_port(), environ))
        made = SlurmSite(site, cluster)
        settings = {"engine": "slurm", "partition": "low", "node_folder": str(made.folder)}
        _create_cluster(site, settings)
        yield made


def _own_port() -> tuple[str, ...]:
    """Nodes know their server by its address: nobody may take it while it is killed."""
    return ("--port", str(ray_cluster.free_port()))


@contextlib.contextmanager
def joined_site() -> Iterator[JoinedSite]:
    """A server and three machines that have joined its cluster `lab`."""
    environment = _ray_environment()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ty-k")))
        site = Site(fault_site.new_home(), _own_port())
        ray_cluster.lend_environment(site.home, environment)
        stack.enter_context(fault_site.started(site))
        _create_cluster(site, {"engine": "ray", "start": True})
        made = JoinedSite(site, folder, environment)
        stack.callback(made.close)
        fault_site.until(lambda: made.joined() == _JOINED_MACHINES, 240, "all have joined", 1.0)
        yield made


def _create_cluster(site: Site, settings: dict[str, Any]) -> None:
    cluster = {"name": "lab", "type": "amlcompute", "max_instances": 4, "torchyard": settings}
    site.ask("PUT", "computes/lab", cluster, timeout_s=120)


def _ray_environment() -> RayEnvironment:
    home = Path(os.environ.get("TORCHYARD_TEST_RAY_HOME", ".test-ray")).absolute()
    return RayEnvironments(home, find_uv(), os.environ).get(RayVersion())


def _kill_tree(pid: int) -> None:
    pids = [pid]
    for parent in pids:
        pids += [process.pid for process in _children(parent)]
    for each in pids:
        _kill_pid(each)


def _children(parent: int) -> list[Process]:
    everyone = (read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in everyone if process and process.parent == parent]


def _kill_pid(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _parent(pid: int) -> int:
    words = _read(pid, "stat").rpartition(b")")[2].split()
    return int(words[1]) if words else 0


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
