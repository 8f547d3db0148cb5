"""One mpirun over the nodes of a job, whose ranks are this worker's own children.

Owns: the words of mpirun, what each node's worker does for it, the variables it gives to a rank.
Leaves: finding Open MPI to mpi_programs.py, the ways its processes ask to mpi_socket.py and
mpi_remote_start.py, the ranks themselves to ranks.py.
Always: mpirun on node 0 and one of its daemons on every other node run beside the ranks; each
starts a shim for a rank, and the rank itself is started by the worker, with the shim's variables.
So logs, exit codes, evidence, stops and their grace are those of every other job, and no ssh is
needed.

Source: Open MPI 4.1's orte/mca/plm/rsh (the agent that starts daemons) and ess/env.
"""

from __future__ import annotations

import ipaddress
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.shared.failures import Failure
from torchyard.worker import IMPORT_PATH
from torchyard.worker.launch import mpi_programs, mpi_remote_start, mpi_shim
from torchyard.worker.launch.mpi_socket import Door, Request
from torchyard.worker.system import networks, processes, temporary

if TYPE_CHECKING:
    from torchyard.shared.plan import LaunchPlan
    from torchyard.worker.files.node_folders import NodeFolders
    from torchyard.worker.launch.mpi_remote_start import Errands
    from torchyard.worker.launch.ranks import Gang, Rank, RankExit
    from torchyard.worker.launch.surroundings import Surroundings
    from torchyard.worker.preflight.rendezvous import Rendezvous
    from torchyard.worker.server.control import Orders
    from torchyard.worker.system.mounts import Mount

AGENT = "torchyard-mpi-agent"
_LOOK_EVERY_S = 5.0
_SETTLE_S = 1.0
_LOG_LINES, _LINE_LENGTH = 12, 400
_LOG_BYTES = 16 << 10
# A batch system that the server itself runs in would have mpirun ask it for nodes.
_FOREIGN = ("SLURM_", "PBS_", "LSB_", "PE_HOSTFILE", "OMPI_COMM_", "OMPI_MCA_ess", "PMIX_")


class Launch:
    """One node's part; used by the main thread alone."""

    def __init__(
        self, plan: LaunchPlan, node: int, folders: NodeFolders, found: Surroundings, gang: Gang
    ) -> None:
        self._plan = plan
        self._node = node
        self._folders = folders
        self._found = found
        self._gang = gang
        self._shims: dict[int, Request] = {}
        self._complete = False
        # A node may still fetch what it needs when another one is ready.
        self._patience_s = 3 * plan.meeting_timeout_s
        self.log = folders.node / "mpi.log"
        self.log_name = f"system_logs/mpi-node-{node}.log"
        self.log.touch()

    def run(
        self,
        shared: Mapping[str, str],
        environments: Mapping[Rank, Mapping[str, str]],
        orders: Orders,
        errands: Errands | None,
    ) -> dict[int, Rank]:
        """Start the ranks; returns those by pid that Open MPI had started when something failed.

        Args:
            shared: what the ranks of this node share, for mpirun or its daemon.
            errands: where the daemon's command comes to; None on node 0.

        Raises:
            Failure: there is no Open MPI here, or the ranks did not all come in time.
        """
        programs = mpi_programs.find(self._path(shared), self._node)
        door = Door(self._found.temporary / "mpi-door", orders.wake)
        environment = self._launcher_environment(shared, door)
        deadline = time.monotonic() + self._patience_s
        if self._node == 0:
            found = self._found
            words = mpirun(programs.mpirun, self._plan, found.hostname, found.meeting, environment)
        else:
            assert errands is not None
            _wait(orders, deadline, lambda: bool(errands.command) or not self._gang.look())
            if orders.stopped:
                return {}
            if not errands.command:
                raise self._late("mpirun on node 0 did not ask for a daemon on this node")
            words = ["/bin/sh", "-c", f"exec {errands.command}"]
        self._gang.start_launcher(words, environment, self.log)
        return self._start_ranks(door, environments, orders, deadline)

    def rank_exited(self, exit: RankExit) -> None:
        """Let the shim of a rank that ended well do so too."""
        # That of one that failed is held: it ends when it is ended.
        shim = self._shims.get(exit.rank.rank)
        if shim is not None and exit.exit_code == 0:
            shim.answer("0")

    def failure(self) -> Failure:
        """What is told when mpirun or a daemon of its ended, and no rank before it."""
        what = "mpirun" if self._node == 0 else "Open MPI's daemon"
        status = self._gang.launcher_status or 0
        how = f"was killed by signal {-status}" if status < 0 else f"ended with code {status}"
        when = "while its ranks ran" if self._complete else "before all ranks had started"
        lines = _last_lines(self.log)
        return Failure(
            "mpi_failed",
            f"{what} on node {self._node} {how} {when}",
            f"see {self.log_name}",
            128 - status if status < 0 else status or 1,
            # What ends mpirun is mostly the end of a rank or a node, which says so itself.
            {
                "node": self._node,
                "consequence": True,
                "log": self.log_name,
                "log_lines": lines,
            },
        )

    def _start_ranks(
        self,
        door: Door,
        environments: Mapping[Rank, Mapping[str, str]],
        orders: Orders,
        deadline: float,
    ) -> dict[int, Rank]:
        waiting = {rank.rank: rank for rank in environments}
        started: dict[int, Rank] = {}
        mounts = self._found.layout.mounts
        while waiting and not orders.stopped and self._gang.look():
            request = door.take()
            if request is None:
                if time.monotonic() >= deadline:
                    raise self._late(f"Open MPI did not start rank {min(waiting)}")
                orders.wait(_LOOK_EVERY_S)
            elif request.host:
                request.answer(self._send_errand(request))
            else:
                started = self._start_rank(request, waiting, environments, mounts)
        self._complete = not waiting
        return started

    def _start_rank(
        self,
        request: Request,
        waiting: dict[int, Rank],
        environments: Mapping[Rank, Mapping[str, str]],
        mounts: Sequence[Mount],
    ) -> dict[int, Rank]:
        number = request.told.get("OMPI_COMM_WORLD_RANK", "")
        rank = waiting.pop(int(number), None) if number.isdigit() else None
        if rank is None:
            raise self._failed(f"Open MPI started rank {number or '?'} on node {self._node}")
        self._shims[rank.rank] = request
        variables = self._rank_environment(environments[rank], request.told)
        return self._gang.start(self._found.layout.command, {rank: variables}, mounts)

    def _send_errand(self, request: Request) -> str:
        node = node_of(request.host)
        meeting = self._found.meeting
        token, port = self._plan.report_token, meeting.ports[node][0]
        why = mpi_remote_start.send(meeting.hosts[node], port, token, request.command)
        return f"the worker of node {node} at {meeting.hosts[node]}:{port}: {why}" if why else "0"

    def _launcher_environment(self, shared: Mapping[str, str], door: Door) -> dict[str, str]:
        programs = self._folders.node / "mpi"
        programs.mkdir(exist_ok=True)
        agent = programs / AGENT
        agent.write_text(mpi_shim.AGENT)
        agent.chmod(0o700)
        plan = self._plan
        kept = {name: value for name, value in shared.items() if not name.startswith(_FOREIGN)}
        # By another name than mpirun's its ranks would not know that they share a node's memory.
        named = {"PMIX_HOSTNAME": host_of(self._node)} if self._node else {}
        return {
            **kept,
            **plan.environment_variables,
            **named,
            "PATH": f"{programs}{os.pathsep}{self._path(shared)}",
            mpi_shim.DOOR: str(door.path),
            mpi_shim.PYTHON: sys.executable,
            mpi_shim.PROGRAM: _PROGRAM.format(IMPORT_PATH),
            processes.MARK_VARIABLE: processes.mark(plan.attempt_id, self._node),
        }

    def _path(self, shared: Mapping[str, str]) -> str:
        return self._plan.environment_variables.get("PATH") or shared.get("PATH", os.defpath)

    def _rank_environment(self, own: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in own.items() if not name.startswith(_FOREIGN)}
        # Nodes that share a machine would take each other's segments for their own.
        memory = str(temporary.shared_memory(self._folders.node))
        return {
            **kept,
            **told,
            "OMPI_MCA_btl_vader_backing_directory": memory,
            "OMPI_MCA_osc_sm_backing_directory": memory,
            **self._yielding(),
            **self._plan.environment_variables,
            processes.MARK_VARIABLE: own[processes.MARK_VARIABLE],
        }

    def _yielding(self) -> dict[str, str]:
        """More ranks than cores: one that waits must let the others run."""
        plan = self._plan
        here = plan.world_size if plan.single_host else plan.processes_per_node
        return {"OMPI_MCA_mpi_yield_when_idle": "1"} if here > self._found.cpu_count else {}

    def _late(self, what: str) -> Failure:
        return self._failed(f"{what} within {self._patience_s:g} s")

    def _failed(self, what: str) -> Failure:
        self._gang.end()
        lines = _last_lines(self.log)
        return Failure("mpi_failed", what, f"see {self.log_name}", 1, {"log_lines": lines})


def mpirun(
    program: str,
    plan: LaunchPlan,
    hostname: str,
    meeting: Rendezvous,
    environment: Mapping[str, str],
) -> list[str]:
    """The command of node 0."""
    count = plan.processes_per_node
    hosts = [f"{hostname}:{count}"]
    hosts += [f"{host_of(node)}:{count}" for node in range(1, plan.node_count)]
    settings = {
        "plm": "rsh",
        "plm_rsh_agent": AGENT,
        # Daemons may start daemons themselves; node 0 alone has our agent.
        "plm_rsh_no_tree_spawn": "1",
        **_network(meeting.hosts),
    }
    words = [program, "--allow-run-as-root", "--leave-session-attached", "--oversubscribe"]
    # Where its own programs are, each node's PATH says.
    words.append("--noprefix")
    words += ["--bind-to", "none", "--map-by", "slot"]
    words += ["--host", ",".join(hosts), "-np", str(plan.world_size)]
    for name, value in settings.items():
        # A setting that the user made by a variable stays the user's.
        if not _is_set(name, environment):
            words += ["--mca", name, value]
    return [*words, "/bin/sh", "-c", mpi_shim.RANK]


def host_of(node: int) -> str:
    """How mpirun calls another node: an address, so that nobody looks it up, and none of a host.

    Where the node is, its worker told in the meeting; hosts may have one name, or be one.
    """
    return f"127.{100 + (node >> 16)}.{node >> 8 & 255}.{node & 255}"


def node_of(host: str) -> int:
    _, high, middle, low = map(int, host.split("."))
    return (high - 100 << 16) + (middle << 8) + low


def _network(hosts: Sequence[str]) -> dict[str, str]:
    """The smallest net that holds every node: no other way than the one they met on."""
    try:
        numbers = [int(ipaddress.IPv4Address(host)) for host in hosts]
    except ValueError:
        return {}
    if hosts[0] == networks.LOOPBACK:
        net = ipaddress.IPv4Network("127.0.0.0/8")
    else:
        # Open MPI takes every address to be in a net of 32 bits.
        bits = min(31, 32 - (min(numbers) ^ max(numbers)).bit_length())
        net = ipaddress.IPv4Network((min(numbers), bits), strict=False)
    return {"oob_tcp_if_include": str(net), "btl_tcp_if_include": str(net)}


def _is_set(name: str, environment: Mapping[str, str]) -> bool:
    other = name.replace("_if_include", "_if_exclude")
    return f"OMPI_MCA_{name}" in environment or f"OMPI_MCA_{other}" in environment


def _wait(orders: Orders, deadline: float, enough: Callable[[], bool]) -> None:
    while not enough() and not orders.stopped and time.monotonic() < deadline:
        orders.wait(min(_LOOK_EVERY_S, max(0.0, deadline - time.monotonic())))


def _last_lines(log: Path) -> list[str]:
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - _LOG_BYTES))
        lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
    words = [line.rstrip()[:_LINE_LENGTH] for line in lines if line.strip(" -")]
    return words[-_LOG_LINES:]


_PROGRAM = (
    "import sys; sys.path.insert(0, {!r}); "
    "from torchyard.worker.launch.mpi_shim import main; sys.exit(main(sys.argv[1:]))"
)
