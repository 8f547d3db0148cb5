"""Jobs on the nodes of Ray clusters.

Owns: plans as requests to Ray, what Ray says in our words.
Leaves: asking Ray to cluster.py and bridge.py, the node's work to the bootstrap.
Always: Ray is imported by a process of its own; a handle tells where an attempt is and no secret.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchyard.base.home.uv import find_uv
from torchyard.executors.bundle import worker_sha256
from torchyard.executors.executor import (
    EngineCluster,
    EngineNode,
    EngineRefused,
    EngineUnreachable,
    Handle,
    NodeState,
    Status,
)
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.ray import engine_programs, head_nodes, node_labels
from torchyard.executors.ray.bridge import Bridge, ClusterAddress
from torchyard.executors.ray.cluster import Cluster
from torchyard.executors.ray.ray_environment import RayEnvironments, RayVersion
from torchyard.executors.ray.settings import RaySettings
from torchyard.executors.runner_client import RunnerClient
from torchyard.executors.server_for_nodes import ServerForNodes
from torchyard.shared import plan as plans
from torchyard.shared.node_start import NodeStart
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.plurals import plural

NAME = "ray"
_OPENING_S = 60.0
_STUCK_S = 60.0
# Exit code of a bootstrap whose node can't run the worker.
_UNUSABLE = 125
# Ray counts less memory than a machine has: it keeps some for its objects.
_MEMORY_SHARE = 0.6


class RayEngine:
    """
    Args:
        home: the server's own folder, for Ray's environments and the bridges' logs.
        environ: what uv and the bridges get, less what is not theirs.
        bootstrap: the program that each node runs.
        runner: has everything of Ray run as the engine user.
    """

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        launches: LaunchFiles,
        server: ServerForNodes,
        bootstrap: str,
        uv: str = "",
        runner: RunnerClient | None = None,
    ) -> None:
        self._home = home
        self._environ = dict(environ)
        self._launches = launches
        self._server = server
        self._bootstrap = bootstrap
        self._programs = engine_programs.of_server(home, runner)
        self._environments = RayEnvironments(home, uv or find_uv(), environ, self._programs)
        self._heads = head_nodes.of_server(home, environ, runner)
        self._lock = threading.Lock()
        self._clusters: dict[ClusterAddress, Cluster] = {}
        self._kills: list[threading.Timer] = []
        self._is_closed = False

    def launch(self, plan: LaunchPlan) -> Handle:
        cluster = self._cluster(plan.engine_settings)
        self._launches.keep(plan)
        cluster.launch(self._request(plan))
        settings = {
            key: plan.engine_settings[key]
            for key in ("address", "head", "token_file", "version", "python")
            if plan.engine_settings.get(key)
        }
        return Handle(
            NAME, {"attempt": plan.attempt_id, "nodes": plan.node_count, "settings": settings}
        )

    def recover(self, plan: LaunchPlan) -> Handle:
        return self.launch(plan)

    def status(self, handle: Handle) -> Status:
        attempt, count = str(handle.body["attempt"]), int(handle.body["nodes"])
        report = self._cluster(handle.body["settings"]).report(attempt, count)
        states: list[NodeState] = []
        lost_because: dict[int, str] = {}
        for number, node in enumerate(report["nodes"]):
            state, because = _state(node)
            states.append(state)
            if because:
                lost_because[number] = because
        reason = ""
        if report.get("waiting"):
            reason = _reason(report["waiting"], bool(handle.body["settings"].get("head")))
        return Status(tuple(states), True, reason, lost_because)

    def stop(self, handle: Handle, grace_s: float) -> None:
        attempt, cluster = str(handle.body["attempt"]), self._cluster(handle.body["settings"])
        if grace_s <= 0:
            cluster.stop(attempt, signal.SIGKILL)
            return
        cluster.stop(attempt, signal.SIGTERM)
        later = threading.Timer(grace_s, self._kill, args=(handle,))
        later.daemon = True
        with self._lock:
            if not self._is_closed:
                later.start()
                self._kills = [*(kill for kill in self._kills if kill.is_alive()), later]

    def _kill(self, handle: Handle) -> None:
        try:
            if not self.status(handle).over:
                self.stop(handle, 0.0)
        except EngineUnreachable:
            pass  # heartbeats give the node up

    def release(self, handle: Handle) -> None:
        cluster = self._cluster(handle.body["settings"])
        cluster.release(str(handle.body["attempt"]), int(handle.body["nodes"]))

    def describe(self, settings: Mapping[str, Any]) -> EngineCluster:
        cluster = self._cluster(settings)
        answer = cluster.describe(_OPENING_S)
        nodes = [_engine_node(node) for node in answer["nodes"] if _holds_jobs(node)]
        lost = [
            EngineNode(node["host"] or node["address"], node["address"], "down", reason=reason)
            for node in answer["lost"]
            if (reason := node["reason"] or "it does not respond")
        ]
        maximum = int(answer["most_nodes"])
        self._server.check_reachable(settings, nodes)
        return EngineCluster(
            NAME,
            f"{cluster.bridge.version.ray}, Python {cluster.bridge.version.python}",
            tuple(_named_apart(nodes + lost)),
            max(maximum, 0),
            _notices(settings),
        )

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            clusters, self._clusters = list(self._clusters.values()), {}
        for kill in self._kills:
            kill.cancel()
        for cluster in clusters:
            cluster.bridge.close()

    def _cluster(self, settings: Mapping[str, Any]) -> Cluster:
        address = self._own_head(str(settings["head"])) if settings.get("head") else None
        address = address or self._attached(settings)
        with self._lock:
            if self._is_closed:
                raise EngineUnreachable("the server is shutting down", "start it again")
            if address not in self._clusters:
                bridge = Bridge(
                    address,
                    self._server.server_id,
                    self._environments,
                    self._environ,
                    self._home / "engines" / "logs",
                    self._programs,
                    self._bootstrap,
                )
                self._clusters[address] = Cluster(bridge, self._kept_request, self._launches.all)
            return self._clusters[address]

    def _attached(self, settings: Mapping[str, Any]) -> ClusterAddress:
        """Where a cluster is that torchyard does not look after.

        Raises:
            EngineRefused: the settings are wrong, or anybody could be that cluster.
        """
        address = _address(settings)
        if self._programs.is_apart and not address.token_file:
            raise EngineRefused(
                f"the Ray cluster at `{address.address}` has no `token_file`, and this server has "
                "a runner so that strangers run nothing: who reaches such a cluster's ports runs "
                "programs on its nodes, and in place of its answers",
                "switch token authentication on there (docs/guides/ray.md), and ask who has the "
                "role `owner` of the server to name the file with its token",
            )
        return address

    def _own_head(self, key: str) -> ClusterAddress:
        """Where a head is that torchyard looks after.

        Raises:
            EngineUnreachable: it is being started.
        """
        head = self._heads.running(key)
        version = RayVersion(head.version, head.python)
        return ClusterAddress(head.address, str(head.token_file), version)

    def _kept_request(self, attempt: str) -> dict[str, Any] | None:
        text = self._launches.read(attempt)
        return None if text is None else self._request(plans.from_json(text))

    def _request(self, plan: LaunchPlan) -> dict[str, Any]:
        settings = plan.engine_settings
        start = NodeStart(
            attempt_id=plan.attempt_id,
            server_urls=plan.server_urls or [plan.server_url],
            report_token=plan.report_token,
            worker=worker_sha256(self._home),
            server_id=plan.server_id,
            server_certificate=plan.server_certificate,
            folder=str(settings.get("node_folder") or ""),
        )
        return {
            "attempt": plan.attempt_id,
            "job": plan.job,
            "nodes": plan.node_count,
            "resources": resources(plan),
            "labels": _labels(plan),
            "machines": settings.get("joined"),
            "start": start.to_json(),
        }


def resources(plan: LaunchPlan) -> dict[str, float]:
    """What one node of a plan holds, as Ray counts it."""
    bundle: dict[str, float] = {"CPU": float(plan.cores or 1)}
    if plan.gpus_per_node:
        bundle["GPU"] = float(plan.gpus_per_node)
    if plan.memory_bytes:
        bundle["memory"] = float(int(plan.memory_bytes * _MEMORY_SHARE))
    further = RaySettings.of_cluster(plan.engine_settings).resources
    return {**bundle, **{name: float(amount) for name, amount in further.items()}}


def _labels(plan: LaunchPlan) -> dict[str, str]:
    """What the nodes of a plan must be labelled with."""
    settings = plan.engine_settings
    written = RaySettings.of_cluster(settings).labels
    if not settings.get("head"):
        return written
    return {**written, **node_labels.selector(plan.person, settings.get("drained") or ())}


def _address(settings: Mapping[str, Any]) -> ClusterAddress:
    read = RaySettings.of_cluster(settings)
    try:
        version = RayVersion(read.version or RayVersion().ray, read.python)
    except ValueError as error:
        raise EngineRefused(str(error), "leave it out: the cluster's own is found out") from None
    return ClusterAddress(read.address, read.token_file, version)


def _notices(settings: Mapping[str, Any]) -> tuple[str, ...]:
    token_file = str(settings.get("token_file") or "")
    if settings.get("head"):
        return ()  # ours has one
    if not token_file:
        return (
            "the cluster has no `token_file`: who reaches its ports can run programs on its nodes",
        )
    try:
        is_open = Path(token_file).stat().st_mode & 0o077
    except OSError as error:
        return (f"the token's file `{token_file}` can't be read: {error.strerror}",)
    return (f"others may read the token's file `{token_file}`: chmod 600",) if is_open else ()


def _state(node: Mapping[str, Any]) -> tuple[NodeState, str]:
    """A node's state, and why it is lost."""
    address = node.get("address", "")
    if node["state"] == "pending":
        return "pending", ""
    if node["state"] == "running":
        return "running", ""
    if node["state"] == "lost":
        return "lost", f"{address}: {node['because']}" if address else str(node["because"])
    if node.get("code") == _UNUSABLE:
        lines = [line for line in str(node.get("said", "")).splitlines() if line]
        errors = [line for line in lines if line.startswith("error: ")] or lines[-1:]
        because = errors[-1].removeprefix("error: ") if errors else "it can't run the worker"
        hints = [f"; {line}" for line in lines if line.startswith("hint: ")]
        return "lost", f"{address}: {because}{''.join(hints[-1:])}"
    return "exited", ""


def _reason(waiting: Mapping[str, Any], is_own_head: bool = False) -> str:
    """Why nodes of an attempt have no machine yet.

    Args:
        is_own_head: whether its machines joined a head that torchyard looks after.
    """
    count, big_enough, free = waiting["count"], waiting["big_enough"], waiting["free"]
    group = f"its group in Ray is `{waiting['group']}`"
    if waiting["state"] == "CREATED":
        if waiting["for_s"] < _STUCK_S:
            return ""
        return f"Ray has not started its nodes for {waiting['for_s']:.0f} s; {group}"
    machines = f"{count} {plural('machine', count)}"
    if big_enough < count:
        if 0 < waiting["most_nodes"] < count:
            return (
                f"needs {machines}, and Ray's autoscaler starts {waiting['most_nodes']} at the "
                f"most; {group}"
            )
        return (
            f"waits for machines: needs {machines} of its size, and the Ray cluster has "
            f"{big_enough}{_of_other_labels(waiting, is_own_head)}; {group}"
        )
    if free < count:
        return f"waits for machines: needs {machines}, and {free} are free in the Ray cluster"
    if waiting["for_s"] < _STUCK_S:
        return "waits for Ray to place it"
    return (
        f"Ray has not placed it for {waiting['for_s']:.0f} s, although machines are free; {group}"
    )


def _of_other_labels(waiting: Mapping[str, Any], is_own_head: bool) -> str:
    """What of the machines that are big enough does not count, and why."""
    count = waiting.get("other_labels", 0)
    if not count:
        return ""
    if not is_own_head:
        return f", not counting {count} without the labels that the cluster asks for"
    of_others = waiting.get("unmet_labels", {}).get(node_labels.OWNER, 0)
    parts = []
    if of_others:
        parts.append(
            f"{of_others} that run{'s' * (of_others == 1)} only the jobs of who joined "
            f"{'it' if of_others == 1 else 'them'}"
        )
    if count > of_others:
        parts.append(f"{count - of_others} drained or without its labels")
    step = "see `yard node list`"
    if of_others:
        step = "an owner of the server can join machines for everybody: `yard node join --runner`"
    return f", not counting {' and '.join(parts)}: {step}"


def _holds_jobs(node: Mapping[str, Any]) -> bool:
    total = node["total"]
    return bool(total.get("CPU") or total.get("GPU"))


def _engine_node(node: Mapping[str, Any]) -> EngineNode:
    total, available = node["total"], node["available"]
    is_used = any(available.get(key, 0.0) < total.get(key, 0.0) for key in ("CPU", "GPU"))
    kinds = [key.partition(":")[2] for key in total if key.startswith("accelerator_type:")]
    state = "draining" if node["draining"] else "running" if is_used else "idle"
    return EngineNode(
        # As `yard node list` has it.
        name=node["labels"].get(node_labels.MACHINE) or node["host"] or node["address"],
        address=node["address"],
        state=state,
        cpus=int(total.get("CPU", 0)),
        memory_bytes=int(total.get("memory", 0)),
        gpus=int(total.get("GPU", 0)),
        gpu_kind=kinds[0] if kinds else "",
        labels={key: text for key, text in node["labels"].items() if not key.startswith("ray.io/")},
        users=tuple(node["users"]),
    )


def _named_apart(nodes: list[EngineNode]) -> list[EngineNode]:
    """Several nodes of one machine are named by their addresses."""
    names = [node.name for node in nodes]
    return [
        EngineNode(**{**vars(node), "name": node.address}) if names.count(node.name) > 1 else node
        for node in nodes
    ]


def open_engine(
    home: Path,
    environ: Mapping[str, str],
    launches: LaunchFiles,
    server: ServerForNodes,
    runner: RunnerClient | None = None,
) -> RayEngine:
    """The engine of this server; nothing is started before a cluster is used."""
    bootstrap = Path(__file__).parent.with_name("bootstrap_program.py").read_text()
    return RayEngine(home, environ, launches, server, bootstrap, runner=runner)
