"""Programs of engines run as an account of their own: nothing of theirs is the server's, a job's or
a build's, and nobody else enters their folder.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from runner.runner_site import RunnerSite, python_for_all, runner_site
from torchyard.executors.executor import EngineRefused, EngineUnreachable
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.ray import private_start
from torchyard.executors.ray.engine import RayEngine
from torchyard.executors.ray.engine_programs import EnginePrograms
from torchyard.executors.ray.programs import Running
from torchyard.executors.runner_client import RunnerRefused
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.runner import cgroups
from torchyard.runner.config import Refused, read
from torchyard.shared import processes
from torchyard.shared import runner_messages as messages

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]
SHELL = "/bin/sh"
# As Ray does with its folder of sessions, and then as a head, which lasts.
_AS_RAY = """
import os, sys, time
place = sys.argv[1]
os.chmod(place, 0o777)
log = os.path.join(place, "raylet.out")
open(log, "w").write("log")
os.chmod(log, 0o666)
print(place, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def site() -> Iterator[RunnerSite]:
    with runner_site() as made:
        yield made


@pytest.fixture
def programs(site: RunnerSite) -> EnginePrograms:
    return EnginePrograms(site.client)


def run(programs: EnginePrograms, script: str, **variables: str) -> str:
    ended = programs.run([SHELL, "-c", f"({script}) >&2"], variables, 60, -1)
    assert ended.code == 0, ended.said
    return ended.said


def refused(site: RunnerSite, name: str, script: str) -> bool:
    """Whether a user's shell is kept from it."""
    return site.run_as(name, [SHELL, "-c", script], cwd="/").returncode != 0


def test_a_program_is_the_engine_users_and_gets_what_it_needs(
    site: RunnerSite, programs: EnginePrograms
) -> None:
    said = run(
        programs, "id -un; id -Gn; umask; env; ulimit -c; ls /proc/self/fd", UV_INDEX_URL="x"
    )
    lines = said.splitlines()
    assert lines[0] == site.user("engine")
    assert lines[1] == site.user("engine") and int(lines[2], 8) == 0o077
    assert "UV_INDEX_URL=x" in lines
    secret = run(programs, "env", MY_API_KEY="secret", TORCHYARD_TOKEN="secret")
    assert "secret" not in secret


def test_it_reaches_nothing_of_others_and_others_nothing_of_it(
    site: RunnerSite, programs: EnginePrograms
) -> None:
    token = site.folder / "token"
    token.write_text("the server's")
    token.chmod(0o600)
    os.chown(token, site.uid("server"), -1)
    ended = programs.run([SHELL, "-c", f"cat {token} {site.state}/*"], {}, 60, -1)
    assert ended.code != 0 and "Permission denied" in ended.said
    run(programs, f"echo secret > {programs.folder}/token; chmod 666 {programs.folder}/token")
    for name in ("server", "build", "other", "job1"):
        assert refused(site, name, f"cat {programs.folder}/token")
        assert refused(site, name, f"echo x >> {programs.folder}/token")


def test_a_link_planted_in_a_heads_session_is_kept_out(
    site: RunnerSite, programs: EnginePrograms
) -> None:
    python = programs.python
    # With a short path, and with one that goes to the folder for temporary files.
    for number, folder in enumerate(
        (programs.folder / "head", Path(f"{programs.folder}/{'h' * 60}"))
    ):
        words = [python, "-I", "-S", "-c", _AS_RAY, private_start.SESSIONS]
        request = {"folder": str(folder), "token": "the-token", "words": words}
        output = site.folder / f"head-{number}.log"
        with open(output, "wb") as log:
            start = [python, "-I", "-S", private_start.__file__]
            head = programs.start_lasting(f"head-{number}", start, {}, json.dumps(request), log)
        eventually(lambda: output.read_text().endswith("\n"), "the head runs")  # noqa: B023
        place = output.read_text().strip()
        assert run(programs, f"stat -c %a:%U {place}").strip() == f"777:{site.user('engine')}"
        victim = site.folder / f"victim-{number}"
        victim.write_text("rows")
        for name in ("job1", "other", "build", "server"):
            assert refused(site, name, f"mv {place}/raylet.out {place}/old")
            assert refused(site, name, f"ln -s {victim} {place}/planted")
            assert refused(site, name, f"ls {place}")
        start_time = processes.start_time(head.pid)
        programs.signal(f"head-{number}", head.pid, start_time, signal.SIGTERM)
        eventually(lambda: head.poll() is not None, "the head has ended")  # noqa: B023


def test_a_program_ends_with_who_asked_for_it_and_a_lasting_one_does_not(
    site: RunnerSite, programs: EnginePrograms
) -> None:
    with open(os.devnull, "r+b") as log:
        words = [SHELL, "-c", "trap '' TERM HUP; while true; do sleep 0.05; done"]
        running = programs.open(words, {}, log)
        lasting = programs.start_lasting("lasting", words, {}, "", log)
    try:
        # Each becomes the account some time after its number was told.
        both = {running.pid, lasting.pid}
        eventually(lambda: both <= set(site.processes_of("engine")), "both are the engine user")
        assert running.poll() is None
    finally:
        running.kill()
        _close(running)
    eventually(lambda: not processes.start_time(running.pid), "the program has ended")
    assert lasting.poll() is None
    started = processes.start_time(lasting.pid)
    programs.signal("lasting", lasting.pid, started, signal.SIGKILL)
    eventually(lambda: lasting.poll() is not None, "the lasting one has ended")
    eventually(lambda: not site.processes_of("engine"), "nothing is left")


def test_a_start_removes_the_groups_of_ended_programs(
    site: RunnerSite, programs: EnginePrograms
) -> None:
    groups = cgroups.own()
    if groups is None:
        pytest.skip("cgroups can't be made here")
    words = [SHELL, "-c", "trap '' TERM HUP; while true; do sleep 0.05; done"]
    with open(os.devnull, "r+b") as log:
        running = programs.start_lasting("head-runs", words, {}, "", log)
    ended = groups / "yard-engine-head-ended-0"
    (ended / cgroups.WORKER).mkdir(parents=True)
    of_job = groups / "yard-of-a-job-0"
    of_job.mkdir()
    try:
        site.stop()
        site.start()
        assert not ended.exists() and of_job.is_dir()
        assert (groups / "yard-engine-head-runs-0" / cgroups.WORKER).is_dir()
    finally:
        of_job.rmdir()
        started = processes.start_time(running.pid)
        programs.signal("head-runs", running.pid, started, signal.SIGKILL)
    eventually(lambda: running.poll() is not None, "it has ended")


def _close(running: Running) -> None:
    running.stdin.close()
    running.stdout.close()


def test_a_program_that_ends_by_itself_says_how(programs: EnginePrograms) -> None:
    with open(os.devnull, "r+b") as log:
        running = programs.open([SHELL, "-c", 'read line; echo "heard $line"'], {}, log)
    running.stdin.write("me\n")
    running.stdin.flush()
    assert running.stdout.readline() == b"heard me\n"
    running.wait(60)
    assert running.poll() == 0
    _close(running)
    assert programs.run([SHELL, "-c", "exit 7"], {}, 60, -1).code == 7


def test_only_the_engine_users_processes_are_signalled(
    site: RunnerSite, programs: EnginePrograms
) -> None:
    for user in ("other", "server", "job1"):
        uid = site.uid(user)
        victim = subprocess.Popen(
            ["/bin/sleep", "600"], user=uid, group=uid, start_new_session=True
        )
        try:
            with pytest.raises(EngineUnreachable, match="not one of the engine user's"):
                programs.signal("x", victim.pid, processes.start_time(victim.pid), signal.SIGKILL)
            assert victim.poll() is None
        finally:
            victim.kill()
            victim.wait()
    for body in ({"pid": 0}, {"pid": -1}, {"signal": 19}, {"name": "../x"}):
        right: dict[str, Any] = {"name": "x", "pid": 1 << 30, "start_time": 1, "signal": 9}
        with pytest.raises(RunnerRefused):
            site.client.call("signal_engine", **{**right, **body})


def test_who_may_not_ask_gets_no_program(site: RunnerSite) -> None:
    for user in ("other", "job1", "engine", "build"):
        reach = f"import socket; socket.socket(socket.AF_UNIX).connect('{site.socket}')"
        python = python_for_all()
        assert site.run_as(user, [python, "-I", "-c", reach], cwd="/").returncode != 0
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(site.socket))
        messages.send(connection, {"request": "engine", "command": ["true"], "environment": {}})
        answer, _ = messages.receive(connection)
    assert answer["error"]["code"] == "bad_request"


def test_the_engine_user_is_nobody_elses_account(site: RunnerSite) -> None:
    before = site.config_file.read_text()
    try:
        for changes in (
            {"build_user": site.user("engine")},
            {"accounts": {"anna": site.user("engine")}},
            {"pool": [site.user("engine")]},
        ):
            site.configure(**changes)
            with pytest.raises(Refused, match="engine_user"):
                read(site.config_file)
    finally:
        site.config_file.write_text(before)


def test_a_cluster_without_a_token_is_refused(site: RunnerSite, tmp_path: Path) -> None:
    launches = LaunchFiles(tmp_path)
    engine = RayEngine(
        tmp_path, {}, launches, ServerForNodes("s", NodeAddresses), "", "uv", site.client
    )
    with pytest.raises(EngineRefused, match="token_file"):
        engine.describe({"address": "127.0.0.1:9"})
    with pytest.raises(EngineUnreachable, match="nothing answers"):
        engine.describe({"address": "127.0.0.1:9", "token_file": "/nowhere"})


def test_without_an_engine_user_nothing_of_ray_runs(site: RunnerSite) -> None:
    site.stop()
    site.configure(engine_user="")
    site.start()
    try:
        programs = EnginePrograms(site.client)
        with pytest.raises(EngineUnreachable, match="no engine user"):
            programs.run([SHELL, "-c", "true"], {}, 60, -1)
        with pytest.raises(RunnerRefused) as refusal:
            site.client.call("engine", command=[SHELL], environment={})
        assert refusal.value.code == "no_engine_user"
    finally:
        site.stop()
        site.configure()
        site.start()
