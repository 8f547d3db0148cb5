"""The systemd unit of a shared server: systemd understands it, and it leaves jobs alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.worker.system import cgroups

UNIT = Path(__file__).parents[1] / "packaging" / "torchyard.service"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    # It looks whether the program is there; here it is another one.
    text = UNIT.read_text().replace("/opt/torchyard/bin/yard-server", sys.executable)
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    messages = done.stderr.splitlines()
    if _systemd() < 254:
        # The one key that is newer; without it, jobs have fewer limits (docs/guides/shared-server).
        (message,) = messages
        assert "Unknown key 'DelegateSubgroup' in section [Service], ignoring" in message
        messages = []
    assert (done.returncode, messages) == (0, [])


def _systemd() -> int:
    answer = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True)
    return int(answer.stdout.split()[1])


def test_limits_of_jobs_need_the_delegated_cgroup() -> None:
    lines = UNIT.read_text().splitlines()
    assert "Delegate=cpu memory pids" in lines
    assert f"DelegateSubgroup={cgroups.WORKERS}" in lines


def test_a_restart_ends_the_server_alone() -> None:
    text = UNIT.read_text()
    assert "\nKillMode=process\n" in text and "\nUser=torchyard\n" in text


def test_the_unit_starts_the_server_with_words_it_knows() -> None:
    command = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)[0].split()
    help_page = subprocess.run(
        [sys.executable, "-m", "torchyard.server", "--help"], capture_output=True, text=True
    ).stdout
    for word in command[1:]:
        if word.startswith("--"):
            assert word in help_page
