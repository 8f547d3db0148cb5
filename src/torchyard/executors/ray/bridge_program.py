"""`python -I bridge_program.py`: one server's way into one Ray cluster.

Runs on the Python of Ray's own environment, as a driver. Reads requests as JSON, one a line, and
writes one line for each; the first line that it reads says which cluster, the first that it writes
whether it can be reached.

Owns: groups, actors and what Ray says of them; a node's starter as the actor's child.
Leaves: waiting no longer than it should, words for people, plans to engine.py; the node's work to
the bootstrap.
Always: standard library and Ray only; what Ray makes of this process, and the cluster's token, lie
in a folder that nobody else enters, for Ray opens its own to everybody, whatever the umask; groups
and actors carry the server's and the attempt's id, so that a launch is repeated safely by the next
bridge; secrets go to an actor by a call and never into its description, which the head may write to
disk, and on a cluster that machines join only once it is where a machine has joined; nothing of
Ray's variables reaches a job.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import importlib
import ipaddress
import json
import os
import platform
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

_PREFIX = "torchyard"
# As node_labels.py has them.
OWNER, MACHINE = "torchyard-owner", "torchyard-machine"
_RPC_S = 4
# An actor that can't be reached for so long is lost, even if its node is thought alive.
_UNAVAILABLE_S = 5.0
_MOST_RESTARTS = 5
_RAYLET_START_S = 25.0
_JOINS_S = 4.0
_STORE_BYTES = 80_000_000
_PDEATHSIG = 1
_LOOK_EVERY_S = 0.5
_LOOK_AT_ACTOR_S = 5.0
# Each is a question to the head; the nodes take turns.
_MOST_LOOKS = 4
# Of a group that was placed, a node begins within seconds. One whose head was killed while it gave
# out the group's places may never begin: a place counts as taken, by nobody.
_STUCK_S = 45.0
_STUCK_AFTER_TAKEOVER_S = 20.0
_MOST_PUSHES = 2
# A machine may have joined, or moved, a moment before the server's list of machines comes.
_STRANGE_S = 60.0
_ADMIT_EVERY_S, _ADMIT_LATER_S = 0.1, 1.0
_FOLDER = "ty-bridge-"
_NODE_ID = "--node_id="
# Paths of sockets below it fit into 107 characters, with what Ray adds.
_LONGEST_TEMPORARY = 21


class Node:
    """The actor on a node: starts the bootstrap as its child, and knows how it ended.

    The child's standard input stays open as long as the actor lives: its end tells the child. Its
    Python starts before the first call, which Ray takes a while to get ready for.
    """

    bootstrap = ""
    """Its source."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._where: dict[str, Any] = {}
        self._ended: Any = None
        self._loop: Any = None
        with contextlib.suppress(OSError):
            self._process = self._child()

    async def begin(self, start: str, number: int) -> dict[str, Any]:
        """Tell the child what to do unless it was told; where it runs."""
        self._prepare()
        if not self._where:
            self._process = self._process or self._child()
            self._where = self._tell(self._process, start, number)
        return self._where

    def _prepare(self) -> None:
        # Ray may run the calls of a caller in another order.
        import asyncio

        if self._ended is None:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()

    def _child(self) -> subprocess.Popen[bytes]:
        # Its own child a worker of Ray kills when it ends: this one would have no time to clean up.
        apart = (
            "import os, signal, sys\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    program = compile(sys.argv[1], 'bootstrap_program.py', 'exec')\n"
            "    import json\n"
            "    line = b''\n"
            "    while not line.endswith(b'\\n'):\n"
            "        byte = os.read(0, 1)\n"
            "        if not byte:\n"
            "            os._exit(0)\n"
            "        line += byte\n"
            "    sys.argv[1:] = json.loads(line)\n"
            "    exec(program, {'__name__': '__main__'})\n"
            "os.close(0)\n"
            "for number in (signal.SIGTERM, signal.SIGINT):\n"
            "    signal.signal(number, lambda *_: None)\n"
            "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
            "os._exit(code if code >= 0 else 128 - code)\n"
        )
        scrubbed = ("PYTHONPATH", "OMP_NUM_THREADS", "VIRTUAL_ENV", "PYTHONBREAKPOINT")
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", apart, self.bootstrap],
            env={
                name: value
                for name, value in os.environ.items()
                if not name.startswith("RAY_") and name not in scrubbed
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    def _tell(self, child: subprocess.Popen[bytes], start: str, number: int) -> dict[str, Any]:
        library: Any = importlib.import_module("ray")
        context = library.get_runtime_context()
        address = library.util.get_node_ip_address()
        devices = [str(device) for device in context.get_accelerator_ids().get("GPU", [])]
        arguments = ["--node", str(number), "--address", address, "--devices", json.dumps(devices)]
        arguments.append("--until-eof")
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(f"{json.dumps(arguments)}\n{start}\n".encode())
            child.stdin.flush()
        threading.Thread(target=self._follow, daemon=True).start()
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
        return {
            "node_id": context.get_node_id(),
            "address": address,
            "devices": devices,
            "pid": child.pid,
        }

    def _follow(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while True:
            words = self._process.stderr.read1(65536)  # type: ignore[attr-defined]
            if not words:
                break
            self._said = (self._said + words)[-4000:]
        self._process.wait()
        self._loop.call_soon_threadsafe(self._ended.set)

    async def wait(self) -> dict[str, Any]:
        """How the child ended, once it has."""
        self._prepare()
        await self._ended.wait()
        assert self._process is not None
        code = self._process.returncode
        return {"code": code, "said": self._said.decode("utf-8", "replace")}

    async def signal(self, number: int) -> None:
        """Send a signal to the child."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _end_with_parent(parent: int) -> None:
    """Ray's worker asks whether its node's process is there, and one that is dead but was not
    reaped still is: in a container whose first process is not an init.
    """
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(1)


class Refused(Exception):
    """A request that fails for a reason that the server knows by `kind`."""

    def __init__(self, kind: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details


class Attempt:
    """What this bridge knows of one attempt; each list has an entry per node.

    Attributes:
        admitted: those nodes are where they may be told what they run.
        is_admitting: somebody looks where the others are.
        strange_since: when it was first seen that one is not; 0 before.
        stuck_s: after how long a node that has a place and does not begin is started again.
    """

    def __init__(
        self, request: dict[str, Any], group: Any, actors: list[Any], stuck_s: float
    ) -> None:
        count = len(actors)
        self.request = request
        self.group = group
        self.actors = actors
        self.stuck_s = stuck_s
        self.admitted = [request.get("machines") is None] * count
        self.is_admitting = False
        self.strange_since = 0.0
        self.launched_at = time.monotonic()
        self.begun: list[Any] = [None] * count
        self.waited: list[Any] = [None] * count
        self.where: list[dict[str, Any] | None] = [None] * count
        self.outcomes: list[dict[str, Any] | None] = [None] * count
        self.unavailable: list[float] = [0.0] * count
        self.restarts: list[int] = [0] * count
        self.pushes: list[int] = [0] * count
        self.looked_at: list[float] = [self.launched_at] * count
        self.called_at: list[float] = [self.launched_at] * count

    def call(self, node: int) -> None:
        """Ask the actor to begin, and for its end; both may be asked many times."""
        if not self.admitted[node]:
            return
        actor, request = self.actors[node], self.request
        self.called_at[node] = time.monotonic()
        self.begun[node] = actor.begin.remote(request["start"], node)
        self.waited[node] = actor.wait.remote()


class Bridge:
    """
    Args:
        cluster: `address`, `namespace`, `server_id`, and the `bootstrap` that nodes run.
        folder: closed to everybody else.
    """

    def __init__(self, cluster: dict[str, Any], folder: str) -> None:
        # A folder of tests has this name, too.
        self.ray: Any = importlib.import_module("ray")
        self.state: Any = importlib.import_module("ray._private.state").state
        self.errors: Any = importlib.import_module("ray.exceptions")
        self.groups: Any = importlib.import_module("ray.util.placement_group")
        self.strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        self.cluster = cluster
        self.attempts: dict[str, Attempt] = {}
        self.lock = threading.Lock()
        self._raylet: subprocess.Popen[bytes] | None = None
        self._folder = folder
        self._looks = 0
        Node.bootstrap = cluster["bootstrap"]
        self.actor = self.ray.remote(Node)

    # Connecting

    def versions(self) -> dict[str, str]:
        """Of the cluster's Ray and Python."""
        raylet: Any = importlib.import_module("ray._raylet")
        client = raylet.GcsClient(address=self.cluster["address"])
        key, namespace = b"CLUSTER_METADATA", b"cluster"
        deadline = time.monotonic() + _RPC_S
        while True:  # a head that just started has not written it yet
            written = client.internal_kv_get(key, namespace, timeout=_RPC_S)
            if written or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        versions: dict[str, str] = json.loads(written or b"{}")
        return {
            "ray": versions.get("ray_version", ""),
            "python": versions.get("python_version", ""),
        }

    def connect(self) -> None:
        options: dict[str, Any] = {}
        if not self._joins_soon():
            self._start_raylet()
            # Of several nodes of the cluster on this machine, this one.
            options = {"_temp_dir": f"{self._folder}/s"}
        self.ray.init(
            address=self.cluster["address"],
            namespace=self.cluster["namespace"],
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
            **options,
        )

    def _has_raylet(self) -> bool:
        """Whether this machine is a node of the cluster: a driver needs one beside it."""
        raylet: Any = importlib.import_module("ray._raylet")
        client = raylet.GcsClient(address=self.cluster["address"])
        infos = client.get_all_node_info(timeout=_RPC_S).values()
        alive = 0
        here = self._raylets_here()
        return any(info.state == alive and info.node_id.hex() in here for info in infos)

    def _raylets_here(self) -> set[str]:
        """Of this user, of any cluster, by the ids of their nodes: those of others keep their
        sockets closed, or are not what they say.
        """
        found = set()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid != os.geteuid():
                    continue
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    program, *words = file.read().decode("utf-8", "replace").split("\0")
                if os.path.basename(program) == "raylet":
                    found |= {word[len(_NODE_ID) :] for word in words if word.startswith(_NODE_ID)}
        return found

    def _joins_soon(self) -> bool:
        """Whether a node of this machine joins, as a head's own does that has just started."""
        deadline = time.monotonic() + _JOINS_S
        while time.monotonic() < deadline and self._raylets_here():
            if self._has_raylet():
                return True
            time.sleep(0.3)
        return self._has_raylet()

    def _start_raylet(self) -> None:
        """Join with no resources, so that nothing is placed here; it ends with this process."""
        host = self.cluster["address"].rpartition(":")[0].strip("[]")
        program = os.path.join(os.path.dirname(sys.executable), "ray")
        words = [
            "start",
            "--block",
            f"--address={self.cluster['address']}",
            "--disable-usage-stats",
        ]
        words += ["--num-cpus=0", "--num-gpus=0", f"--object-store-memory={_STORE_BYTES}"]
        words += [f"--node-ip-address={_address_towards(host)}", f"--temp-dir={self._folder}/s"]
        library = ctypes.CDLL(None)
        self._raylet = subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            preexec_fn=lambda: library.prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
        )
        deadline = time.monotonic() + _RAYLET_START_S
        while not self._has_raylet():
            if self._raylet.poll() is not None or time.monotonic() > deadline:
                raise Refused("no_raylet", "this machine can't join the cluster as a node")
            time.sleep(0.3)

    def end_with_raylet(self) -> None:
        """End this process when the raylet that it is a driver of has: Ray then counts the driver
        as gone, forgets the class of its actors, and starts none of them any more.
        """
        name = importlib.import_module("ray._private.worker").global_worker.node.raylet_socket_name
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(name)
                except (ConnectionRefusedError, FileNotFoundError):
                    print("the raylet of this driver has ended", file=sys.stderr, flush=True)
                    _give_up(self._folder)
                except OSError:
                    pass  # it has too much to do
            time.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.shutdown()
        if self._raylet is not None:
            self._raylet.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._raylet.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    # Launching

    def name(self, attempt: str) -> str:
        return f"{_PREFIX}-{self.cluster['server_id']}-{attempt}"

    def launch(self, request: dict[str, Any]) -> dict[str, Any]:
        """`only_existing` takes over what a bridge before this one launched, and makes nothing."""
        attempt = request["attempt"]
        with self.lock:
            if attempt in self.attempts:
                self._place_again(self.attempts[attempt], request)
                return {"launched": True}
            group = self._known_group(self.name(attempt))
            stuck_s = _STUCK_S if group is None else _STUCK_AFTER_TAKEOVER_S
            if group is None and request.get("only_existing"):
                return {"launched": False}
            group = group or self._new_group(request)
            actors = [self._actor(request, group, node) for node in range(request["nodes"])]
            entry = Attempt(request, group, actors, stuck_s)
            for node, actor in enumerate(actors):
                if actor is None:
                    entry.outcomes[node] = {"lost": "it died while no server looked after it"}
                else:
                    entry.call(node)
            self.attempts[attempt] = entry
            self._admit_soon(entry)
        return {"launched": True}

    def _admit_soon(self, entry: Attempt) -> None:
        if not all(entry.admitted) and not entry.is_admitting:
            entry.is_admitting = True
            threading.Thread(target=self._admit_later, args=(entry,), daemon=True).start()

    def _admit_later(self, entry: Attempt) -> None:
        """Call the actors once all are on machines that have joined."""
        while True:
            with self.lock:
                is_there = self.attempts.get(entry.request["attempt"]) is entry
                if not is_there or not _unadmitted(entry):
                    entry.is_admitting = False
                    return
                try:
                    self._admit(entry)
                except Exception:
                    traceback.print_exc()  # the head does not answer just now
            is_new = time.monotonic() - entry.launched_at < _STUCK_S
            time.sleep(_ADMIT_EVERY_S if is_new else _ADMIT_LATER_S)

    def _admit(self, entry: Attempt) -> None:
        group = self.state.placement_group_table(entry.group.id) or {}
        if group.get("state") != "CREATED":
            return
        waiting = _unadmitted(entry)
        tables = {
            node: self.state.actor_table(entry.actors[node]._actor_id.hex()) for node in waiting
        }
        if not all(table and table["State"] == "ALIVE" for table in tables.values()):
            return
        nodes, machines = self._nodes(), entry.request["machines"]
        strangers = [
            node for node in waiting if _is_stranger(tables[node]["Address"], nodes, machines)
        ]
        if not strangers:
            for node in waiting:
                entry.admitted[node] = True
                entry.call(node)
            return
        entry.strange_since = entry.strange_since or time.monotonic()
        if time.monotonic() - entry.strange_since > _STRANGE_S:
            for node in strangers:
                entry.outcomes[node] = {"lost": "it is not the machine that joined by its name"}

    def _renew(self, entry: Attempt, node: int) -> None:
        """Make a node's actor again, which may come to another machine."""
        entry.actors[node] = self._new_actor(entry.request, entry.group, node)
        entry.begun[node] = None
        entry.admitted[node] = entry.request.get("machines") is None
        entry.called_at[node] = time.monotonic()
        entry.call(node)
        self._admit_soon(entry)

    def _place_again(self, entry: Attempt, request: dict[str, Any]) -> None:
        """Let a group that waits be placed by other labels; nothing of it runs yet."""
        entry.request = {**entry.request, "machines": request.get("machines")}
        if request.get("only_existing") or request["labels"] == entry.request["labels"]:
            return
        state = (self.state.placement_group_table(entry.group.id) or {}).get("state")
        if state != "CREATED" and not any(entry.where) and not any(entry.outcomes):
            entry.request = request
            self._replace_group(entry)

    def _replace_group(self, entry: Attempt) -> None:
        """With all of its actors; what has a place in it is ended."""
        self._remove(entry.request["attempt"], len(entry.actors))
        entry.group, entry.stuck_s = self._new_group(entry.request), _STUCK_S
        for node in range(len(entry.actors)):
            self._renew(entry, node)

    def _new_group(self, request: dict[str, Any]) -> Any:
        name = self.name(request["attempt"])
        bundle = {key: value for key, value in request["resources"].items() if value}
        options: dict[str, Any] = {}
        if request.get("labels"):
            options["bundle_label_selector"] = [request["labels"]] * request["nodes"]
        try:
            return self.ray.util.placement_group(
                [dict(bundle) for _ in range(request["nodes"])],
                strategy="STRICT_SPREAD",
                name=name,
                lifetime="detached",
                **options,
            )
        except self.errors.RaySystemError:
            # Another server of the same home made it a moment ago.
            group = self._known_group(name)
            if group is None:
                raise
            return group

    def _known_group(self, name: str) -> Any:
        namespace = self.cluster["namespace"]
        if not self.state.get_placement_group_by_name(name, namespace):
            return None
        return self.ray.util.get_placement_group(name)

    def _actor(self, request: dict[str, Any], group: Any, node: int) -> Any:
        """The node's actor, made if it never was; None when it has died."""
        name = f"{self.name(request['attempt'])}-{node}"
        with contextlib.suppress(ValueError):
            return self.ray.get_actor(name, namespace=self.cluster["namespace"])
        if request.get("only_existing") and self._has_died(name):
            return None
        return self._new_actor(request, group, node)

    def _new_actor(self, request: dict[str, Any], group: Any, node: int) -> Any:
        resources = dict(request["resources"])
        options: dict[str, Any] = {"num_cpus": resources.pop("CPU", 0)}
        options["num_gpus"] = resources.pop("GPU", 0)
        if resources.get("memory"):
            options["memory"] = resources["memory"]
        resources.pop("memory", None)
        return self.actor.options(
            name=f"{self.name(request['attempt'])}-{node}",
            get_if_exists=True,
            lifetime="detached",
            max_restarts=0,
            resources={key: value for key, value in resources.items() if value},
            scheduling_strategy=self.strategies.PlacementGroupSchedulingStrategy(group, node),
            **options,
        ).remote()

    def _has_died(self, name: str) -> bool:
        dead = self.state.actor_table(None, None, "DEAD")
        return any(actor["Name"] == name and actor["StartTime"] for actor in dead.values())

    # What became of them

    def status(self, request: dict[str, Any]) -> dict[str, Any]:
        """By attempt; `unknown` where this bridge must be told to take it over."""
        answer: dict[str, Any] = {}
        nodes: dict[str, Any] = {}
        node_limit: int | None = None
        with self.lock:
            self._looks = _MOST_LOOKS
            for attempt in request["attempts"]:
                entry = self.attempts.get(attempt)
                if entry is None:
                    answer[attempt] = {"unknown": True}
                    continue
                answer[attempt] = {
                    "nodes": [self._node(entry, k) for k in range(len(entry.actors))]
                }
                if any(node["state"] == "pending" for node in answer[attempt]["nodes"]):
                    nodes = nodes or self._nodes()
                    node_limit = self._most_nodes() if node_limit is None else node_limit
                    answer[attempt]["waiting"] = self._waiting(entry, nodes, node_limit)
        return answer

    def _node(self, entry: Attempt, node: int) -> dict[str, Any]:
        outcome = entry.outcomes[node]
        if outcome is None:
            outcome = entry.outcomes[node] = self._outcome(entry, node)
        where = entry.where[node] or {}
        if outcome is None:
            return {"state": "running" if entry.where[node] else "pending", **where}
        if "lost" in outcome:
            return {"state": "lost", "because": outcome["lost"], **where}
        return {"state": "exited", **outcome, **where}

    def _outcome(self, entry: Attempt, node: int) -> dict[str, Any] | None:
        """How the node ended; None while it has not."""
        ended: dict[str, Any] | None = None
        try:
            if entry.where[node] is None and entry.begun[node] is not None:
                entry.where[node] = self._result(entry.begun[node])
            if entry.where[node] is not None and entry.waited[node] is not None:
                ended = self._result(entry.waited[node])
        except self.errors.ActorUnavailableError as error:
            return self._unavailable(entry, node, error)
        except self.errors.RayActorError as error:
            if self._begins_again(entry, node):
                return None
            return {"lost": self._why(entry, node, error)}
        except self.errors.RayTaskError as error:
            return {"lost": f"its starter could not be started: {error.cause!r}"}
        except Refused as error:
            return {"lost": str(error)}
        if ended is None and not self._is_alive(entry.where[node]):
            return {"lost": "the machine is no longer a node of the Ray cluster"}
        if ended is None and self._died_unheard(entry, node):
            return None if self._begins_again(entry, node) else {"lost": self._why(entry, node)}
        if entry.pushes[node] >= _MOST_PUSHES and entry.where[node] is None:
            return {"lost": "it has a place in the Ray cluster, and Ray does not start it there"}
        return ended

    def _died_unheard(self, entry: Attempt, node: int) -> bool:
        """Whether the actor is dead and its calls do not end: of what became of one while the head
        was down a caller is not always told.
        """
        now = time.monotonic()
        if now - entry.looked_at[node] < _LOOK_AT_ACTOR_S or not self._looks:
            return False
        entry.looked_at[node] = now
        self._looks -= 1
        actor = self.state.actor_table(entry.actors[node]._actor_id.hex())
        if not actor or actor["State"] == "DEAD":
            return bool(actor)
        if entry.where[node] is None and now - entry.called_at[node] > entry.stuck_s:
            self._push(entry, node, actor["State"])
        return False

    def _push(self, entry: Attempt, node: int, state: str) -> None:
        """Call an actor that lives again. One that does not begin in its placed group gets another
        group, if none of the attempt has begun; else it is made again, once it is seen dead.
        """
        group = self.state.placement_group_table(entry.group.id) or {}
        if state == "ALIVE":
            entry.call(node)
        elif group.get("state") == "CREATED":
            print(f"{entry.request['attempt']}: node {node} is stuck", file=sys.stderr, flush=True)
            if self._has_begun(entry):
                entry.pushes[node] += 1
                entry.called_at[node], entry.stuck_s = time.monotonic(), _STUCK_S
                self.ray.kill(entry.actors[node])
            else:
                self._replace_group(entry)

    def _has_begun(self, entry: Attempt) -> bool:
        """Whether any actor of an attempt ever lived."""
        if any(entry.where) or any(entry.outcomes):
            return True
        tables = [self.state.actor_table(actor._actor_id.hex()) for actor in entry.actors]
        return any(table and table["StartTime"] for table in tables)

    def _begins_again(self, entry: Attempt, node: int) -> bool:
        """Make another actor for a node whose own never began: its machine was dead already,
        which Ray learns late, or its class was lost with the head.
        """
        actor = self.state.actor_table(entry.actors[node]._actor_id.hex())
        if not actor or entry.restarts[node] >= _MOST_RESTARTS:
            return False
        # One that another bridge launched may have begun without this one's knowledge.
        if actor["StartTime"] and (entry.where[node] or entry.request.get("only_existing")):
            return False
        entry.restarts[node] += 1
        self._renew(entry, node)
        return True

    def _result(self, reference: Any) -> dict[str, Any] | None:
        """
        Raises:
            Refused: it answers with something else than a node does.
        """
        try:
            result = self.ray.get(reference, timeout=0)
        except self.errors.GetTimeoutError:
            return None
        if not isinstance(result, dict):
            raise Refused("strange", "it answers with what no node says")
        return result

    def _is_alive(self, where: dict[str, Any] | None) -> bool:
        dead = self._dead_nodes
        return not where or where["node_id"] not in dead

    @property
    def _dead_nodes(self) -> dict[str, Any]:
        now = time.monotonic()
        at, dead = getattr(self, "_dead", (0.0, {}))
        if now - at > 1.0:
            dead = {node["NodeID"]: node for node in self.state.node_table() if not node["Alive"]}
            self._dead = (now, dead)
        return dead

    def _unavailable(
        self, entry: Attempt, node: int, error: BaseException
    ) -> dict[str, Any] | None:
        now = time.monotonic()
        entry.unavailable[node] = entry.unavailable[node] or now
        is_gone = self._is_port_closed(entry.where[node])
        if is_gone or now - entry.unavailable[node] >= _UNAVAILABLE_S:
            return {"lost": self._why(entry, node, error)}
        entry.call(node)
        return None

    def _is_port_closed(self, where: dict[str, Any] | None) -> bool:
        """Whether the machine answers that Ray's node does not run there any more."""
        nodes = [
            node for node in self.state.node_table() if where and node["NodeID"] == where["node_id"]
        ]
        try:
            for node in nodes:
                address = (node["NodeManagerAddress"], node["NodeManagerPort"])
                socket.create_connection(address, 1).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False

    def _why(self, entry: Attempt, node: int, error: BaseException | None = None) -> str:
        where = entry.where[node] or {}
        actor = self.state.actor_table(entry.actors[node]._actor_id.hex())
        cause = str(actor.get("DeathCause", "")) if actor else ""
        if where.get("node_id") in self._dead_nodes or "NODE_DIED" in cause:
            return "the Ray node died"
        if isinstance(error, self.errors.ActorUnavailableError):
            return "the Ray node does not respond any more"
        if "RAY_KILL" in cause:
            return "its actor was killed through Ray"
        if "WORKER_DIED" in cause:
            return "the Ray node, or its actor there, was killed"
        return "its actor died"

    def _waiting(self, entry: Attempt, nodes: dict[str, Any], most_nodes: int) -> dict[str, Any]:
        """What a pending attempt waits for, in numbers."""
        bundle, count = entry.request["resources"], len(entry.actors)
        labels = entry.request.get("labels") or {}
        big = [node for node in nodes.values() if _fits(bundle, node["total"])]
        unmet = {node["id"]: _unmet_labels(labels, node["labels"]) for node in big}
        labelled = [node for node in big if not unmet[node["id"]]]
        group = self.state.placement_group_table(entry.group.id) or {}
        return {
            "group": self.name(entry.request["attempt"]),
            "state": group.get("state", ""),
            "count": count,
            "for_s": time.monotonic() - entry.launched_at,
            "big_enough": len(labelled),
            "other_labels": len(big) - len(labelled),
            "unmet_labels": {key: sum(key in keys for keys in unmet.values()) for key in labels},
            "free": sum(_fits(bundle, node["available"]) for node in labelled),
            "most_nodes": most_nodes,
        }

    # Who is there

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        users: dict[str, list[str]] = {}
        with self.lock:
            for entry in self.attempts.values():
                for node, where in enumerate(entry.where):
                    if where and entry.outcomes[node] is None:
                        users.setdefault(where["node_id"], []).append(entry.request["job"])
        nodes = self._nodes()
        for node_id, node in nodes.items():
            node["users"] = sorted(set(users.get(node_id, [])))
        return {
            "nodes": list(nodes.values()),
            "lost": self._lost_nodes({node["address"] for node in nodes.values()}),
            "most_nodes": self._most_nodes(),
            "groups": self._own_groups(),
        }

    def _nodes(self) -> dict[str, Any]:
        """The living nodes that hold something, by id."""
        available = self.state.available_resources_per_node()
        draining = self.state.get_draining_nodes()
        return {
            node["NodeID"]: {
                "id": node["NodeID"],
                "address": node["NodeManagerAddress"],
                "host": node.get("NodeManagerHostname", ""),
                "total": node["Resources"],
                "available": available.get(node["NodeID"], {}),
                "labels": node.get("Labels", {}),
                "draining": node["NodeID"] in draining,
                "head": "node:__internal_head__" in node["Resources"],
            }
            for node in self.state.node_table()
            if node["Alive"]
        }

    def _lost_nodes(self, living: set[str]) -> list[dict[str, Any]]:
        """Those that did not leave by themselves, unless another is at their address."""
        expected = 1
        lost = {
            node["NodeManagerAddress"]: {
                "id": node["NodeID"],
                "address": node["NodeManagerAddress"],
                "host": node.get("NodeManagerHostname", ""),
                "reason": node.get("DeathReasonMessage", ""),
            }
            for node in self.state.node_table()
            if not node["Alive"] and node.get("DeathReason") != expected
        }
        return [node for address, node in lost.items() if address not in living]

    def _most_nodes(self) -> int:
        """How many nodes the autoscaler may ever start, 0 without one, -1 without a limit."""
        read = getattr(self.state, "get_cluster_config", None)
        config = read() if read else None
        if config is None:
            return 0
        counts = [kind.max_count for kind in config.node_group_configs]
        return -1 if -1 in counts else sum(counts)

    def _own_groups(self) -> list[str]:
        """The attempts of this server that Ray still holds a group for."""
        start = self.name("")
        table = self.state.placement_group_table()
        return [
            group["name"][len(start) :]
            for group in table.values()
            if group["name"].startswith(start) and group["state"] != "REMOVED"
        ]

    # Ending them

    def stop(self, request: dict[str, Any]) -> dict[str, Any]:
        """Signal the nodes that run; those that wait for a machine wait no longer."""
        with self.lock:
            entry = self.attempts.get(request["attempt"])
            if entry is None:
                return {"unknown": True}
            for node, actor in enumerate(entry.actors):
                if entry.outcomes[node] is None:
                    self._node(entry, node)
                if entry.outcomes[node] is not None:
                    continue
                if entry.where[node] is None:
                    entry.outcomes[node] = {"code": 0, "said": ""}
                    self.ray.kill(actor)
                else:
                    actor.signal.remote(request["signal"])
            if not any(entry.where):
                self._remove(request["attempt"], len(entry.actors))
        return {}

    def forget(self, request: dict[str, Any]) -> dict[str, Any]:
        """Remove an attempt's group and actors; what still runs there is ended."""
        attempt = request["attempt"]
        with self.lock:
            entry = self.attempts.pop(attempt, None)
            count = len(entry.actors) if entry else int(request.get("nodes", 0))
            self._remove(attempt, count)
        return {}

    def _remove(self, attempt: str, count: int) -> None:
        name = self.name(attempt)
        for node in range(count):
            with contextlib.suppress(ValueError):
                actor = self.ray.get_actor(f"{name}-{node}", namespace=self.cluster["namespace"])
                self.ray.kill(actor)
        group = self._known_group(name)
        if group is not None:
            self.ray.util.remove_placement_group(group)


def _fits(bundle: dict[str, float], resources: dict[str, float]) -> bool:
    return all(resources.get(key, 0.0) >= value for key, value in bundle.items() if value)


def _unmet_labels(selector: dict[str, str], labels: dict[str, str]) -> list[str]:
    """Which labels of a node are not as a bundle's selector says: `a`, `!a`, `in(a,b)`,
    `!in(a,b)`.

    Source: https://docs.ray.io/en/latest/ray-core/scheduling/labels.html
    """
    unmet = []
    for key, condition in selector.items():
        values = condition.removeprefix("!").strip()
        if values.startswith("in(") and values.endswith(")"):
            values = values[3:-1]
        choices = [value.strip() for value in values.split(",")]
        if (labels.get(key) in choices) is condition.startswith("!"):
            unmet.append(key)
    return unmet


def _unadmitted(entry: Attempt) -> list[int]:
    """The nodes that are yet to be told what they run."""
    return [
        node
        for node, actor in enumerate(entry.actors)
        if actor is not None and not entry.admitted[node] and entry.outcomes[node] is None
    ]


def _is_stranger(
    address: dict[str, Any], nodes: dict[str, Any], machines: dict[str, list[str]]
) -> bool:
    """Whether an actor is where no machine has joined: labels are what a node says of itself, and
    its address is where it is called.

    Args:
        machines: address and owner's label by name, as the server has them of those that joined.
    """
    node = nodes.get(address["NodeID"])
    if node is None:
        return True
    joined = machines.get(node["labels"].get(MACHINE, ""))
    if joined is None or node["labels"].get(OWNER, "") != joined[1]:
        return True
    return not _is_at(node["address"], joined[0]) or address["IPAddress"] != node["address"]


def _is_at(address: str, joined: str) -> bool:
    """Whether a node is at the address of a machine. One that joined by loopback is this machine,
    for which Ray takes another of its addresses.
    """
    if not ipaddress.ip_address(joined).is_loopback:
        return address == joined
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _address_towards(host: str) -> str:
    """This machine's address on the way to a host."""
    family, _, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


class Lines:
    """Answers, one a line; what Ray prints goes elsewhere."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def write(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(message) + "\n")
            self._file.flush()


def _answer(lines: Lines, request: dict[str, Any], handle: Callable[[Any], Any]) -> None:
    try:
        lines.write({"id": request["id"], "result": handle(request)})
    except Refused as error:
        lines.write({"id": request["id"], "error": {"kind": error.kind, "message": str(error)}})
    except BaseException as error:
        traceback.print_exc()
        kind = type(error).__name__
        lines.write({"id": request["id"], "error": {"kind": kind, "message": str(error)[:500]}})


def make_private(token: str) -> str:
    """The folder of this process, with the token; those of bridges that were killed go."""
    shared = tempfile.gettempdir()
    if len(shared) > _LONGEST_TEMPORARY:
        shared = "/tmp"
    for stale in glob.glob(os.path.join(shared, f"{_FOLDER}*")):
        with contextlib.suppress(OSError):
            _remove_if_free(stale)
    while not _hold(folder := tempfile.mkdtemp(prefix=_FOLDER, dir=shared)):
        pass  # another bridge took it for one of a killed bridge
    os.environ |= {"TMPDIR": folder, "RAY_TMPDIR": folder}
    if token:
        file = os.path.join(folder, "token")
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(token)
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": file}
    return folder


def _hold(folder: str) -> bool:
    """Lock the folder until this process ends; other bridges remove folders without a lock."""
    try:
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return os.path.exists(folder)


def _remove_if_free(folder: str) -> None:
    if os.lstat(folder).st_uid != os.geteuid():
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _open(lines: Lines, cluster: dict[str, Any], folder: str) -> Bridge | None:
    try:
        bridge = Bridge(cluster, folder)
        lines.write({"stage": "imported"})
        cluster_runs = bridge.versions()
        here = {"ray": bridge.ray.__version__, "python": platform.python_version()}
        if any(value and value != here[key] for key, value in cluster_runs.items()):
            lines.write({"stage": "failed", "kind": "version", "cluster": cluster_runs})
            return None
        lines.write({"stage": "found"})
        bridge.connect()
        lines.write({"stage": "ready", **here})
        return bridge
    except BaseException as error:
        traceback.print_exc()
        kind = error.kind if isinstance(error, Refused) else type(error).__name__
        lines.write({"stage": "failed", "kind": kind, "message": str(error)[:500]})
        return None


def _receive(requests: queue.SimpleQueue[str], is_open: threading.Event, folder: str) -> None:
    """Pass requests on, and an empty line at their end; end this process if it never got through
    to the cluster by then.
    """
    for line in sys.stdin:
        requests.put(line)
    if not is_open.is_set():
        _give_up(folder)
    requests.put("")


def _give_up(folder: str) -> NoReturn:
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    """Ends when its standard input does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = Lines()
    cluster = json.loads(sys.stdin.readline())
    folder = make_private(cluster.pop("token"))
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    is_open = threading.Event()
    threading.Thread(target=_receive, args=(requests, is_open, folder), daemon=True).start()
    bridge = _open(lines, cluster, folder)
    if bridge is None:
        _give_up(folder)
    is_open.set()
    threading.Thread(target=bridge.end_with_raylet, daemon=True).start()
    kinds = ("launch", "status", "describe", "stop", "forget")
    handlers = {kind: getattr(bridge, kind) for kind in kinds}
    threads = ThreadPoolExecutor(8)
    for line in iter(requests.get, ""):
        request = json.loads(line)
        threads.submit(_answer, lines, request, handlers[request["do"]])
    bridge.close()
    os._exit(0)


if __name__ == "__main__":
    main()
