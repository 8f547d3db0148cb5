"""The systemd unit of a shared server: systemd understands it, and it leaves jobs alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torchyard.worker.system import cgroups

PACKAGING = Path(__file__).parents[1] / "packaging"
UNIT = PACKAGING / "torchyard.service"


@pytest.fixture
def analyze() -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail("systemd-analyze is not here: `apt-get install systemd`")
        pytest.skip("systemd-analyze is not here")
    return program


@pytest.mark.slow
def test_systemd_takes_the_units(tmp_path: Path, analyze: str) -> None:
    for file in PACKAGING.glob("torchyard.*"):
        # It looks whether the program is there; here it is another one.
        text = file.read_text().replace("/opt/torchyard/bin/yard-server", sys.executable)
        (tmp_path / file.name).write_text(text)
    units = sorted(tmp_path.glob("torchyard.*"))
    done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True)
    messages = done.stderr.splitlines()
    if _systemd(analyze) < 254:
        # The one key that is newer; without it, jobs have fewer limits (docs/guides/shared-server).
        (message,) = messages
        assert "Unknown key 'DelegateSubgroup' in section [Service], ignoring" in message
        messages = []
    assert (done.returncode, messages) == (0, [])


def _systemd(analyze: str) -> int:
    answer = subprocess.run([analyze, "--version"], capture_output=True, text=True)
    return int(answer.stdout.split()[1])


def test_limits_of_jobs_need_the_delegated_cgroup() -> None:
    assert _settings("Delegate") == ["cpu memory pids"]
    assert _settings("DelegateSubgroup") == [cgroups.WORKERS]
    # Writable cgroups, and networks of jobs' own.
    assert _settings("ProtectControlGroups") in ([], ["no"])
    assert "net" in _settings("RestrictNamespaces")[0].split()


@pytest.mark.slow
def test_the_units_exposure_is_below_4(analyze: str) -> None:
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=39", UNIT],
        capture_output=True,
        text=True,
    )
    score = re.search(r"exposure level for torchyard.service: ([\d.]+)", done.stdout)
    assert score is not None and float(score[1]) < 4.0
    assert done.returncode == 0


def _settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_jobs_can_mount_their_inputs_under_the_units_limits() -> None:
    """What can be had of the unit without systemd: no capabilities, no new privileges."""
    assert {"user", "mnt"} <= set(_settings("RestrictNamespaces")[0].split())
    assert not {"@mount", "@privileged"} & set(_settings("SystemCallFilter")[0].strip("~").split())
    assert (_settings("CapabilityBoundingSet"), _settings("NoNewPrivileges")) == ([""], ["yes"])
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can give its capabilities up here")
    folder = Path(tempfile.mkdtemp())  # One that another user may enter.
    folder.chmod(0o755)
    source, target = folder / "source", folder / "target"
    source.mkdir()
    target.mkdir()
    (source / "file").write_text("data")
    script = (
        f"mount --bind -o ro {source} {target} && mount -o remount,bind,ro {target} "
        f"&& cat {target}/file && ! touch {target}/new"
    )
    limits = ["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]
    limits += ["--inh-caps=-all", "--no-new-privs"]
    done = subprocess.run(
        ["setpriv", *limits, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
    )
    shutil.rmtree(folder)
    assert (done.returncode, done.stdout) == (0, "data"), done.stderr


def test_a_restart_ends_the_server_alone() -> None:
    text = UNIT.read_text()
    assert "\nKillMode=process\n" in text and "\nUser=torchyard\n" in text


@pytest.mark.slow
def test_the_unit_starts_the_server_with_words_it_knows() -> None:
    command = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)[0].split()
    help_page = subprocess.run(
        [sys.executable, "-m", "torchyard.server", "--help"], capture_output=True, text=True
    ).stdout
    for word in command[1:]:
        if word.startswith("--"):
            assert word in help_page
