"""Who holds a Ray cluster, or is on the server's machine, gets nothing of the server's user."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from eventually import eventually
from ray.ray_cluster import RayCluster, command_of
from ray.stub_nodes import BOOTSTRAP, Nodes, patiently, server
from ray.test_joining_with_a_runner import _OPENED, _opened
from runner import runner_site as sites
from runner.runner_site import RunnerSite
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.ray import head_nodes
from torchyard.executors.ray.engine import RayEngine
from torchyard.executors.ray.ray_environment import RayEnvironment
from torchyard.executors.runner_client import RunnerClient
from torchyard.shared import processes

pytestmark = [
    pytest.mark.ray,
    pytest.mark.runner,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]
# The holder of the cluster is there before the bridge, under the name that it will ask for. What
# its actor answers is a program, once it is unpickled.
_HOSTILE = """
import os, sys, ray
address, namespace, name, file, token = sys.argv[1:]
ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR")
class Effect:
    def __reduce__(self):
        return (os.system, (f"(id -un; cat {token}) >> {file} 2>&1",))
class Hostile:
    def begin(self, *arguments):
        return Effect()
    def wait(self):
        return Effect()
    def ready(self):
        return True
actor = ray.remote(Hostile).options(name=name, lifetime="detached", num_cpus=0).remote()
assert ray.get(actor.ready.remote())
"""


class OpenedSite(RunnerSite):
    """Whose runner, and so the engine user, sees Ray's environment of the tests."""

    opened: ClassVar[list[str]] = []

    def command(self, *words: str) -> list[str]:
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _OPENED, "sh"]
        return [*enter, *self.opened, "--", *super().command(*words)]


@contextmanager
def opened_site(environment: RayEnvironment) -> Iterator[RunnerSite]:
    # Not below pytest's own folder, which is one of those that are put out of sight.
    with (
        pytest.MonkeyPatch.context() as patched,
        tempfile.TemporaryDirectory(prefix="ty-r") as folder,
    ):
        needed = [Path(sys.base_prefix), environment.folder.resolve()]
        OpenedSite.opened = _opened(needed, Path(folder))
        patched.setattr(sites, "RunnerSite", OpenedSite)
        with sites.runner_site() as site:
            (site.node_folder / "engines" / environment.folder.name).symlink_to(environment.folder)
            yield site


@pytest.fixture(scope="module")
def site(ray_environment: RayEnvironment) -> Iterator[RunnerSite]:
    with opened_site(ray_environment) as made:
        yield made


@pytest.fixture
def home() -> Iterator[Path]:
    """The server's, closed by its own rights alone."""
    with tempfile.TemporaryDirectory(prefix="ty-h") as folder:
        yield Path(folder)


class EngineNodes(Nodes):
    """With an engine whose Ray is the engine user's."""

    def __init__(self, home: Path, folder: Path, cluster: RayCluster, runner: RunnerClient) -> None:
        self._runner = runner
        super().__init__(home, folder, cluster)

    def new_engine(self) -> RayEngine:
        return RayEngine(
            self._home, os.environ, self.launches, server("s1"), BOOTSTRAP, runner=self._runner
        )


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def rays_of(site: RunnerSite) -> list[int]:
    """Of the engine user."""
    return site.processes_of("engine")


def test_a_pickle_in_an_answer_runs_as_the_engine_user_who_reaches_nothing(
    site: RunnerSite, cluster: RayCluster, home: Path, tmp_path: Path
) -> None:
    token = home / "token"
    token.write_text("the owner's token")
    token.chmod(0o600)
    effect = site.folder / "effect"
    effect.touch()
    effect.chmod(0o666)
    nodes = EngineNodes(home, tmp_path, cluster, site.client)
    try:
        name, namespace = "torchyard-s1-h1-0", "torchyard-s1"
        cluster._run_driver(_HOSTILE, namespace, name, str(effect), str(token))
        handle = nodes.launch(nodes.plan("h1", 1))

        def has_effect() -> bool:
            try:
                nodes.engine.status(handle)
            except EngineUnreachable:
                pass  # what the cluster says is no answer
            return bool(effect.read_text())

        eventually(has_effect, "the pickle was read")
        first, *rest = effect.read_text().splitlines()
        assert first == site.user("engine")
        assert "the owner's token" not in effect.read_text() and "denied" in rest[0]
        nodes.wait(handle, ("lost",))
        # Other jobs are not held up.
        other = nodes.launch(nodes.plan("h2", 1))
        nodes.wait(other, ("running",))
        nodes.engine.stop(other, 0)
        bridge = next(iter(nodes.engine._clusters.values())).bridge
        assert bridge.pid is not None and owner_of(bridge.pid) == site.uid("engine")
    finally:
        nodes.engine.close()
    eventually(lambda: not rays_of(site), "the bridge and its node have ended")


def test_a_head_and_its_bridge_are_the_engine_users_and_closed_to_all(
    site: RunnerSite, ray_environment: RayEnvironment, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    made = head_nodes.of_server(home, os.environ, site.client)
    engine = RayEngine(
        home, os.environ, LaunchFiles(home), server("s1"), BOOTSTRAP, runner=site.client
    )
    try:
        head = made.ensure("default.machines")
        assert head_nodes.of_server(home, os.environ, site.client).find("default.machines") == head
        view = patiently(lambda: engine.describe({"head": "default.machines"}))
        assert view.version.startswith(ray_environment.version.ray)
        words = {command_of(pid) for pid in rays_of(site)}
        assert any("gcs_server" in each for each in words)
        assert any("bridge_program" in each for each in words)
        engines = str(site.node_folder / "engines")
        assert {owner_of(pid) for pid in _with_words(engines)} == {site.uid("engine")}
        sessions = _sessions_of(site)
        assert sessions
        for place in sessions:
            for name in ("job1", "other", "build", "server"):
                script = f"ls {place} || touch {place}/x || mv {place} {place}.old"
                ended = site.run_as(name, ["/bin/sh", "-c", script], cwd="/")
                assert ended.returncode != 0, ended.stdout
        # The next server finds it, and it ends with its cluster.
        made.stop("default.machines")
        assert made.find("default.machines") is None
    finally:
        engine.close()
        made.stop("default.machines")
    eventually(lambda: not rays_of(site), "nothing of Ray is left")


def _with_words(*words: str) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if all(word in command_of(pid) for word in words)]


def _sessions_of(site: RunnerSite) -> set[Path]:
    """The folders of sessions that processes of the engine user were started with."""
    found = set()
    for pid in rays_of(site):
        if processes.start_time(pid):
            for word in command_of(pid).split():
                if "temp-dir=" in word or "temp_dir=" in word:
                    found.add(Path(word.partition("=")[2]))
    return found
