"""Nobody waits for a build, or for a program of one, that has ended."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.environments import store
from torchyard.environments.assembly import Environments
from torchyard.environments.packages import machine_config
from torchyard.environments.packages.uv import Uv
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.environments.types import EnvironmentSpec, Platform
from torchyard.executors.runner_client import RunnerClient, RunnerUnreachable
from torchyard.shared import locks


@pytest.fixture
def environments(tmp_path: Path, db: Database, clock: FakeClock) -> Environments:
    return Environments(tmp_path, db, clock, {}, Platform("linux", "x86_64", "cpu"))


def test_a_build_that_ended_with_its_server(environments: Environments, clock: FakeClock) -> None:
    spec = EnvironmentSpec("3.11", ("numpy",), "test")
    with environments.db.write() as connection:
        store.begin(connection, spec, clock.now())
    builds = RequestedBuilds(environments, lambda spec: {})
    assert builds.show(spec.hash, 0)["status"] == "canceled"
    with locks.hold(environments.folders.paths(spec.hash).mutex):
        assert builds.show(spec.hash, 0)["status"] == "building"
    builds.close()


def test_a_build_whose_runner_goes_away_has_not_failed(
    tmp_path: Path, db: Database, clock: FakeClock
) -> None:
    runner = RunnerClient(tmp_path / "nobody-listens")
    platform = Platform("linux", "x86_64", "cpu")
    environments = Environments(tmp_path, db, clock, {}, platform, runner=runner)
    spec = EnvironmentSpec("3.11", (), "test")
    with pytest.raises(RunnerUnreachable):
        environments.builds.run(spec)
    build = environments.records.row(spec.hash)
    assert build is not None and build.status == "canceled"


def test_what_a_program_leaves_running_ends_with_it(tmp_path: Path) -> None:
    uv = Uv(machine_config.read({}), io.BytesIO(), lambda: False, None)
    script = "setsid sleep 1000 & echo $! 1>&2; printf 'the rest' 1>&2"
    outcome = uv.run_program(["/bin/sh", "-c", script], tmp_path, "a build that starts a server")
    left, _, rest = outcome.words.partition("\n")
    assert (outcome.code, rest) == (0, "the rest")
    assert not Path(f"/proc/{int(left)}").exists()


def test_a_build_that_waits_for_another_says_so_in_its_log(environments: Environments) -> None:
    first, second = (EnvironmentSpec("3.11", (name,), "test") for name in ("numpy", "scipy"))
    with locks.hold(_made(environments, first)):
        builds = RequestedBuilds(environments, lambda spec: {})
        assert builds.begin(first)["log"] == ""
        waiting = builds.begin(second)
        assert waiting["status"] == "building"
        assert waiting["log"] == (
            f"Waiting for builds that were requested before: {first.hash[:12]}\n"
        )
        builds.close()


def _made(environments: Environments, spec: EnvironmentSpec) -> Path:
    """The file that a builder of the environment locks."""
    mutex = environments.folders.paths(spec.hash).mutex
    mutex.parent.mkdir(parents=True, exist_ok=True)
    return mutex
