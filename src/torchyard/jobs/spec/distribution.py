"""What a job file says of how its processes are launched.

Owns: the keys of `distribution`, how many processes they make on each node, what of them can't be.
Leaves: nodes and other resources to resources.py; launchers in the command to
command_launchers.py; launching to the worker.
Always: processes are as many on each node; whatever would not start as it is written is refused
before the job is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import count
from torchyard.jobs.spec import command_launchers
from torchyard.jobs.spec.values import At, choice, mapping, refused, section
from torchyard.shared.plurals import plural

_OF_TYPE = {
    "pytorch": ("process_count_per_instance", "communication_backend"),
    "mpi": ("process_count_per_instance",),
    "tensorflow": ("worker_count", "parameter_server_count"),
}
_AT: At = ("distribution",)


@dataclass(frozen=True)
class Distribution:
    """`kind` is pytorch, mpi, tensorflow or empty; `processes` are those of one node."""

    kind: str = ""
    processes: int = 1
    parameter_servers: int = 0
    notices: tuple[str, ...] = ()


def read(job: Mapping[str, Any], nodes: int) -> Distribution:
    """
    Raises:
        InvalidSpec: what is wrong or not served, and where.
    """
    distribution = _read(job, nodes)
    command = str(job.get("command") or "")
    notice = command_launchers.torchrun_notice(command, nodes, distribution.processes)
    return replace(distribution, notices=(*distribution.notices, *filter(None, (notice,))))


def _read(job: Mapping[str, Any], nodes: int) -> Distribution:
    if not job.get("distribution"):
        return Distribution()
    body = mapping(job["distribution"], _AT, "`distribution`")
    if not body.get("type"):
        raise InvalidSpec("`distribution` has no `type`", "write `type: pytorch`", at=_AT)
    kind = choice(body, "type", _AT, "distribution.type", "")
    if kind.support == "refused":
        raise refused(kind, (*_AT, "type"))
    section(job, "distribution")
    for key in body:
        if key != "type" and key not in _OF_TYPE[kind.value]:
            raise InvalidSpec(
                f"`{key}` is not a key of `distribution` with `type: {kind.value}`",
                f"it has: {', '.join(_OF_TYPE[kind.value])}",
                at=(*_AT, str(key)),
            )
    if kind.value == "tensorflow":
        return _tensorflow(body, nodes)
    processes = count(body, "process_count_per_instance", _AT, default=1, least=1)
    if kind.value == "mpi":
        return _mpi(job, nodes, processes)
    return Distribution(kind.value, processes)


def _mpi(job: Mapping[str, Any], nodes: int, processes: int) -> Distribution:
    launcher = command_launchers.mpi_launcher(str(job.get("command") or ""))
    if launcher:
        raise InvalidSpec(
            f"the command starts `{launcher}`, and `distribution.type: mpi` starts mpirun already: "
            f"each of its {nodes * processes} processes ({_times(nodes, processes)}) would launch "
            "all of them again",
            f"leave out `{launcher}` and give the program that it starts; or remove "
            "`distribution` and start it yourself, once on each node",
            at=("command",),
        )
    if nodes * processes > 1:
        return Distribution("mpi", processes)
    # One process has nobody to meet: what its launcher would do is nothing.
    notice = "`distribution.type: mpi` with one process is started as it is, without mpirun"
    return Distribution("mpi", 1, notices=(notice,))


def _tensorflow(body: Mapping[str, Any], nodes: int) -> Distribution:
    workers = count(body, "worker_count", _AT, default=nodes, least=1)
    servers = count(body, "parameter_server_count", _AT, default=0)
    tasks = workers + servers
    if tasks % nodes:
        keys = "`worker_count` and `parameter_server_count`" if servers else "`worker_count`"
        raise InvalidSpec(
            f"{tasks} tasks of TensorFlow ({workers} workers, {servers} parameter servers) can't "
            f"be spread evenly over {nodes} nodes",
            f"make {keys} a multiple of `resources.instance_count: {nodes}` in sum, or change "
            "`instance_count`",
            at=(*_AT, "worker_count"),
        )
    return Distribution("tensorflow", tasks // nodes, servers)


def _times(nodes: int, processes: int) -> str:
    node_count = f"{nodes} {plural('node', nodes)}"
    return f"{node_count} of {processes} each"
