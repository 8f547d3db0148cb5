"""A team's server as the guides install, upgrade and restore it, under systemd as first process.

Owns: a machine in a container; the guides' commands, typed there as root.
Leaves: whether systemd takes the units as they are to test_service_unit.py.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import torchyard
from containers import base_image
from deployment.conftest import Podman
from end_to_end.yard_under_test import REPOSITORY, Yard
from eventually import eventually
from recorded_home.next_version import NEXT, version_of
from required import missing

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1200)]

_IMAGE = "localhost/test-systemd:1"
_NAME = "test-systemd"
_PACKAGES = ("python3", "python3-venv", "systemd", "systemd-sysv", "dbus", "openssl")
_UPGRADED = "0.2.0"
_AS_SERVER = "setpriv --reuid=torchyard --regid=torchyard --init-groups env"
_HOME = "TORCHYARD_HOME=/var/lib/torchyard"
# The image has neither sudo nor a clone of the repository.
_MEANT = {
    "sudo -u torchyard": _AS_SERVER,
    "pip install .": "pip install --find-links /this 'torchyard[postgres]'",
    "'torchyard[postgres,oidc]'": "--find-links /next 'torchyard[postgres]'",
    "packaging/": "/packaging/",
    "monday.tar": "before.tar",
}
_CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
    "-addext subjectAltName=DNS:localhost -keyout team-key.pem -out team-cert.pem"
)
_ASKED = """
import ssl, sys, time, urllib.request
context = ssl.create_default_context(cafile="/root/team-cert.pem")
def answer(path):
    url = "https://localhost:8766" + path
    with urllib.request.urlopen(url, context=context, timeout=5) as answered:
        return answered.read().decode()
"""
# Seconds from the first request that nobody answered to the next that somebody did.
_PROBE = f"""{_ASKED}
away = None
while True:
    asked = time.monotonic()
    try:
        answer("/health")
    except OSError:
        away = away or asked
    else:
        if away:
            print(round(asked - away, 1), flush=True)
            break
    time.sleep(0.05)
"""
_JOB = {
    "name": "long",
    "command": "id -un; echo pid $$; n=0; until [ -e /tmp/enough ]; do n=$((n+1)); "
    "echo line $n; sleep 0.1; done",
    "environment": "python",
}


def typed(page: str, heading: str) -> list[str]:
    """What root types below a heading, as it is meant here."""
    text = (REPOSITORY / page).read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```console\n(.*?)^```", section, re.M | re.S)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line[:2] == "# "]
    for name, meant in _MEANT.items():
        lines = [line.replace(name, meant) for line in lines]
    return lines


@dataclass(frozen=True)
class TeamMachine:
    podman: Podman

    def type(self, line: str) -> str:
        done = self.podman.run("podman", "exec", "--workdir=/root", _NAME, "bash", "-ec", line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}{self._journal()}"
        return done.stdout

    def yard(self, *words: str) -> str:
        return self.type(f"TORCHYARD_HOME=/root/client /opt/torchyard/bin/yard {' '.join(words)}")

    def job(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.yard("job", "show", "-n", "long", "-o", "json"))
        return shown

    def answer(self, path: str) -> dict[str, Any]:
        script = f'{_ASKED}\nprint(answer("{path}"))'
        answered: dict[str, Any] = json.loads(self.type(f"python3 -c '{script}'"))
        return answered

    def await_ready(self) -> None:
        script = f'{_ASKED}\nanswer("/readyz")'
        ask = ("podman", "exec", _NAME, "python3", "-c", script)
        try:
            eventually(
                lambda: self.podman.run(*ask).returncode == 0, "the server is ready", every_s=1
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._journal()}") from error

    def await_status(self, status: str) -> None:
        eventually(lambda: self.job()["status"] == status, f"the job is {status}", every_s=1)

    def _journal(self) -> str:
        return self.podman.run("podman", "exec", _NAME, "journalctl", "--no-pager", "-n40").stdout


def _wheel(source: Path, target: Path) -> Path:
    build = [sys.executable, "tools/run_uv.py", "build", "--quiet", "--wheel", "--out-dir"]
    subprocess.run([*build, str(target), str(source)], cwd=REPOSITORY, check=True)
    return target


def _next_sources(folder: Path) -> Path:
    """Of a version with another schema, which a migration makes."""
    version_of(Yard(folder), folder, _UPGRADED, NEXT)
    sources = folder / "sources"
    sources.mkdir()
    for name in ("compat", "examples", "pyproject.toml", "README.md", "LICENSE"):
        if (whole := REPOSITORY / name).is_dir():
            shutil.copytree(whole, sources / name)
        else:
            shutil.copy(whole, sources / name)
    (sources / "src").mkdir()
    (folder / _UPGRADED / "torchyard").rename(sources / "src/torchyard")
    return sources


@pytest.fixture(scope="module")
def machine(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamMachine]:
    """With the server and the runner as the guides install them, and olga, who logged in."""
    if subprocess.run(["dpkg", "-s", *_PACKAGES], capture_output=True).returncode:
        missing(f"the image is made of Debian's packages: apt-get install {' '.join(_PACKAGES)}")
    folder = tmp_path_factory.mktemp("systemd")
    base_image.write(folder / "base.tar", _PACKAGES)
    podman("import", "--quiet", folder / "base.tar", _IMAGE)
    (folder / "base.tar").unlink()
    mounts = {
        _wheel(REPOSITORY, folder / "this"): "/this",
        _wheel(_next_sources(folder / "sources"), folder / "next"): "/next",
        REPOSITORY / "packaging": "/packaging",
    }
    volumes = [f"{source}:{place}:ro" for source, place in mounts.items()] + podman.mounts
    podman(
        "run", "--detach", f"--name={_NAME}", "--systemd=always", "--network=none",
        *(f"--volume={volume}" for volume in volumes), _IMAGE, "/lib/systemd/systemd",
    )  # fmt: skip
    try:
        yield _installed(TeamMachine(podman))
    finally:
        podman("rm", "--force", "--time=0", _NAME)


def _installed(made: TeamMachine) -> TeamMachine:
    made.type("until [ -S /run/systemd/private ]; do sleep 0.2; done")
    made.type(_CERTIFICATE)
    install = typed("docs/guides/shared-server.md", "Install it")
    # Until the server's unit is there; PostgreSQL and torchyard.socket are optional.
    unit = next(n for n, line in enumerate(install) if line.endswith("torchyard.service"))
    for line in install[: unit + 1]:
        made.type(line)
    runner = typed("docs/guides/runner.md", "Install it")
    page = (REPOSITORY / "docs/guides/runner.md").read_text()
    settings = json.loads(re.findall(r"^```json\n(.*?)```", page, re.M | re.S)[0])
    del settings["accounts"]  # of people who have one on the machine
    made.type(f"echo '{json.dumps(settings)}' > /etc/torchyard/runner.json")
    for line in runner:
        made.type(line)
    (start,) = [line for line in install if line.endswith("systemctl enable --now torchyard")]
    made.type(start)
    made.await_ready()
    owner = f"{_AS_SERVER} {_HOME} /opt/torchyard/bin/yard user"
    made.type(f"{owner} create olga --role owner --all-workspaces --no-token")
    made.type(f"{owner} token create olga --query token -o tsv > token")
    made.yard("login", "https://localhost:8766", "--ca-cert team-cert.pem --token-file token")
    return made


def test_a_job_goes_on_while_the_server_is_upgraded(machine: TeamMachine) -> None:
    machine.type(f"echo '{json.dumps(_JOB)}' > job.yml")
    machine.yard("job", "create", "-f", "job.yml")
    machine.await_status("Running")
    eventually(lambda: "line 3" in machine.yard("job", "logs", "-n", "long"), "it prints")
    account, pid = machine.yard("job", "logs", "-n", "long").splitlines()[:2]
    assert account.startswith("yardjob")
    machine.type(f"cat > probe.py <<'END'\n{_PROBE}\nEND")
    machine.type("systemd-run --unit=probe bash -c 'python3 /root/probe.py > /root/away'")
    machine.type("install -d -o torchyard /mnt/backups")
    upgrade = typed("docs/guides/upgrade.md", "Under systemd")[:5]
    assert "systemctl start torchyard" in upgrade[-1]
    for line in upgrade:
        machine.type(line)
    machine.await_ready()
    assert machine.answer("/health")["version"] == _UPGRADED
    machine.type(f"kill -0 {pid.split()[1]}")  # the job's own shell
    assert machine.job()["status"] == "Running"
    machine.type("touch /tmp/enough")
    machine.await_status("Completed")
    assert machine.job()["attempt"] == 1
    printed = machine.yard("job", "logs", "-n", "long").splitlines()[2:]
    assert printed == [f"line {n}" for n in range(1, len(printed) + 1)]
    eventually(lambda: bool(machine.type("cat away")), "somebody answered again")
    print(f"\nnothing answered for {machine.type('cat away').strip()} s")


def test_the_version_before_is_restored_as_the_guide_says(machine: TeamMachine) -> None:
    """The backup is of the test above: its job ran then."""
    pip = "/opt/torchyard/bin/pip install --find-links /this"
    machine.type("systemctl stop torchyard")
    machine.type(f"{pip} torchyard=={torchyard.__version__}")
    machine.type("systemctl restart torchyard-runner")
    for line in typed("docs/guides/upgrade.md", "Under systemd")[5:]:
        if ".key" not in line:  # there is one after a restore with a passphrase
            machine.type(line)
    machine.await_ready()
    assert machine.job()["name"] == "long"
    machine.yard("job", "create", "-f", "job.yml", "--set", "name=after")
    shown = machine.yard("job", "list", "--query", "[].name", "-o", "tsv")
    assert set(shown.split()) == {"long", "after"}
