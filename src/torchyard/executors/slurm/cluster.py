"""What a cluster of Slurm says of itself.

Owns: Slurm's nodes and partitions in our words.
Leaves: jobs to job_states.py.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping, Sequence

from torchyard.executors.executor import EngineCluster, EngineNode, EngineRefused
from torchyard.executors.slurm import limits
from torchyard.executors.slurm.commands import Slurm
from torchyard.executors.slurm.settings import SlurmSettings

_DOWN = ("DOWN", "FAIL", "ERROR", "UNKNOWN", "NOT_RESPONDING")
_DRAINING = ("DRAIN", "MAINT", "RESERVED")
_JOINING = ("POWERING_UP", "CONFIGURING", "REBOOT", "FUTURE")
_RUNNING = ("ALLOCATED", "MIXED", "COMPLETING")
_GRES = re.compile(r"gpu(?::(?P<kind>[^:,()]+))?:(?P<count>\d+)")
_PROBE_S = 1.0
_NEW_CONTROLLER_S = 60.0
_MOST_NAMES = 100_000


def describe(slurm: Slurm, settings: SlurmSettings) -> EngineCluster:
    """
    Raises:
        EngineUnreachable: Slurm does not answer.
        EngineRefused: the settings can't be used there, such as a partition that does not exist.
    """
    version = slurm.version()
    partition = limits.partition_of(slurm, settings)
    limits.check(partition, settings, 1)
    names = set(filter(None, settings.partition.split(","))) or {partition.get("PartitionName", "")}
    users = _users(slurm.running(",".join(sorted(filter(None, names)))))
    nodes = [
        _node(record, users.get(record["NodeName"], ()))
        for record in slurm.records("node")
        if names & set(record.get("Partitions", "").split(",")) or names == {""}
    ]
    notices = list(_notices(partition, nodes))
    try:
        slurm.would_accept(settings.words)
    except EngineRefused as refusal:
        if not is_passing(refusal, nodes, slurm):
            raise
        notices.append(refusal.message)
    maximum = limits.most_nodes(partition) or len(nodes)
    return EngineCluster("slurm", version, tuple(nodes), maximum, tuple(notices))


def is_passing(refusal: EngineRefused, nodes: Sequence[EngineNode], slurm: Slurm) -> bool:
    """Whether Slurm may refuse it only because nodes are down, as when its controller starts."""
    if "node configuration" not in refusal.message.lower():
        return False
    if any(node.state in ("down", "joining") for node in nodes):
        return True
    # It counts on no node that has not registered yet, whatever it says of their states.
    age_s = slurm.controller_age_s()
    return age_s is not None and age_s < _NEW_CONTROLLER_S


def nodes_of(slurm: Slurm) -> list[EngineNode]:
    """All nodes, without who runs there."""
    return [_node(record, ()) for record in slurm.records("node")]


def answers(slurm: Slurm, node: str) -> bool:
    """Whether a node's slurmd does; one that can't be asked counts as if it did."""
    records = slurm.records("node", node)
    if not records or state_of(records[0].get("State", "")) == "down":
        return False
    address, port = records[0].get("NodeAddr", ""), records[0].get("Port", "6818")
    try:
        socket.create_connection((address, int(port)), _PROBE_S).close()
    except (ConnectionRefusedError, TimeoutError):
        return False
    except (OSError, ValueError):
        return True  # this machine can't reach the nodes' network
    return True


def names_of(listed: str) -> Iterator[str]:
    """The nodes of a list as Slurm writes it: `n[1-3,7],login`; none of a list without end."""
    count = 0
    for part in _parts(listed):
        for name in _expanded(part) if part else ():
            count += 1
            if count > _MOST_NAMES:
                return
            yield name


def _parts(listed: str) -> Iterator[str]:
    """What stands between the commas that are not inside of brackets."""
    start, is_inside = 0, False
    for index, character in enumerate(listed):
        if character == "," and not is_inside:
            yield listed[start:index]
            start = index + 1
        elif character in "[]":
            is_inside = character == "["
    yield listed[start:]


def _expanded(part: str) -> Iterator[str]:
    before, _, rest_of_part = part.partition("[")
    ranges, is_range, after = rest_of_part.partition("]")
    if not is_range:
        yield part
        return
    for entry in ranges.split(","):
        first, _, last = entry.partition("-")
        last = last or first
        if not (first.isdigit() and last.isdigit()):
            continue
        for number in range(int(first), min(int(last), int(first) + _MOST_NAMES) + 1):
            for rest in _expanded(after):
                yield f"{before}{number:0{len(first)}d}{rest}"


def _node(record: Mapping[str, str], users: Sequence[str]) -> EngineNode:
    kinds = {
        match["kind"] or "": int(match["count"]) for match in _GRES.finditer(record.get("Gres", ""))
    }
    features = record.get("ActiveFeatures", "")
    return EngineNode(
        name=record["NodeName"],
        address=record.get("NodeAddr", ""),
        state=state_of(record.get("State", "")),
        cpus=_count(record.get("CPUEfctv") or record.get("CPUTot", "")),
        memory_bytes=_count(record.get("RealMemory", "")) << 20,
        gpus=sum(kinds.values()),
        gpu_kind=", ".join(kind for kind in kinds if kind),
        labels={"features": features} if features not in ("", "(null)") else {},
        users=tuple(users),
        reason=record.get("Reason", ""),
    )


def state_of(state: str) -> str:
    """`IDLE+DRAIN`, `MIXED*` and the like in our words."""
    words = set(re.split(r"[+]", state.rstrip("*~#!%$@^-")))
    if state.endswith("*") or words & set(_DOWN):
        return "down"
    if any(word.startswith(_DRAINING) for word in words):
        return "draining"
    if words & set(_JOINING) or state.endswith(("#", "@", "^")):
        return "joining"
    return "running" if words & set(_RUNNING) else "idle"


def _users(jobs: Sequence[tuple[str, str, str, str]]) -> dict[str, list[str]]:
    """By node, whose jobs run there."""
    users: dict[str, list[str]] = {}
    for id, user, nodes, name in jobs:
        for node in names_of(nodes):
            users.setdefault(node, []).append(f"{name} ({user}, Slurm job {id})")
    return users


def _notices(partition: Mapping[str, str], nodes: Sequence[EngineNode]) -> Iterator[str]:
    name, state = partition.get("PartitionName", ""), partition.get("State", "UP")
    if state != "UP":
        yield f"partition `{name}` is {state}: jobs wait until an administrator opens it"
    if nodes and all(node.state in ("down", "draining") for node in nodes):
        yield "no node of the partition is up"


def _count(text: str) -> int:
    return int(text) if text.isdigit() else 0
