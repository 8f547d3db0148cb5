"""A machine for everybody: its runner starts each person's jobs as an account of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray.ray_cluster import lend_environment, wait_until
from runner.runner_site import RunnerSite, runner_site
from torchyard.executors.ray.ray_environment import RayEnvironment
from torchyard.node_agent.ray_node import processes_of_session
from torchyard.shared import processes

pytestmark = [
    pytest.mark.ray,
    pytest.mark.runner,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]
_YARD = str(Path(sys.executable).with_name("yard"))
# Says who it is and what it reaches, then trains until it is told to end.
_SCRIPT = """
import glob, os, pathlib, pwd, socket, sys, time
print("user", pwd.getpwuid(os.getuid()).pw_name, "rank", os.environ["RANK"], flush=True)
print("variables", sorted(name for name in os.environ if name.startswith("RAY")), flush=True)
token, own = sys.argv[1], os.getuid()

def refused(act):
    try:
        act()
    except PermissionError:
        return True
    return False

print("token refused", refused(lambda: open(token).read()), flush=True)
others = [int(p.split("/")[2]) for p in glob.glob("/proc/[0-9]*/cmdline")
          if b"raylet" in open(p, "rb").read()]
hidden = [refused(lambda: open(f"/proc/{pid}/environ").read()) for pid in others]
print("raylets", bool(hidden), "hidden", all(hidden), flush=True)
pathlib.Path("outputs", "here").write_text("here")
if os.environ.get("LONG"):
    time.sleep(600)
"""


# Opens folders to a user whose ways to them are closed, in a mount namespace: three words for each,
# the closed folder above it, the folder, and a place to hold it meanwhile.
_OPENED = """\
set -e
while [ "$1" != -- ]; do
  mount --bind "$2" "$3"
  mount -t tmpfs -o mode=755 opened "$1"
  mkdir -p "$2"
  mount --bind "$3" "$2"
  shift 3
done
shift
exec "$@"
"""


class Site:
    """A server that others reach, and one machine with a runner, whose agent is of its own user."""

    def __init__(self, folder: Path, environment: RayEnvironment, runner: RunnerSite) -> None:
        self.folder = folder
        self.home = folder / "h"
        self.home.mkdir(mode=0o700)
        self.runner = runner
        self.agent: subprocess.Popen[bytes] | None = None
        lend_environment(self.home, environment)
        self.yard("server", "start", "--listen", "--jobs-as-server-user")
        self.url = json.loads((self.home / "server.json").read_text())["url"]
        self.tokens = {"root": (self.home / "token").read_text().strip()}
        for person in ("bob", "eve"):
            made = self.json("user", "create", person, "--role", "contributor")
            self.tokens[person] = str(made["token"])
        self.agent_home = runner.folder / "a"
        lend_environment(self.agent_home / "node", environment)
        uid = runner.uid("server")
        for made in (self.agent_home, self.agent_home / "node", self.agent_home / "node/engines"):
            made.chmod(0o700)
            os.chown(made, uid, uid)
        self._opened = _opened([Path(sys.base_prefix), environment.folder.resolve()], folder)

    def yard(self, *words: str, person: str = "", fails: bool = False) -> str:
        environ = {**os.environ, "TORCHYARD_HOME": str(self.home), "HOME": str(self.home)}
        if person:
            environ |= {"TORCHYARD_URL": self.url, "TORCHYARD_TOKEN": self.tokens[person]}
        ended = subprocess.run(
            [_YARD, *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=200,
        )  # fmt: skip
        assert (ended.returncode != 0) is fails, ended.stdout + ended.stderr
        return ended.stderr if fails else ended.stdout

    def json(self, *words: str, person: str = "") -> Any:
        return json.loads(self.yard(*words, "-o", "json", person=person))

    def join(self, person: str) -> subprocess.Popen[bytes]:
        """Start the agent as its user, with the runner."""
        token = self.agent_home / f"token-{person}"
        token.write_text(self.tokens[person])
        os.chown(token, self.runner.uid("server"), -1)
        uid = self.runner.uid("server")
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.agent_home),
            "TORCHYARD_HOME": str(self.agent_home),
            "TORCHYARD_RUNNER": str(self.runner.socket),
        }
        words = [_YARD, "node", "join", self.url, "--name", "shared", "--runner"]
        with open(self.folder / f"agent-{person}.log", "ab") as log:
            return subprocess.Popen(
                [
                    *("unshare", "--mount", "--propagation", "private"),
                    *("sh", "-c", _OPENED, "sh", *self._opened, "--"),
                    *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
                    *(*words, "--token-file", str(token)),
                ],
                env=environ,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def log(self, person: str) -> str:
        return (self.folder / f"agent-{person}.log").read_text()

    def submit(self, name: str, person: str, **variables: str) -> None:
        code = self.folder / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(_SCRIPT)
        document = {
            "name": name,
            "command": f"python train.py {self.agent_home}/node/ray-token",
            "code": str(code),
            "environment": "azureml:python@latest",
            "compute": "azureml:machines",
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
            "environment_variables": variables,
        }
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(document))
        self.yard("job", "create", "-f", str(file), person=person)

    def job(self, name: str) -> Any:
        return self.json("job", "show", "-n", name)

    def wait_for(self, name: str, status: str) -> None:
        wait_until(lambda: self.job(name)["status"] == status, 120, f"{name} is {status}")

    def close(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.send_signal(signal.SIGTERM)
            self.agent.wait(100)
        self.yard("server", "stop")
        for file in self.home.glob("engines/heads/*/head.json"):
            head = json.loads(file.read_text())
            for process in processes_of_session(head["pid"]):
                processes.send(process.pid, process.start_time, signal.SIGKILL)


def _opened(folders: list[Path], target_folder: Path) -> list[str]:
    """The words of `_OPENED` for those of the folders that other users can't enter."""
    words: list[str] = []
    for number, folder in enumerate(folders):
        above = list(reversed(folder.parents))
        closed = next((each for each in above if not each.stat().st_mode & 0o001), None)
        if closed is not None:
            target = target_folder / f"opened-{number}"
            target.mkdir()
            words += [str(closed), str(folder), str(target)]
    return words


@pytest.fixture
def site(ray_environment: RayEnvironment) -> Iterator[Site]:
    with runner_site() as runner, tempfile.TemporaryDirectory(prefix="ty-r") as folder:
        made = Site(Path(folder), ray_environment, runner)
        try:
            yield made
        finally:
            made.close()


def test_everybodys_jobs_run_as_accounts_of_their_own(site: Site) -> None:
    # Others' tokens and data come to it: not everybody who may join a machine may join this one.
    assert site.join("bob").wait(120) == 2
    assert "must administer the server" in site.log("bob")
    site.agent = site.join("root")
    wait_until(lambda: bool(site.json("node", "list")), 120, site.log("root"))
    wait_until(lambda: "Joined" in site.log("root"), 120, site.log("root"))
    assert "everybody" in site.yard("node", "list")

    accounts = set()
    for person in ("bob", "eve"):
        site.submit(person, person)
        site.wait_for(person, "Completed")
        output = site.yard("job", "stream", "-n", person)
        account = site.runner.client.call("account", person=person)["account"]
        accounts.add(account)
        for rank in (0, 1):
            assert f"user {account} rank {rank}" in output
        assert "variables []" in output and "token refused True" in output
        assert "raylets True hidden True" in output
    assert accounts == {site.runner.user("job1"), site.runner.user("job2")}
    scratch = site.runner.node_folder / "scratch"
    wait_until(lambda: not list(scratch.iterdir()), 60, "nothing is left")

    # A job is canceled, and one whose machine's Ray is killed at once ends with it.
    account = str(site.runner.client.call("account", person="bob")["account"])
    ranks = account.removeprefix(site.runner.user(""))
    site.submit("canceled", "bob", LONG="1")
    site.wait_for("canceled", "Running")
    site.yard("job", "cancel", "-n", "canceled", person="bob")
    site.wait_for("canceled", "Canceled")
    wait_until(lambda: not site.runner.processes_of(ranks), 60, "its ranks have ended")

    # All of a job's processes are killed at once: what is left of it is recovered and reported.
    site.submit("killed", "bob", LONG="1")
    site.wait_for("killed", "Running")
    wait_until(lambda: len(site.runner.processes_of(ranks)) >= 4, 60, "its ranks run")
    for pid in site.runner.processes_of(ranks):
        os.kill(pid, signal.SIGKILL)
    site.wait_for("killed", "Failed")
    assert site.job("killed")["error"]["code"] == "worker_lost", site.job("killed")["error"]
    wait_until(lambda: not list(scratch.iterdir()), 60, "nothing is left")

    site.submit("lost", "bob", LONG="1")
    site.wait_for("lost", "Running")
    wait_until(lambda: bool(site.runner.processes_of(ranks)), 60, "its ranks run")
    site.agent.kill()
    site.agent.wait()
    for pid in site.runner.processes_of("server"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not site.runner.processes_of(ranks), 120, "its ranks have ended")
    site.wait_for("lost", "Failed")
