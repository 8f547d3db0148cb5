"""Real Ray clusters on this machine, each node at a loopback address of its own.

Owns: starting and ending heads and nodes by process id; what of them still runs.
Leaves: what is run there to the tests.
Always: nothing is ended by name, as `ray stop` would: other clusters may run on this machine.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from eventually import LIMIT_S, PATIENCE
from torchyard.executors.ray.ray_environment import RayEnvironment

# On every process of a cluster, and so on what its actors start: of their environment jobs get
# neither Ray's variables nor torchyard's.
_MARK = "CLUSTER_OF_TESTS"
_STORE_BYTES = 80_000_000


FAKE_HEAD = "f" * 51 + "00000"
"""The id that Ray's provider of nodes on one machine expects of the head."""
_AUTOSCALER = """
cluster_name: test
max_workers: {most}
idle_timeout_minutes: 0.05
upscaling_speed: 100
provider:
  type: fake_multinode
  gcs_address: {address}
  head_node_id: {head}
  launch_multiple: true
auth: {{ssh_user: root}}
docker: {{}}
file_mounts: {{}}
cluster_synced_files: []
file_mounts_sync_continuously: false
rsync_exclude: []
rsync_filter: []
initialization_commands: []
setup_commands: []
head_setup_commands: []
worker_setup_commands: []
head_start_ray_commands: []
worker_start_ray_commands: []
head_node_type: ray.head.default
available_node_types:
  ray.head.default: {{resources: {{CPU: 0}}, node_config: {{}}, max_workers: 0}}
  machine: {{resources: {{CPU: {cpus}}}, node_config: {{}}, min_workers: 0, max_workers: {most}}}
"""
# A group of two places whose names are ours, of which somebody else has taken some.
_TAKEN = """
import sys, ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Place
address, namespace, name, *taken = sys.argv[1:]
ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR")
group = ray.util.placement_group([{"CPU": 1}] * 2, "STRICT_SPREAD", name, "detached")
ray.get(group.ready())
class Taker:
    def here(self):
        return True
for place in taken:
    options = {"num_cpus": 1, "lifetime": "detached", "name": name + "-taker-" + place}
    taker = ray.remote(Taker).options(scheduling_strategy=Place(group, int(place)), **options)
    ray.get(taker.remote().here.remote())
"""
_HELD = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
groups = ray.util.placement_group_table().values()
print(*(group["name"] for group in groups if group["state"] != "REMOVED"))
print(*(actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(is_true: Callable[[], bool], limit_s: float, goal: str) -> float:
    """The seconds that it took.

    Args:
        limit_s: where it is longer than the limit of all tests, which no machine is too slow for.
    """
    started = time.monotonic()
    limit_s = max(limit_s, LIMIT_S) * PATIENCE
    while not is_true():
        assert time.monotonic() - started < limit_s, f"{goal}: not within {limit_s:g} s"
        time.sleep(0.05)
    return time.monotonic() - started


def lend_environment(home: Path, environment: RayEnvironment) -> None:
    """What is installed already is not installed again for a new home."""
    engines = home / "engines"
    engines.mkdir(mode=0o700, parents=True, exist_ok=True)
    (engines / environment.folder.name).symlink_to(environment.folder)


class RayCluster:
    """A head without cores, and nodes at 127.0.0.2, .3 and so on.

    Args:
        redis_port: where the head keeps its state; 0 keeps none.
        variables: added to the head's.
        reconnect_s: how long a node waits for a head that is lost; Ray's own is 60.
    """

    def __init__(
        self,
        environment: RayEnvironment,
        nodes: int = 3,
        cpus: int = 2,
        with_token: bool = True,
        redis_port: int = 0,
        port: int = 0,
        variables: dict[str, str] | None = None,
        head_options: tuple[str, ...] = (),
        reconnect_s: int = 15,
    ) -> None:
        self.environment = environment
        # Ray's sockets lie in it, and their paths must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="tyr-", dir="/tmp"))
        self.mark = secrets.token_hex(8)
        self.port = port or free_port()
        self.token_file = self.folder / "token" if with_token else None
        if self.token_file is not None:
            self.token_file.touch(0o600)
            self.token_file.write_text(secrets.token_hex(32))
        self.cpus = cpus
        self._redis_port = redis_port
        self._head_variables = variables or {}
        self._head_options = head_options
        self._reconnect_s = reconnect_s
        self.head: subprocess.Popen[bytes] | None = None
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.start_head()
        for number in range(1, nodes + 1):
            self.start_node(number)
        wait_until(self._all_have_started, 300, "the nodes")

    @classmethod
    def with_autoscaler(
        cls, environment: RayEnvironment, maximum: int, with_token: bool = True
    ) -> RayCluster:
        """A head alone, that starts as many machines as waiting groups need."""
        (package,) = environment.folder.glob("lib/python*/site-packages/ray")
        # Ray reads it as the provider's defaults, and its wheel lacks it.
        config = package / "autoscaler/_private/fake_multi_node/example.yaml"
        port = free_port()
        address = f"127.0.0.1:{port}"
        config.write_text(_AUTOSCALER.format(most=maximum, address=address, head=FAKE_HEAD, cpus=1))
        variables = {
            "RAY_FAKE_CLUSTER": "1",
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD,
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD,
        }
        options = (f"--autoscaling-config={config}",)
        return cls(environment, 0, 2, with_token, 0, port, variables, options)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, object]:
        """A cluster's, as its document's `torchyard:` has them."""
        token_file = {"token_file": str(self.token_file)} if self.token_file else {}
        return {"engine": "ray", "address": self.address, **token_file}

    def start_head(self) -> None:
        # By it Ray would take the nodes on this machine for a head that still runs.
        (self.folder / "h" / "ray_current_cluster").unlink(missing_ok=True)
        variables = dict(self._head_variables)
        if self._redis_port:
            variables["RAY_REDIS_ADDRESS"] = f"127.0.0.1:{self._redis_port}"
        options = ["--head", f"--port={self.port}", "--num-cpus=0"]
        if not any("dashboard" in option for option in self._head_options):
            options.append("--include-dashboard=false")
        options += ["--node-ip-address=127.0.0.1", f"--temp-dir={self.folder}/h"]
        log = self.folder / "head.log"
        starts = _starts(log)
        self.head = self._start("head", [*options, *self._head_options], variables)
        wait_until(lambda: self._is_alive() and _starts(log) > starts, 150, "the head")

    def _all_have_started(self) -> bool:
        """Start those again that have ended: on a busy machine Ray's own limit of 30 s is short."""
        for number, process in list(self.nodes.items()):
            if process.poll() is not None:
                self.start_node(number)
        return all(_starts(self.folder / f"node-{number}.log") for number in self.nodes)

    def start_node(self, number: int) -> None:
        """The node at 127.0.0.(number + 1)."""
        options = [f"--address={self.address}", f"--node-ip-address=127.0.0.{number + 1}"]
        options += [f"--num-cpus={self.cpus}", f"--temp-dir={self.folder}/{number}"]
        self.nodes[number] = self._start(f"node-{number}", options, {})

    def _start(
        self, name: str, options: list[str], variables: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        auth = {"RAY_AUTH_MODE": "disabled"}
        if self.token_file is not None:
            auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token_file)}
        environ = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                [
                    self.environment.ray,
                    "start",
                    "--block",
                    "--disable-usage-stats",
                    f"--object-store-memory={_STORE_BYTES}",
                    *options,
                ],
                env={
                    **environ,
                    **auth,
                    "RAY_USAGE_STATS_ENABLED": "0",
                    "RAY_gcs_rpc_server_reconnect_timeout_s": str(self._reconnect_s),
                    # Its nodes see this machine's folders, and are not to use them.
                    "TORCHYARD_NODE_COPY": "1",
                    _MARK: self.mark,
                    **variables,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _is_alive(self) -> bool:
        assert self.head is not None
        assert self.head.poll() is None, (self.folder / "head.log").read_text()[-2000:]
        return True

    def kill_node(self, number: int) -> None:
        """As a machine that is switched off, all but the jobs' processes: they must see it."""
        process = self.nodes.pop(number)
        pids = [pid for pid in self.processes() if _parent(pid) == process.pid]
        os.kill(process.pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def kill_machine(self, number: int) -> None:
        """As one that is switched off, with all that runs there."""
        process = self.nodes.pop(number)
        for pid in (process.pid, *_descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def machine_of(self, pid: int) -> int:
        """The number of the node that a process runs on."""
        while pid > 1:
            for number, process in self.nodes.items():
                if process.pid == pid:
                    return number
            pid = _parent(pid)
        raise AssertionError("it runs on no node")

    def list_remaining(self) -> list[str]:
        """The groups and named actors that Ray has."""
        return self._run_driver(_HELD).split()

    def take_places(self, namespace: str, name: str, numbers: Sequence[int]) -> None:
        """Make a group of two places of which these are taken, as by a head that was killed while
        it gave them out.
        """
        self._run_driver(_TAKEN, namespace, name, *map(str, numbers))

    def _run_driver(self, program: str, *words: str) -> str:
        """What a program of Ray prints."""
        auth = {"RAY_AUTH_MODE": "disabled"}
        if self.token_file is not None:
            auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token_file)}
        ended = subprocess.run(
            [self.environment.python, "-I", "-c", program, self.address, *words],
            env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **auth},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def kill_head(self) -> None:
        """Also what is left of one that could not start."""
        assert self.head is not None
        pids = [self.head.pid] if self.head.poll() is None else []
        pids += [pid for pid in self.processes() if f"{self.folder}/h/" in command_of(pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.head.wait()

    def processes(self) -> list[int]:
        """All of its, and those of what runs on it."""
        return [pid for pid in _pids() if f"{_MARK}={self.mark}".encode() in _environ(pid)]

    def job_processes(self, program: str) -> list[int]:
        """Those on its nodes whose command line has these words."""
        return [pid for pid in self.processes() if program in command_of(pid)]

    def close(self) -> None:
        started = [process for process in (*self.nodes.values(), self.head) if process is not None]
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 3
        while self.processes() and time.monotonic() < deadline:
            for process in started:
                process.poll()
            time.sleep(0.1)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in started:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def running_redis(folder: Path) -> Iterator[int]:
    """Debian's Redis; its port."""
    program = shutil.which("redis-server")
    if program is None:
        assert os.environ.get("TORCHYARD_TEST_SERVICES") != "required", "redis-server is missing"
        pytest.skip("redis-server is not on this machine")
    port = free_port()
    with open(folder / "redis.log", "wb") as log:
        process = subprocess.Popen(
            [
                program,
                *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
                *("--save", "", "--appendonly", "no"),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: _listens(port), 10, "Redis")
        yield port
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def _starts(log: Path) -> int:
    return log.read_text().count("Ray runtime started") if log.exists() else 0


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    return ""


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for other in _pids():
        children.setdefault(_parent(other), []).append(other)
    chosen, open_pids = [], [pid]
    while open_pids:
        offspring = children.get(open_pids.pop(), [])
        chosen += offspring
        open_pids += offspring
    return chosen
