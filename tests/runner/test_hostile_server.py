"""A server that was taken over gains nothing by the runner but code as the accounts of jobs."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from runner.runner_site import RunnerSite, python_for_all, runner_site
from torchyard.executors.runner_client import RunnerRefused, RunnerUnreachable
from torchyard.runner import builds
from torchyard.runner.config import BuildLimits
from torchyard.shared import processes, runner_messages

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]

# Instead of a worker's program: it does what the plan says, which is a line of shell.
WORKER = (
    "import json, os, sys, subprocess\n"
    "plan, node = sys.argv[2], sys.argv[4]\n"
    "os.chdir(os.path.dirname(plan) + '/node-' + node)\n"
    "sys.exit(subprocess.call(json.load(open(plan))['command'], shell=True))\n"
)


@pytest.fixture(scope="module")
def site() -> Iterator[RunnerSite]:
    with runner_site() as site:
        yield site


@pytest.fixture
def worker(site: RunnerSite) -> str:
    return site.keep_worker(WORKER)


def launch(site: RunnerSite, worker: str, attempt: str, command: str, **changes: Any) -> int:
    """Run the command as a job; its process's number."""
    plan = json.dumps({"command": command})
    words = {"attempt": attempt, "node": 0, "person": "anna", "worker": worker, "plan": plan}
    return int(site.client.call("launch", **{**words, **changes})["pid"])


def finish(site: RunnerSite, pid: int) -> None:
    deadline = time.monotonic() + 30
    while processes.read(pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read_left(site: RunnerSite, attempt: str, path: str = "worker.log") -> str:
    _, [descriptor] = site.client.ask("open_left", attempt=attempt, node=0, path=path)
    with open(descriptor) as file:
        return file.read()


@pytest.mark.parametrize("attempt", ["../x", "a/b", ".", "", "a" * 200, "-x", 7, None, "x\0"])
def test_attempts_have_plain_names(site: RunnerSite, worker: str, attempt: Any) -> None:
    for request in ("records", "states", "size", "remove", "left_files"):
        with pytest.raises(RunnerRefused, match="no valid name"):
            site.client.call(request, attempt=attempt, count=1, node=0)
    with pytest.raises(RunnerRefused, match="no valid name"):
        launch(site, worker, attempt, "true")


@pytest.mark.parametrize("account", ["root", "server", "build", "missing"])
def test_nobody_becomes_root_the_server_or_the_build_user(
    site: RunnerSite, worker: str, account: str
) -> None:
    name = "root" if account == "root" else site.user(account)
    site.configure(accounts={"eve": name})
    site.stop()
    site.start()
    with pytest.raises(RunnerRefused, match=r"root, the server's|build user|does not exist"):
        launch(site, worker, f"as-{account}", "id", person="eve")
    assert not (site.node_folder / "scratch" / f"as-{account}").exists()
    site.configure()
    site.stop()
    site.start()


def test_a_request_names_no_account(site: RunnerSite, worker: str) -> None:
    pid = launch(site, worker, "named", "id -u", account="root", user="root", uid=0)
    finish(site, pid)
    assert int(read_left(site, "named")) == site.uid("job1")


def test_the_worker_has_none_of_roots_rights(site: RunnerSite, worker: str) -> None:
    command = "grep -E '^(Uid|Gid|Groups|Cap[A-Z][a-z]+|NoNewPrivs):' /proc/self/status; umask"
    pid = launch(site, worker, "rights", f"{command}; ls -l /proc/self/fd | wc -l; env | sort")
    finish(site, pid)
    lines = read_left(site, "rights").splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert status["Uid"].split() == [str(site.uid("job1"))] * 4
    assert "0" not in [*status["Gid"].split(), *status["Groups"].split()]
    assert all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
    assert status["NoNewPrivs"] == "1" and "0077" in lines
    names = {line.partition("=")[0] for line in lines if "=" in line}
    assert names <= {
        *("PATH", "LANG", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_"),
        *("TORCHYARD_LAUNCH", "LC_CTYPE"),
    }


@pytest.mark.parametrize(
    "path", ["../../x", "/etc/shadow", "spool/../../plan.json", "plan.json", "work/x", "", 5, None]
)
def test_only_logs_and_history_are_handed_out(site: RunnerSite, worker: str, path: Any) -> None:
    finish(site, launch(site, worker, "handed", "true"))
    with pytest.raises(RunnerRefused, match="no such file is handed out"):
        site.client.ask("open_left", attempt="handed", node=0, path=path)


def test_links_and_pipes_that_a_job_left_are_not_followed(site: RunnerSite, worker: str) -> None:
    secret = site.folder / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    command = f"rm worker.log; ln -s {secret} worker.log; mkdir spool"
    command += f"; ln -s {site.state} spool/history"
    finish(site, launch(site, worker, "links", command))
    assert site.client.call("left_files", attempt="links", node=0) == {"files": []}
    for path in ("worker.log", "spool/history/accounts.json"):
        with pytest.raises(RunnerRefused, match="can't be read"):
            site.client.ask("open_left", attempt="links", node=0, path=path)
    finish(site, launch(site, worker, "pipes", "rm worker.log; mkfifo worker.log"))
    with pytest.raises(RunnerRefused, match="not a regular file"):
        site.client.ask("open_left", attempt="pipes", node=0, path="worker.log")


def test_a_removal_leaves_what_links_lead_to(site: RunnerSite, worker: str) -> None:
    precious = site.folder / "precious"
    precious.mkdir(exist_ok=True)
    (precious / "file").write_text("stays")
    writable = site.folder / "theirs"
    writable.mkdir()
    writable.chmod(0o777)
    command = (
        f"ln -s {precious} a; mkdir b; ln -s {precious} b/c; ln -s {writable} d; touch {writable}/x"
    )
    finish(site, launch(site, worker, "linked", command))
    assert site.client.call("remove", attempt="linked") == {"removed": True}
    assert (precious / "file").read_text() == "stays" and (writable / "x").exists()


# Kills or stops every process of its own account that the runner answers with.
INTERFERER = """
import os, signal, sys
print(flush=True)
while True:
    for name in os.listdir("/proc"):
        try:
            if not name.isdigit() or int(name) == os.getpid():
                continue
            # Those of root and of others can't be signalled.
            if b"torchyard.runner" in open("/proc/" + name + "/cmdline", "rb").read():
                os.kill(int(name), getattr(signal, sys.argv[1]))
        except OSError:
            pass
"""


@pytest.mark.parametrize("signum", ["SIGKILL", "SIGSTOP"])
def test_an_account_keeps_nobody_but_itself_from_an_answer(
    site: RunnerSite, worker: str, signum: str
) -> None:
    attempt = f"interfered-{signum}"
    # In one process: on a busy machine, many take long.
    fill = "import os\nfor i in range(30000): open(f'{i}', 'w').close()"
    finish(site, launch(site, worker, attempt, f'{python_for_all()} -I -c "{fill}"'))
    words = [python_for_all(), "-I", "-c", INTERFERER, signum]
    interferer = subprocess.Popen(
        words, user=site.uid("job1"), extra_groups=[], stdout=subprocess.PIPE
    )
    assert interferer.stdout is not None
    interferer.stdout.readline()
    try:
        deadline = time.monotonic() + 180
        refusals: list[str] = []
        while not refusals:
            assert time.monotonic() < deadline
            asked_at = time.monotonic()
            try:
                site.client.call("size", attempt=attempt)
            except RunnerRefused as refusal:
                refusals.append(refusal.code)
        assert refusals == ["account_interfered"] and time.monotonic() - asked_at < 60
        assert site.client.call("hello")["server_user"] == site.user("server")
    finally:
        interferer.kill()
        interferer.wait()
        interferer.stdout.close()
    assert site.client.call("size", attempt=attempt)["size_bytes"] >= 0
    assert site.client.call("remove", attempt=attempt) == {"removed": True}


def test_a_tree_of_any_depth_is_removed(site: RunnerSite, worker: str) -> None:
    dig = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    pid = launch(site, worker, "deep", f'{python_for_all()} -I -c "{dig}"')
    finish(site, pid)
    with pytest.raises(RunnerRefused) if sys.version_info < (3, 12) else nullcontext():
        site.client.call("size", attempt="deep")
    assert site.client.call("remove", attempt="deep") == {"removed": True}
    assert not (site.node_folder / "scratch" / "deep").exists()


def test_no_process_but_a_launched_worker_is_signalled(site: RunnerSite, worker: str) -> None:
    victim = subprocess.Popen(["sleep", "60"], user=site.uid("job1"), extra_groups=[])
    other = subprocess.Popen(["sleep", "60"])
    try:
        for number, process in enumerate((victim, other)):
            record = {"pid": process.pid, "start_time": processes.start_time(process.pid)}
            attempt = f"forged-{number}"
            command = f"echo '{json.dumps(record)}' > worker.json; sleep 60"
            pid = launch(site, worker, attempt, command)
            deadline = time.monotonic() + 20
            while site.client.call("records", attempt=attempt, count=1)["workers"] == [None]:
                assert time.monotonic() < deadline
            with pytest.raises(RunnerRefused, match="is not a worker of"):
                signum = int(signal.SIGKILL)
                site.client.call("signal", attempt=attempt, node=0, signal=signum)
            os.killpg(pid, signal.SIGKILL)
            finish(site, pid)
        assert victim.poll() is None and other.poll() is None
    finally:
        for process in (victim, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize("signum", [1, 19, 0, 64, -9, "KILL"])
def test_signals_only_end(site: RunnerSite, worker: str, signum: Any) -> None:
    finish(site, launch(site, worker, "signals", "true"))
    with pytest.raises(RunnerRefused, match=r"neither SIGTERM nor|not a number"):
        site.client.call("signal", attempt="signals", node=0, signal=signum)


@pytest.mark.parametrize("name", ["other", "job1", "build"])
def test_only_the_server_may_ask(site: RunnerSite, name: str) -> None:
    program = (
        "import socket, sys\n"
        "connection = socket.socket(socket.AF_UNIX)\n"
        "connection.connect(sys.argv[1])\n"
        "print(connection.recv(4096).decode(errors='replace'))\n"
    )
    words = [python_for_all(), "-c", program, str(site.socket)]
    done = site.run_as(name, words)
    assert "PermissionError" in done.stderr
    # Not even where somebody opened the socket to all.
    before = stat.S_IMODE(site.socket.stat().st_mode)
    site.socket.chmod(0o666)
    try:
        done = site.run_as(name, words)
        assert f"only `{site.user('server')}` may ask the runner" in done.stdout
    finally:
        site.socket.chmod(before)
    allowed = site.run_as("server", [*words[:2], "import socket, sys; socket.socket("
        "socket.AF_UNIX).connect(sys.argv[1]); print('connected')", words[3]])  # fmt: skip
    assert allowed.stdout == "connected\n"


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02[]",
        b"\0\0\0\x04nope",
        b"\0\0\xff\xff" + b"[" * 65535,
        b"\0\0\0\x02{}",
        b'\0\0\0\x16{"request":"__class__"',
        b"",
    ],
)
def test_what_is_no_request_is_refused(site: RunnerSite, frame: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(site.socket))
        connection.sendall(frame)
        connection.shutdown(socket.SHUT_WR)
        answer, _ = runner_messages.receive(connection)
    assert answer["error"]["code"] == "bad_request"
    assert "version" in site.client.call("hello")


def test_a_connection_that_says_nothing_holds_up_nobody(site: RunnerSite) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    try:
        for connection in silent:
            connection.connect(str(site.socket))
        started = time.monotonic()
        site.client.call("hello")
        assert time.monotonic() - started < 5
    finally:
        for connection in silent:
            connection.close()


def test_too_many_descriptors_are_refused(site: RunnerSite, tmp_path: Path) -> None:
    with open(os.devnull) as file, pytest.raises((RunnerRefused, RunnerUnreachable)):
        site.client.call("keep_worker", [file.fileno()] * 100)
    assert "version" in site.client.call("hello")


def test_an_account_of_the_pool_is_one_persons_for_good(site: RunnerSite) -> None:
    first = site.client.call("account", person="zoe")["account"]
    site.stop(signal.SIGKILL)
    site.start()
    assert site.client.call("account", person="zoe")["account"] == first
    others = {site.client.call("account", person=name)["account"] for name in ("anna", "zoe")}
    assert len(others) == 2
    # Of two accounts, the third person gets none, whether others left or not.
    with pytest.raises(RunnerRefused, match="no Unix account is left for `mia`"):
        site.client.call("account", person="mia")


def build_folder(site: RunnerSite, name: str) -> Path:
    """The folder of a build, as the server makes it."""
    folder = site.node_folder / "builds" / name
    (folder / "work").mkdir(parents=True)
    for path in (folder, folder / "work"):
        path.chmod(0o700)
        os.chown(path, site.uid("server"), site.uid("server"))
    return folder


def run_build(site: RunnerSite, name: str, script: str) -> tuple[int, str]:
    """The exit code and output of a build."""
    with open(site.folder / "build.log", "w+") as output:
        words = ["/bin/sh", "-c", script]
        answer = site.client.call("build", [output.fileno()], command=words, build=name)
        output.seek(0)
        return answer["exit_code"], output.read().strip()


def test_a_build_runs_as_the_build_user_and_ends_with_its_server(site: RunnerSite) -> None:
    build_folder(site, "one")
    assert run_build(site, "one", "id -un; exit 3") == (3, site.user("build"))
    with (
        open(site.folder / "build.log", "w") as output,
        socket.socket(socket.AF_UNIX) as connection,
    ):
        connection.connect(str(site.socket))
        body = {"request": "build", "command": ["/bin/sleep", "60"], "build": "one"}
        runner_messages.send(connection, body, [output.fileno()])
        deadline = time.monotonic() + 20
        while not site.processes_of("build"):
            assert time.monotonic() < deadline
    while site.processes_of("build"):
        assert time.monotonic() < deadline


def test_a_build_finds_nothing_of_another_one_and_no_way_back_into_it(site: RunnerSite) -> None:
    first, second = build_folder(site, "first"), build_folder(site, "second")
    leave = "echo bad > ~/.profile; echo bad > file; mkdir deep; pwd; setsid sleep 99 & exit 0"
    assert run_build(site, "first", leave) == (0, str(first / "work"))
    assert site.processes_of("build") == []
    assert not (site.node_folder / "homes" / site.user("build")).exists()
    look = f"ls -A ~ $TMPDIR; cat {first}/work/file; echo bad > {first}/work/file"
    _, output = run_build(site, "second", look)
    assert (first / "work" / "file").read_text() == "bad\n"
    lines = output.splitlines()
    assert [line for line in lines if "Permission denied" in line or "denied" in line], output
    assert ".profile" not in output and "bad" not in lines
    for folder in (first, second):
        assert site.client.call("remove_build", build=folder.name) == {"removed": True}
        assert not folder.exists()


def test_builds_of_one_account_wait_for_each_other(site: RunnerSite) -> None:
    build_folder(site, "slow")
    build_folder(site, "next")
    with open(site.folder / "slow.log", "w") as output:
        words = ["/bin/sh", "-c", "touch begun; while [ ! -e end ]; do sleep 0.05; done"]
        with site.client.start("build", [output.fileno()], command=words, build="slow") as slow:
            work = site.node_folder / "builds" / "slow" / "work"
            deadline = time.monotonic() + 20
            while not (work / "begun").exists():
                assert time.monotonic() < deadline
            with open(site.folder / "next.log", "w+") as log:
                words = ["/bin/echo", "ran"]
                with site.client.start("build", [log.fileno()], command=words, build="next") as it:
                    while "waiting" not in (site.folder / "next.log").read_text():
                        assert time.monotonic() < deadline
                    assert "ran" not in (site.folder / "next.log").read_text()
                    (work / "end").touch()
                    assert slow.answer() == {"exit_code": 0}
                    assert it.answer() == {"exit_code": 0}
            assert (site.folder / "next.log").read_text().endswith("ran\n")


@pytest.mark.parametrize("name", ["../scratch", "one/work", "", ".hidden", "absent"])
def test_a_build_is_in_a_folder_of_builds_alone(site: RunnerSite, name: str) -> None:
    with pytest.raises(RunnerRefused):
        run_build(site, name, "true")


def test_a_folder_that_is_not_the_servers_is_no_builds(site: RunnerSite) -> None:
    folder = build_folder(site, "foreign")
    os.chown(folder / "work", 0, 0)
    with pytest.raises(RunnerRefused, match="not the server's"):
        run_build(site, "foreign", "true")
    (site.node_folder / "builds" / "link").symlink_to(site.folder)
    with pytest.raises(RunnerRefused):
        run_build(site, "link", "true")


def test_a_build_has_no_more_processes_than_its_limit(site: RunnerSite) -> None:
    build_folder(site, "bomb")
    limits = "cat /proc/self/limits | grep -E 'Max (processes|core)'"
    code, output = run_build(site, "bomb", limits)
    assert code == 0
    rows = {line.split()[1]: line.split()[-3:] for line in output.splitlines()}
    assert rows["processes"][:2] == ["4096", "4096"]


def test_a_build_ends_at_its_limit(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(99)
        os._exit(0)
    here, there = socket.socketpair()
    with here, there, open(tmp_path / "log", "wb") as log:
        status = builds._wait(child, here, 0.1, log.fileno(), BuildLimits(minutes=7))
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert "7 minutes" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("position", ["file", "folder"])
def test_a_configuration_that_others_can_write_is_refused(site: RunnerSite, position: str) -> None:
    target = site.config_file if position == "file" else site.config_file.parent
    before = stat.S_IMODE(target.stat().st_mode)
    target.chmod(before | 0o020)
    try:
        done = subprocess.run(site.command("check"), capture_output=True, text=True)
    finally:
        target.chmod(before)
    assert done.returncode == 2
    assert f"`{target}` can be changed by others than root" in done.stderr
    assert f"chmod go-w {target}" in done.stderr


def test_only_root_can_be_a_runner(site: RunnerSite) -> None:
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from torchyard.runner.__main__ import "
    source = str(Path(__file__).resolve().parents[2] / "src")
    done = site.run_as("other", [python_for_all(), "-c", f"{code}main; sys.exit(main())", source])
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: yard-runner is not root")


def test_a_person_is_mapped_to_an_account_of_their_own(site: RunnerSite) -> None:
    site.configure(accounts={"otto": site.user("other")})
    try:
        taken = subprocess.run(
            site.command("map", "eve", site.user("other")), capture_output=True, text=True
        )
        assert taken.returncode == 2 and "is the account of `otto`" in taken.stderr
        root = subprocess.run(site.command("map", "eve", "root"), capture_output=True, text=True)
        assert root.returncode == 2 and "is root" in root.stderr
        assert json.loads(site.config_file.read_text())["accounts"] == {"otto": site.user("other")}
        site.add_users("lea")
        words = site.command("map", "lea", site.user("lea"))
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        mapped = {"lea": site.user("lea"), "otto": site.user("other")}
        assert json.loads(site.config_file.read_text())["accounts"] == mapped
    finally:
        site.configure()


def test_a_runner_without_a_configuration_says_what_to_write(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-m", "torchyard.runner", "--config", str(tmp_path / "none")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "docs/guides/runner.md" in done.stderr
