"""One attempt is one job of Slurm, also when its server is killed while it is submitted."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import torchyard
from contracts.engine_verbs_contract import EngineUnderTest, EngineVerbsContract
from slurm.slurm_cluster import SlurmCluster, need
from torchyard.executors.executor import EngineRefused, EngineUnreachable, Handle
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.executors.slurm.engine import SlurmEngine, open_engine
from torchyard.shared.plan import LaunchPlan

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]
ONE_DATABASE = True
# Launches an attempt, as a server does that is then killed.
_SERVER = """\
import json, os, sys
from pathlib import Path
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.executors.slurm.engine import open_engine
from torchyard.shared.plan import from_json
for user in sys.argv[3:]:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
home = Path(sys.argv[1])
server = ServerForNodes("5e12e1", lambda: NodeAddresses())
engine = open_engine(home, os.environ, LaunchFiles(home), server)
plan = from_json(sys.argv[2])
print(json.dumps([node.name for node in engine.describe(plan.engine_settings).nodes]))
handle = engine.launch(plan)
print(json.dumps(handle.body), flush=True)
print(engine.status(handle).reason, flush=True)
engine.stop(handle, 0.0)
engine.close()
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    need()
    cluster = SlurmCluster(accounting=False).start()
    yield cluster
    cluster.close()


@pytest.fixture(autouse=True)
def no_job_is_left(slurm: SlurmCluster) -> Iterator[None]:
    yield
    slurm.cancel_all()


def engine(home: Path, slurm: SlurmCluster, server: str = "5e12e1") -> SlurmEngine:
    """A server's engine, as one that was just started has it."""
    reached = ServerForNodes(server, lambda: NodeAddresses())
    return open_engine(home, slurm.variables, LaunchFiles(home), reached)


def plan(slurm: SlurmCluster, **settings: str) -> LaunchPlan:
    """Of the test's one attempt, whose job waits, for its partition starts none."""
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    attempt = hashlib.sha256(test.encode()).hexdigest()[:16]
    return LaunchPlan(
        attempt_id=attempt,
        attempt=1,
        job="train",
        workspace="default",
        experiment="e",
        command="true",
        server_url="http://127.0.0.1:9",
        report_token="tyr_secret",
        run_token="tyn_secret",
        scratch="",
        engine="slurm",
        engine_settings={"partition": "stopped", "config": str(slurm.config), **settings},
    )


class SlurmUnderTest(EngineUnderTest):
    """Its attempts run a program in the worker's place that ignores SIGTERM."""

    def __init__(self, home: Path, slurm: SlurmCluster) -> None:
        self._home, self._slurm, self._numbers = home, slurm, itertools.count()
        program = home / "python"
        program.write_text("#!/bin/sh\ntrap '' TERM\nexec sleep 600\n")
        program.chmod(0o755)
        self.settings = {
            "partition": "low",
            "config": str(slurm.config),
            "python": str(program),
        }

    def open(self) -> SlurmEngine:
        return engine(self._home, self._slurm)

    def plan(self) -> LaunchPlan:
        made = plan(self._slurm, **self.settings)
        return replace(made, attempt_id=f"{made.attempt_id}-{next(self._numbers)}")

    @contextmanager
    def unreachable(self) -> Iterator[tuple[Mapping[str, Any], Handle]]:
        with closing(self.open()) as before:
            handle = before.launch(self.plan())
        self._slurm.stop("slurmctld")
        try:
            yield self.settings, handle
        finally:
            self._slurm.start_controller()

    def held(self, plan: LaunchPlan) -> list[str]:
        locks = (self._home / "slurm").glob(f"{plan.attempt_id}.lock")
        return [*self._slurm.jobs(), *(lock.name for lock in locks)]


class TestSlurmVerbs(EngineVerbsContract):
    @pytest.fixture
    def site(self, tmp_path: Path, slurm: SlurmCluster) -> EngineUnderTest:
        return SlurmUnderTest(tmp_path, slurm)


def test_an_attempt_launched_twice_is_one_job(tmp_path: Path, slurm: SlurmCluster) -> None:
    first = engine(tmp_path, slurm)
    handle = first.launch(plan(slurm))
    assert first.launch(plan(slurm)) == handle
    first.close()
    # Its server died before it stored the handle.
    second = engine(tmp_path, slurm)
    assert second.launch(plan(slurm)) == handle
    assert slurm.jobs() == [str(handle.body["job"])]
    status = second.status(handle)
    assert status.nodes == ("pending",) and status.reason.startswith("waits for Slurm: ")
    second.close()


def test_a_submission_that_outlives_its_server_is_waited_for(
    tmp_path: Path, slurm: SlurmCluster
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    slow = programs / "sbatch"
    begun = tmp_path / "begun"
    slow.write_text(
        f'#!/bin/sh\n[ "$1" = --test-only ] || {{ touch {begun}; sleep 3; }}\n'
        f'exec {shutil.which("sbatch")} "$@"\n'
    )
    slow.chmod(0o755)
    home = tmp_path / "home"
    variables = {**slurm.variables, "PATH": f"{programs}:{os.environ['PATH']}"}
    launch_plan = plan(slurm)
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(home), launch_plan.to_json()],
        env=variables, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    slurm.wait_until(begun.exists, "it is being submitted")
    server.kill()
    server.wait()
    following = engine(home, slurm)
    with pytest.raises(EngineUnreachable, match="being submitted"):
        following.launch(launch_plan)
    slurm.wait_until(lambda: bool(slurm.jobs()), "the first submission has arrived")
    time.sleep(0.5)
    handle = following.launch(launch_plan)
    assert slurm.jobs() == [str(handle.body["job"])], slurm.run("scontrol", "show", "job")
    following.close()


def test_two_servers_of_one_account_leave_each_other_alone(
    tmp_path: Path, slurm: SlurmCluster
) -> None:
    first_engine = engine(tmp_path / "one", slurm, "0ne")
    other = engine(tmp_path / "other", slurm, "07her")
    first, second = first_engine.launch(plan(slurm)), other.launch(plan(slurm))
    assert first.body["job"] != second.body["job"]
    first_engine.stop(first, 0.0)
    slurm.wait_until(lambda: slurm.jobs() == [str(second.body["job"])], "only one has ended")
    first_engine.close()
    other.close()


def test_no_secret_is_on_a_command_line_or_readable_by_others(
    tmp_path: Path, slurm: SlurmCluster
) -> None:
    slurm_engine = engine(tmp_path, slurm)
    handle = slurm_engine.launch(plan(slurm))
    shown = slurm.run("scontrol", "show", "job", str(handle.body["job"]), "--details")
    assert "tyr_secret" not in shown and "tyn_secret" not in shown
    script = next((slurm.folder / "state").glob("hash.*/job.*/script"))
    assert "tyr_secret" in script.read_text() and "tyn_secret" not in script.read_text()
    assert script.stat().st_mode & 0o077 == 0
    slurm_engine.close()


def test_what_can_never_start_is_refused(tmp_path: Path, slurm: SlurmCluster) -> None:
    slurm_engine = engine(tmp_path, slurm)
    with pytest.raises(EngineRefused, match="partition `x` does not exist") as refused:
        slurm_engine.launch(plan(slurm, partition="x"))
    assert "low" in refused.value.hint
    with pytest.raises(EngineRefused, match="above that of partition `low`"):
        slurm_engine.launch(plan(slurm, partition="low", time_limit="3:00:00"))
    assert not slurm.jobs()
    slurm_engine.close()


def test_a_controller_that_does_not_answer_is_told_of(tmp_path: Path, slurm: SlurmCluster) -> None:
    slurm.stop("slurmctld")
    slurm_engine = engine(tmp_path, slurm)
    try:
        with pytest.raises(EngineUnreachable):
            slurm_engine.launch(plan(slurm))
    finally:
        slurm.start_controller()
    handle = slurm_engine.launch(plan(slurm))
    assert slurm.jobs() == [str(handle.body["job"])]
    slurm_engine.close()


def test_an_ordinary_user_can_do_all_of_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    home = slurm.folder / "nobody"
    home.mkdir(mode=0o700)
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    launch_plan = plan(slurm).to_json()
    # Where anybody may read it; what it imports is loaded before it becomes this user.
    packages = slurm.folder / "packages"
    copy = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(torchyard.__file__).parent, packages / "torchyard", ignore=copy)
    code = (
        f"import sys; sys.path.insert(0, {str(packages)!r})\n"
        f"from torchyard.executors.slurm.settings import SETTINGS; SETTINGS()\n{_SERVER}"
    )
    words = (sys.executable, "-c", code, str(home), launch_plan, str(nobody.pw_uid))
    printed = slurm.run(*words).splitlines()
    assert json.loads(printed[0]) == ["n1"]
    assert json.loads(printed[1])["job"] > 0
    assert printed[2].startswith("waits for Slurm: ")
    slurm.wait_until(lambda: not slurm.jobs(), "it has ended its own job")
