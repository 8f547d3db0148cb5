"""Only the server's user reaches what serves in a job of another Unix user, alive or dead."""

from __future__ import annotations

import os
import shlex
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from eventually import eventually
from runner.runner_site import RunnerSite, python_for_all, runner_site
from runner.test_runner_executor import RunnerBench
from torchyard.shared import unix_sockets
from torchyard.shared.plan import LaunchPlan, ServicePlan
from worker.bench import bench_in

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]
# As an instance does: it listens at the socket that it was handed, and at no port.
_INSTANCE = """
import os, socket
def handed():
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=os.dup(int(name)))
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return found
        except OSError:
            pass
listener = handed()
while True:
    connection, _ = listener.accept()
    connection.recv(100)
    connection.sendall(b"the instance")
    connection.close()
"""
_CALL = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
_TAKE = """
import os, socket, sys
path = sys.argv[1]
try:
    os.unlink(path)
except FileNotFoundError:
    pass
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
"""
OTHERS = ("job1", "job2", "other", "build", "engine")


@pytest.fixture(scope="module")
def runner() -> Iterator[RunnerSite]:
    with runner_site(umask="000") as site:
        yield site


@pytest.fixture
def site(runner: RunnerSite, tmp_path: Path) -> Iterator[RunnerBench]:
    with bench_in(tmp_path) as bench:
        yield RunnerBench(bench, runner)
        for name in ("job1", "job2"):
            for pid in runner.processes_of(name):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not runner.processes_of("job1"), "processes of jobs are left")


@pytest.fixture
def path(runner: RunnerSite, tmp_path: Path) -> Path:
    """In the server's home, which others can't enter; here the server is root."""
    home = runner.folder / f"home-{tmp_path.name}"
    home.mkdir(mode=0o700)
    return home / "sockets" / "attempt-score"


def instance(site: RunnerBench, path: Path) -> LaunchPlan:
    command = f"exec {python_for_all()} -I -S -c {shlex.quote(_INSTANCE)}"
    service = ServicePlan("score", "custom", is_handed=True, socket=str(path))
    return site.of(replace(site.bench.plan(command), services=[service]))


def asked(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        unix_sockets.connect(connection, str(path))
        connection.sendall(b"?")
        return connection.recv(100)


def refused(runner: RunnerSite, name: str, program: str, path: Path) -> bool:
    words = [python_for_all(), "-I", "-S", "-c", program, str(path)]
    ended = runner.run_as(name, words, cwd="/")
    return ended.returncode != 0 and "PermissionError" in ended.stderr


def listening_ports_of(uid: int) -> list[str]:
    """Source: proc(5), `/proc/net/tcp`: state 0A listens, field 7 is the owner."""
    ports = []
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(file).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[7]) == uid:
                ports.append(fields[1])
    return ports


def test_a_direct_call_is_refused_and_the_servers_is_answered(
    site: RunnerBench, runner: RunnerSite, path: Path
) -> None:
    handle = site.executor.launch(instance(site, path))
    assert asked(path) == b"the instance"
    for name in OTHERS:
        assert refused(runner, name, _CALL, path)
    for name in ("job1", "job2"):
        # The worker's own relay listens; what answers for the instance does not.
        assert not [
            each for each in listening_ports_of(runner.uid(name)) if each.startswith("00000000")
        ]
    site.executor.stop(handle, 0)


def test_a_second_launch_does_not_part_it_from_its_socket(site: RunnerBench, path: Path) -> None:
    plan = instance(site, path)
    handle = site.executor.launch(plan)
    assert asked(path) == b"the instance"
    inode = path.stat().st_ino
    site.reopened().launch(plan)
    assert asked(path) == b"the instance" and path.stat().st_ino == inode
    site.executor.stop(handle, 0)


def test_nobody_takes_the_place_of_one_that_died(
    site: RunnerBench, runner: RunnerSite, path: Path
) -> None:
    site.executor.launch(instance(site, path))
    assert asked(path) == b"the instance"
    for name in ("job1", "job2"):
        for pid in runner.processes_of(name):
            os.kill(pid, signal.SIGKILL)
    answers: list[bytes] = []

    def is_dead() -> bool:
        for name in OTHERS:
            assert refused(runner, name, _TAKE, path)
        try:
            answers.append(asked(path))
        except ConnectionError:
            return True
        return False

    eventually(is_dead, "the instance's socket refuses")
    assert set(answers) <= {b"the instance"}


def test_no_process_but_the_scripts_keeps_the_socket(site: RunnerBench, path: Path) -> None:
    """Else the name would hold requests that nobody answers."""
    handle = site.executor.launch(instance(site, path))
    assert asked(path) == b"the instance"
    (script,) = [pid for pid in _pids() if _command_of(pid).endswith(_INSTANCE)]
    (number,) = _sockets_of(script) & _listening()
    eventually(
        lambda: [pid for pid in _pids() if number in _sockets_of(pid)] == [script],
        "the worker and its supervisor have let go of it",
    )
    site.executor.stop(handle, 0)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")
    return ""


def _sockets_of(pid: int) -> set[str]:
    """The numbers of those that a process has open."""
    numbers = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                numbers.add(os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:"))
    return numbers


def _listening() -> set[str]:
    """Of Unix sockets. Source: proc(5), `/proc/net/unix`; the flag is SO_ACCEPTCON."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {f"[{fields[6]}]" for fields in lines if int(fields[3], 16) & 0x10000}
