"""A Slurm that tests start: controller, two nodes, accounting, all in one folder of this machine.

Owns: munged, mariadbd, slurmdbd, slurmctld and one slurmd per node, each with its own socket or
port, and their end.
Leaves: jobs to the tests.
Always: nothing of the machine's own Slurm is read or changed; what it started is ended by pid, with
the processes of jobs that its nodes left.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_MUST = os.environ.get("TORCHYARD_TEST_SERVICES") == "required"
_PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd")
_SBIN = ("/usr/sbin", "/sbin")

_CONFIGURATION = """\
ClusterName=tyt
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={slurmctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PriorityType=priority/basic
SlurmctldTimeout=10
SlurmdTimeout={slurmd_timeout_s}
KillWait=5
InactiveLimit=0
Waittime=0
MinJobAge={min_job_age_s}
ReturnToService=2
GresTypes=gpu
{accounting}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1_port} CPUs=4 RealMemory=8000 \
Gres=gpu:a100:2 Feature=fast
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2_port} CPUs=4 RealMemory=8000 \
Gres=gpu:t4:1 Feature=slow
PartitionName=low Nodes=n1,n2 Default=YES PriorityTier=1 PreemptMode=CANCEL GraceTime={grace_s} \
MaxTime=120 DefaultTime=60 State=UP
PartitionName=high Nodes=n1,n2 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=closed Nodes=n1 AllowAccounts=physics PriorityTier=1 State=UP
PartitionName=stopped Nodes=n1 PriorityTier=1 State=DOWN
"""
_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd_port}
AccountingStoragePass={folder}/munge.socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
"""
_NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none\n"
_DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={slurmdbd_port}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct
"""
_GRES = """\
NodeName=n1 Name=gpu Type=a100 File={folder}/devices/nvidia[0-1]
NodeName=n2 Name=gpu Type=t4 File={folder}/devices/nvidia2
"""
_NODES = ("n1", "n2")


def missing_programs() -> list[str]:
    return [name for name in _PROGRAMS if _program(name) is None]


def need() -> None:
    """Skip the test where Slurm is not installed."""
    missing = missing_programs()
    if missing and _MUST:
        pytest.fail(f"{', '.join(missing)} is not installed")
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; `make slurm` installs it")
    if os.geteuid() != 0:
        pytest.skip("slurmd starts jobs as other users, which needs root")


@dataclass
class SlurmCluster:
    """
    Args:
        accounting: with slurmdbd and MariaDB; without them `sacct` is disabled.
        grace_s: how long a preempted job has after its SIGTERM.
        slurmd_timeout_s: after how long Slurm gives a silent node up.
        min_job_age_s: how long it remembers a job that has ended.
    """

    accounting: bool = True
    grace_s: int = 20
    slurmd_timeout_s: int = 300
    min_job_age_s: int = 300
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tyslurm-")))
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> SlurmCluster:
        try:
            self._configure()
            self._start_munged()
            if self.accounting:
                self._start_database()
                self._add_accounts()
            self.start_controller()
            for node in _NODES:
                self.start_node(node)
            self.wait_until(lambda: self.node_states() == ["idle", "idle"], "its nodes are idle")
        except BaseException:
            self.close()
            raise
        return self

    @property
    def config(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def pids(self) -> list[int]:
        """Of the programs that it consists of."""
        return [process.pid for process in self._processes.values()]

    @property
    def variables(self) -> dict[str, str]:
        """What Slurm's programs need to find this cluster, and nothing of another's."""
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith("SLURM")
        }
        return {**environ, "SLURM_CONF": str(self.config)}

    def run(self, *command: str, input: str = "", user: int | None = None) -> str:
        """What a program of Slurm prints."""
        done = subprocess.run(
            command, env=self.variables, input=input, text=True, capture_output=True,
            timeout=60, user=user, group=user, cwd="/", extra_groups=None if user is None else [],
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def jobs(self) -> list[str]:
        """The ids of jobs that wait, run or are ending."""
        return self.run("squeue", "--noheader", "--all", "-o", "%A").split()

    def state(self, job: str) -> str:
        lines = self.run("scontrol", "--oneliner", "show", "job", job)
        return next(word[9:] for word in lines.split() if word.startswith("JobState="))

    def node_states(self) -> list[str]:
        lines = self.run("sinfo", "--noheader", "-N", "-p", "low", "-o", "%N %T").splitlines()
        return [line.split()[1] for line in lines]

    def start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D"])
        self.wait_until(self._controller_answers, "its controller answers")

    def start_node(self, node: str) -> None:
        self._start(node, ["slurmd", "-D", "-N", node])

    def kill(self, name: str) -> None:
        """End one of its programs at once: slurmctld, slurmdbd, n1 or n2."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def kill_machine(self, node: str) -> None:
        """End all that runs on a node at once, as a power cut does."""
        victims = self.processes_on(node)
        self.kill(node)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_step(self, node: str, takes_all: bool = False) -> None:
        """End the daemons of steps on a node, with all that they started there or alone."""
        victims = self.processes_on(node)
        for pid in victims:
            name = Path(f"/proc/{pid}/comm")
            with contextlib.suppress(OSError):
                if takes_all or name.read_text().startswith("slurmstepd"):
                    os.kill(pid, signal.SIGKILL)

    def restore(self) -> None:
        """All nodes take jobs again, whatever a test has done to them."""
        for node in _NODES:
            process = self._processes.get(node)
            if process is None or process.poll() is not None:
                self.start_node(node)

        def is_whole() -> bool:
            states = self.node_states()
            if any(not state.startswith(("idle", "completing")) for state in states):
                with contextlib.suppress(AssertionError, subprocess.CalledProcessError):
                    self.run("scontrol", "update", f"NodeName={','.join(_NODES)}", "State=RESUME")
            return all(state == "idle" for state in states)

        self.wait_until(is_whole, "all nodes are idle", 60)

    def cancel_all(self) -> None:
        """No job is left afterwards."""
        for job in self.jobs():
            self.run("scancel", "--full", job)
        self.wait_until(lambda: not self.jobs(), "no job is left")

    def close(self) -> None:
        """End everything, the processes of jobs included, and remove the folder."""
        for name in ("slurmctld", *_NODES):
            self.stop(name)
        for pid in self.processes_of_jobs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in ("slurmdbd", "mariadbd", "munged"):
            self.stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes_of_jobs(self) -> list[int]:
        """Processes, slurmstepd included, that were started by jobs of this cluster."""
        mark = f"SLURM_CONF={self.config}".encode()
        daemons = {process.pid for process in self._processes.values()}
        pids = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(folder.name)
                variables = (folder / "environ").read_bytes().split(b"\0")
                is_job = any(name.startswith(b"SLURM_JOB_ID=") for name in variables)
                is_step = (folder / "comm").read_text().startswith("slurmstepd")
                if mark in variables and (is_job or is_step) and pid not in daemons:
                    pids.append(pid)
        return pids

    def processes_on(self, node: str) -> list[int]:
        """Processes of jobs on one node, slurmstepd included."""
        steps = [pid for pid in self.processes_of_jobs() if self._is_step_of(pid, node)]
        return [*steps, *(pid for step in steps for pid in _descendants(step))]

    def _is_step_of(self, pid: int, node: str) -> bool:
        sockets = Path("/proc/net/unix").read_text().splitlines()
        spool = f"{self.folder}/spool-{node}/"
        inodes = {line.split()[6] for line in sockets if spool in line}
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(descriptor).removeprefix("socket:[").rstrip("]") in inodes:
                        return True
        return False

    def wait_until(self, condition: Callable[[], object], goal: str, timeout_s: float = 30) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {goal}\n{self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        """The end of every program's log."""
        texts = []
        for log in sorted(self.folder.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()
            texts.append("\n".join([f"== {log.name}", *lines[-15:]]))
        return "\n".join(texts)

    def _configure(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "devices").mkdir()
        for number in range(3):
            # Slurm takes no other file for a GPU.
            null = os.stat(os.devnull)
            os.mknod(self.folder / "devices" / f"nvidia{number}", null.st_mode, null.st_rdev)
        names = ("slurmctld_port", "slurmdbd_port", "database_port", "n1_port", "n2_port")
        values: dict[str, object] = dict(zip(names, _free_ports(len(names)), strict=True))
        values |= {"folder": self.folder, "host": socket.gethostname().split(".")[0]}
        values |= {"grace_s": self.grace_s, "slurmd_timeout_s": self.slurmd_timeout_s}
        values |= {"min_job_age_s": self.min_job_age_s, "password": secrets.token_hex(8)}
        accounting = _ACCOUNTING if self.accounting else _NO_ACCOUNTING
        values["accounting"] = accounting.format_map(values)
        self._values = values
        self.config.write_text(_CONFIGURATION.format_map(values))
        (self.folder / "gres.conf").write_text(_GRES.format_map(values))
        database = self.folder / "slurmdbd.conf"
        database.touch(mode=0o600)
        database.write_text(_DATABASE.format_map(values))

    def _start_munged(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        paths = {"key-file": key, "socket": self.folder / "munge.socket"}
        paths |= {"pid-file": self.folder / "munged.pid", "log-file": self.folder / "munged.log"}
        paths |= {"seed-file": self.folder / "munge.seed"}
        options = [f"--{name}={path}" for name, path in paths.items()]
        self._start("munged", ["munged", "--foreground", "--force", *options])
        self.wait_until((self.folder / "munge.socket").exists, "munged has its socket")

    def _start_database(self) -> None:
        data, log = self.folder / "database", self.folder / "mariadb-install.log"
        common = ["--no-defaults", f"--datadir={data}", "--user=root"]
        install = ["mariadb-install-db", "--auth-root-authentication-method=normal"]
        with open(log, "wb") as file:
            subprocess.run(
                [install[0], *common, *install[1:], "--skip-test-db", "--innodb-log-file-size=8M"],
                check=True, stdout=file, stderr=file, timeout=60,
            )  # fmt: skip
        start = self.folder / "start.sql"
        start.touch(mode=0o600)
        start.write_text(
            "CREATE DATABASE slurm_acct;\nGRANT ALL ON slurm_acct.* TO 'slurm'@'127.0.0.1' "
            f"IDENTIFIED BY '{self._values['password']}';\n"
        )
        options = {
            "socket": self.folder / "mariadb.socket",
            "pid-file": self.folder / "mariadb.pid",
            "port": self._values["database_port"],
            "bind-address": "127.0.0.1",
            "init-file": start,
            "innodb-buffer-pool-size": "64M",
            "innodb-log-file-size": "8M",
            "innodb-flush-log-at-trx-commit": 0,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        self._start("mariadbd", ["mariadbd", *common, "--skip-name-resolve", *words])
        self.wait_until(lambda: _listens(self._values["database_port"]), "its database answers")
        self._start("slurmdbd", ["slurmdbd", "-D"])
        self.wait_until(lambda: _listens(self._values["slurmdbd_port"]), "slurmdbd answers")

    def _add_accounts(self) -> None:
        for words in (
            ("cluster", "tyt"),
            ("account", "lab"),
            ("account", "physics"),
            ("qos", "short", "MaxJobsPerUser=1"),
            ("user", "root", "Account=lab", "DefaultAccount=lab"),
            ("user", "nobody", "Account=lab", "DefaultAccount=lab"),
        ):
            self.run("sacctmgr", "--immediate", "--quiet", "add", *words)
        self.run(
            "sacctmgr", "--immediate", "--quiet", "modify", "account", "lab", "set", "qos+=short"
        )

    def _controller_answers(self) -> bool:
        done = subprocess.run(
            ["scontrol", "ping"], env=self.variables, capture_output=True, text=True
        )
        return " is UP" in done.stdout

    def _start(self, name: str, command: Sequence[str]) -> None:
        program = _program(command[0])
        assert program is not None, command[0]
        with open(self.folder / f"{name}-out.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [program, *command[1:]], env=self.variables, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def stop(self, name: str) -> None:
        """End one of its programs in order."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *_SBIN]))


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, task.read_text().split())
    return [*children, *(each for child in children for each in _descendants(child))]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            held_socket = stack.enter_context(socket.socket())
            held_socket.bind(("127.0.0.1", 0))
            ports.append(int(held_socket.getsockname()[1]))
    return ports


def _listens(port: object) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(str(port))), timeout=1).close()
    except OSError:
        return False
    return True
