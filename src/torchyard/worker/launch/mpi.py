"""Run mpirun across the nodes of a job while the ranks stay the workers' own children.

Owns: the command line of mpirun, what each node's worker does for it, the variables of a rank.
Leaves: finding Open MPI to mpi_programs.py, requests of its processes to mpi_socket.py and
mpi_remote_start.py, the ranks themselves to ranks.py.
Always: mpirun on node 0 and one of its daemons on every other node run beside the ranks. Each
starts a shim per rank; the rank itself is started by the worker, with the shim's variables. So
logs, exit codes, diagnosis, stops and grace periods work as in every other job, without ssh.

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
from torchyard.worker.launch.mpi_socket import MpiSocket, RankRequest
from torchyard.worker.system import networks, processes, temporary

if TYPE_CHECKING:
    from torchyard.shared.plan import LaunchPlan
    from torchyard.worker.files.node_folders import NodeFolders
    from torchyard.worker.launch.mpi_remote_start import RemoteStart
    from torchyard.worker.launch.node_setup import NodeSetup
    from torchyard.worker.launch.ranks import Gang, Rank, RankExit
    from torchyard.worker.preflight.rendezvous import Rendezvous
    from torchyard.worker.server.control import Control
    from torchyard.worker.system.mounts import Mount

AGENT = "torchyard-mpi-agent"
_POLL_EVERY_S = 5.0
_SETTLE_S = 1.0
_LOG_LINES, _LINE_LENGTH = 12, 400
_LOG_BYTES = 16 << 10
# If the server itself runs in a batch system, mpirun would ask that for nodes.
_REMOVED_PREFIXES = ("SLURM_", "PBS_", "LSB_", "PE_HOSTFILE", "OMPI_COMM_", "OMPI_MCA_ess", "PMIX_")


class MpiLaunch:
    """One node's part of the launch; used only by the main thread."""

    def __init__(
        self, plan: LaunchPlan, node: int, folders: NodeFolders, setup: NodeSetup, gang: Gang
    ) -> None:
        self._plan = plan
        self._node = node
        self._folders = folders
        self._setup = setup
        self._gang = gang
        self._shims: dict[int, RankRequest] = {}
        self._complete = False
        # One node may still be fetching data when another one is ready.
        self._timeout_s = 3 * plan.join_timeout_s
        self.log = folders.node / "mpi.log"
        self.log_name = f"system_logs/mpi-node-{node}.log"
        self.log.touch()

    def run(
        self,
        shared: Mapping[str, str],
        environments: Mapping[Rank, Mapping[str, str]],
        control: Control,
        remote_start: RemoteStart | None,
    ) -> dict[int, Rank]:
        """Start the ranks; return those started, by pid, also if a rank fails meanwhile.

        Args:
            shared: the variables that all ranks of this node share, for mpirun or its daemon.
            remote_start: receives the daemon's command; None on node 0.

        Raises:
            Failure: Open MPI is missing, or did not start all ranks in time.
        """
        mpirun_path = mpi_programs.find(self._path(shared), self._node)
        mpi_socket = MpiSocket(self._setup.temporary / "mpi-socket", control.wake)
        environment = self._launcher_environment(shared, mpi_socket)
        deadline = time.monotonic() + self._timeout_s
        if self._node == 0:
            setup = self._setup
            command = mpirun(mpirun_path, self._plan, setup.hostname, setup.rendezvous, environment)
        else:
            assert remote_start is not None
            _wait_until(
                control, deadline, lambda: bool(remote_start.command) or not self._gang.poll()
            )
            if control.stopped:
                return {}
            if not remote_start.command:
                raise self._timed_out("mpirun on node 0 did not request a daemon on this node")
            command = ["/bin/sh", "-c", f"exec {remote_start.command}"]
        self._gang.start_launcher(command, environment, self.log)
        return self._start_ranks(mpi_socket, environments, control, deadline)

    def rank_exited(self, exit: RankExit) -> None:
        """Let the shim of a rank that succeeded exit too."""
        # The shim of a failed rank keeps running until it is stopped.
        shim = self._shims.get(exit.rank.rank)
        if shim is not None and exit.exit_code == 0:
            shim.answer("0")

    def failure(self) -> Failure:
        """The failure if mpirun or its daemon ended before any rank failed."""
        program = "mpirun" if self._node == 0 else "Open MPI's daemon"
        status = self._gang.launcher_status or 0
        ending = f"was killed by signal {-status}" if status < 0 else f"exited with code {status}"
        moment = "while its ranks ran" if self._complete else "before all ranks had started"
        lines = _last_lines(self.log)
        return Failure(
            "mpi_failed",
            f"{program} on node {self._node} {ending} {moment}",
            f"see {self.log_name}",
            128 - status if status < 0 else status or 1,
            # Usually mpirun ends because a rank or a node failed, which is reported separately.
            {
                "node": self._node,
                "consequence": True,
                "log": self.log_name,
                "log_lines": lines,
            },
        )

    def _start_ranks(
        self,
        mpi_socket: MpiSocket,
        environments: Mapping[Rank, Mapping[str, str]],
        control: Control,
        deadline: float,
    ) -> dict[int, Rank]:
        waiting = {rank.rank: rank for rank in environments}
        started: dict[int, Rank] = {}
        mounts = self._setup.layout.mounts
        while waiting and not control.stopped and self._gang.poll():
            request = mpi_socket.take()
            if request is None:
                if time.monotonic() >= deadline:
                    raise self._timed_out(f"Open MPI did not start rank {min(waiting)}")
                control.wait(_POLL_EVERY_S)
            elif request.host:
                request.answer(self._start_remotely(request))
            else:
                started = self._start_rank(request, waiting, environments, mounts)
        self._complete = not waiting
        return started

    def _start_rank(
        self,
        request: RankRequest,
        waiting: dict[int, Rank],
        environments: Mapping[Rank, Mapping[str, str]],
        mounts: Sequence[Mount],
    ) -> dict[int, Rank]:
        rank_number = request.variables.get("OMPI_COMM_WORLD_RANK", "")
        rank = waiting.pop(int(rank_number), None) if rank_number.isdigit() else None
        if rank is None:
            raise self._failed(f"Open MPI started rank {rank_number or '?'} on node {self._node}")
        self._shims[rank.rank] = request
        variables = self._rank_environment(environments[rank], request.variables)
        return self._gang.start(self._setup.layout.command, {rank: variables}, mounts)

    def _start_remotely(self, request: RankRequest) -> str:
        node = node_of(request.host)
        rendezvous = self._setup.rendezvous
        token, port = self._plan.report_token, rendezvous.ports[node][0]
        error = mpi_remote_start.request_start(rendezvous.hosts[node], port, token, request.command)
        return (
            f"the worker of node {node} at {rendezvous.hosts[node]}:{port}: {error}"
            if error
            else "0"
        )

    def _launcher_environment(
        self, shared: Mapping[str, str], mpi_socket: MpiSocket
    ) -> dict[str, str]:
        programs = self._folders.node / "mpi"
        programs.mkdir(exist_ok=True)
        agent = programs / AGENT
        agent.write_text(mpi_shim.AGENT)
        agent.chmod(0o700)
        plan = self._plan
        inherited = {
            name: value for name, value in shared.items() if not name.startswith(_REMOVED_PREFIXES)
        }
        # Under another name than mpirun's, ranks would not detect that they share a node's memory.
        host_variable = {"PMIX_HOSTNAME": host_of(self._node)} if self._node else {}
        return {
            **inherited,
            **plan.environment_variables,
            **host_variable,
            "PATH": f"{programs}{os.pathsep}{self._path(shared)}",
            mpi_shim.SOCKET: str(mpi_socket.path),
            mpi_shim.PYTHON: sys.executable,
            mpi_shim.PROGRAM: _PROGRAM.format(IMPORT_PATH),
            processes.MARK_VARIABLE: processes.mark(plan.attempt_id, self._node),
        }

    def _path(self, shared: Mapping[str, str]) -> str:
        return self._plan.environment_variables.get("PATH") or shared.get("PATH", os.defpath)

    def _rank_environment(
        self, rank_variables: Mapping[str, str], mpi_variables: Mapping[str, str]
    ) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in rank_variables.items()
            if not name.startswith(_REMOVED_PREFIXES)
        }
        # Nodes that share a machine would otherwise use each other's segments.
        memory = str(temporary.shared_memory(self._folders.node))
        return {
            **inherited,
            **mpi_variables,
            "OMPI_MCA_btl_vader_backing_directory": memory,
            "OMPI_MCA_osc_sm_backing_directory": memory,
            **self._idle_settings(),
            **self._plan.environment_variables,
            processes.MARK_VARIABLE: rank_variables[processes.MARK_VARIABLE],
        }

    def _idle_settings(self) -> dict[str, str]:
        """With more ranks than cores, a waiting rank must yield the core."""
        plan = self._plan
        local_ranks = plan.world_size if plan.single_host else plan.processes_per_node
        return {"OMPI_MCA_mpi_yield_when_idle": "1"} if local_ranks > self._setup.cpu_count else {}

    def _timed_out(self, program: str) -> Failure:
        return self._failed(f"{program} within {self._timeout_s:g} s")

    def _failed(self, program: str) -> Failure:
        self._gang.end()
        lines = _last_lines(self.log)
        return Failure("mpi_failed", program, f"see {self.log_name}", 1, {"log_lines": lines})


def mpirun(
    program: str,
    plan: LaunchPlan,
    hostname: str,
    rendezvous: Rendezvous,
    environment: Mapping[str, str],
) -> list[str]:
    """The command line of node 0."""
    count = plan.processes_per_node
    hosts = [f"{hostname}:{count}"]
    hosts += [f"{host_of(node)}:{count}" for node in range(1, plan.node_count)]
    settings = {
        "plm": "rsh",
        "plm_rsh_agent": AGENT,
        # Daemons must not start further daemons, because only node 0 has the agent.
        "plm_rsh_no_tree_spawn": "1",
        **_network(rendezvous.hosts),
    }
    command = [program, "--allow-run-as-root", "--leave-session-attached", "--oversubscribe"]
    # Each node finds Open MPI's programs on its own PATH.
    command.append("--noprefix")
    command += ["--bind-to", "none", "--map-by", "slot"]
    command += ["--host", ",".join(hosts), "-np", str(plan.world_size)]
    for name, value in settings.items():
        # The user's own settings in variables take precedence.
        if not _is_set(name, environment):
            command += ["--mca", name, value]
    return [*command, "/bin/sh", "-c", mpi_shim.RANK]


def host_of(node: int) -> str:
    """The name of a node for mpirun: an artificial address, so that it is never resolved.

    The real addresses are known from the rendezvous; hosts may share a name or be the same.
    """
    return f"127.{100 + (node >> 16)}.{node >> 8 & 255}.{node & 255}"


def node_of(host: str) -> int:
    _, high, middle, low = map(int, host.split("."))
    return (high - 100 << 16) + (middle << 8) + low


def _network(hosts: Sequence[str]) -> dict[str, str]:
    """The smallest network that contains every node, so that Open MPI uses no other one."""
    try:
        numbers = [int(ipaddress.IPv4Address(host)) for host in hosts]
    except ValueError:
        return {}
    if hosts[0] == networks.LOOPBACK:
        net = ipaddress.IPv4Network("127.0.0.0/8")
    else:
        # Open MPI takes every address to match a /32 network.
        bits = min(31, 32 - (min(numbers) ^ max(numbers)).bit_length())
        net = ipaddress.IPv4Network((min(numbers), bits), strict=False)
    return {"oob_tcp_if_include": str(net), "btl_tcp_if_include": str(net)}


def _is_set(name: str, environment: Mapping[str, str]) -> bool:
    other = name.replace("_if_include", "_if_exclude")
    return f"OMPI_MCA_{name}" in environment or f"OMPI_MCA_{other}" in environment


def _wait_until(control: Control, deadline: float, is_done: Callable[[], bool]) -> None:
    while not is_done() and not control.stopped and time.monotonic() < deadline:
        control.wait(min(_POLL_EVERY_S, max(0.0, deadline - time.monotonic())))


def _last_lines(log: Path) -> list[str]:
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - _LOG_BYTES))
        lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
    command = [line.rstrip()[:_LINE_LENGTH] for line in lines if line.strip(" -")]
    return command[-_LOG_LINES:]


_PROGRAM = (
    "import sys; sys.path.insert(0, {!r}); "
    "from torchyard.worker.launch.mpi_shim import main; sys.exit(main(sys.argv[1:]))"
)
