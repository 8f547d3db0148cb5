"""What a job file says of how its processes are launched.

Owns: the keys of `distribution`, how many processes they make on each node, what of them can't be.
Leaves: nodes and other resources to resources.py; launchers in the command to
command_launchers.py; launching to the worker.
Always: processes are as many on each node; whatever would not start as it is written is refused
before the job is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from torchyard.base.documents.models import At, By, Choice, Key, Refused, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import text
from torchyard.jobs.spec import command_launchers
from torchyard.jobs.spec.parts import JobPart
from torchyard.jobs.spec.resources import AtLeast
from torchyard.shared.plurals import plural

_BACKENDS = ("nccl", "gloo")
_OF_TYPE = {
    "pytorch": ("process_count_per_instance", "communication_backend"),
    "mpi": ("process_count_per_instance",),
    "tensorflow": ("worker_count", "parameter_server_count"),
}
_RAY = Refused("`type: ray` is not served")
_TYPE = Choice(
    pytorch=Key("one process a GPU, with torch's variables set"),
    mpi=Key("one mpirun over all nodes, which need Open MPI"),
    tensorflow=Key("one process a task, with TF_CONFIG set"),
    ray=Key("remove `distribution` and start Ray in your command with `ray.init()`", "refused"),
)


@dataclass(frozen=True)
class Distribution:
    """`kind` is pytorch, mpi, tensorflow or empty; `processes` are those of one node."""

    kind: str = ""
    processes: int = 1
    parameter_servers: int = 0
    communication_backend: str = ""
    notices: tuple[str, ...] = ()


def _backend(value: Any, at: At) -> str:
    """In any case, as v1's PyTorchConfiguration has it."""
    written = text({at[-1]: value}, str(at[-1]), at[:-1])
    if written and written.lower() not in _BACKENDS:
        raise InvalidSpec(
            f"`{written[:50]}` is not a `communication_backend`",
            "use `nccl` between GPUs or `gloo`, or leave it out",
            at=at,
        )
    return written.lower()


class DistributionFile(JobPart):
    path_in_file: ClassVar[str] = "distribution"
    example: ClassVar[str] = "{type: pytorch, process_count_per_instance: 2}"

    type: Annotated[str, _TYPE] = ""
    process_count_per_instance: Annotated[int, AtLeast(1), Key("default 1")] = 1
    communication_backend: Annotated[
        str,
        By(_backend),
        Key(
            "torchyard's own: `nccl` or `gloo`, checked against the nodes before the ranks start; "
            "`type: pytorch`"
        ),
    ] = ""
    worker_count: Annotated[int, AtLeast(1), Key("of `type: tensorflow`; default: one a node")] = 0
    parameter_server_count: Annotated[int, AtLeast(0), Key("of `type: tensorflow`; default 0")] = 0
    port: Annotated[None, _RAY] = None
    address: Annotated[None, _RAY] = None
    include_dashboard: Annotated[None, _RAY] = None
    dashboard_port: Annotated[None, _RAY] = None
    head_node_additional_args: Annotated[None, _RAY] = None
    worker_node_additional_args: Annotated[None, _RAY] = None

    @rule("type")
    def _type(self) -> None:
        if not self.type:
            raise InvalidSpec("`distribution` has no `type`", "write `type: pytorch`")
        for key in self.model_fields_set - {"type"}:
            if key not in _OF_TYPE[self.type] and getattr(self, key) is not None:
                raise InvalidSpec(
                    f"`{key}` is not a key of `distribution` with `type: {self.type}`",
                    f"it has: {', '.join(_OF_TYPE[self.type])}",
                    at=(key,),
                )

    def of(self, command: str, nodes: int) -> Distribution:
        """
        Raises:
            InvalidSpec: what would not start so, with its place in the job file.
        """
        if self.type == "tensorflow":
            return self._tensorflow(nodes)
        processes = self.process_count_per_instance
        if self.type == "mpi":
            return _mpi(command, nodes, processes)
        return Distribution(self.type, processes, communication_backend=self.communication_backend)

    def _tensorflow(self, nodes: int) -> Distribution:
        workers, servers = self.worker_count or nodes, self.parameter_server_count
        tasks = workers + servers
        if tasks % nodes:
            keys = "`worker_count` and `parameter_server_count`" if servers else "`worker_count`"
            raise InvalidSpec(
                f"{tasks} tasks of TensorFlow ({workers} workers, {servers} parameter servers) "
                f"can't be spread evenly over {nodes} nodes",
                f"make {keys} a multiple of `resources.instance_count: {nodes}` in sum, or change "
                "`instance_count`",
                at=("distribution", "worker_count"),
            )
        return Distribution("tensorflow", tasks // nodes, servers)


def read(file: DistributionFile | None, command: str, nodes: int) -> Distribution:
    """
    Raises:
        InvalidSpec: what would not start so.
    """
    distribution = Distribution() if file is None else file.of(command, nodes)
    notice = command_launchers.torchrun_notice(command, nodes, distribution.processes)
    return replace(distribution, notices=(*distribution.notices, *filter(None, (notice,))))


def _mpi(command: str, nodes: int, processes: int) -> Distribution:
    launcher = command_launchers.mpi_launcher(command)
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


def _times(nodes: int, processes: int) -> str:
    node_count = f"{nodes} {plural('node', nodes)}"
    return f"{node_count} of {processes} each"
