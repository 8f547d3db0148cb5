"""An environment that is installed into a folder runs there by an interpreter of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from end_to_end.yard_under_test import Yard
from environments import wheels

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

# Each file that the process has in memory, and each folder that it imports from.
PRINT = """
import json, sqlite3, ssl, sys, greeting
mapped = [line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line]
print(json.dumps([greeting.WORD, sys.prefix, sys.base_prefix, sorted({*mapped, *sys.path})]))
"""


@pytest.fixture
def environment(yard: Yard, tmp_path: Path) -> str:
    wheels.put(tmp_path / "wheels", "greeting", "1.0", text="WORD = 'good day'\n", script="greet")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"--find-links {tmp_path / 'wheels'}\ngreeting==1.0\n")
    yard("environment", "create", "-n", "portable", "--pip-requirements", str(requirements))
    return "portable"


def test_it_runs_without_the_servers_python(yard: Yard, environment: str, tmp_path: Path) -> None:
    prefix = tmp_path / "opt" / "stack"
    shown = json.loads(yard("environment", "install", environment, str(prefix), "-o", "json"))
    assert shown["name"] == "portable" and "greeting" in shown["distributions"]
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    printed = subprocess.check_output(
        [prefix / "bin" / "python", "-c", PRINT], env=variables, cwd="/", text=True
    )
    word, own_prefix, base, paths = json.loads(printed)
    assert (word, own_prefix) == ("good day", str(prefix))
    assert Path(base).is_relative_to(prefix)
    configuration = (prefix / "pyvenv.cfg").read_text()
    home = Path(dict(line.split(" = ") for line in configuration.splitlines())["home"])
    servers = str(Path("/") / home.relative_to(prefix / ".python").parent)
    if servers != "/usr":  # whose libraries are the machine's own
        assert not [path for path in paths if path.startswith(servers)]
    greeted = subprocess.check_output([prefix / "bin" / "greet"], env=variables, text=True)
    assert os.path.samefile(greeted.strip(), prefix / "bin" / "python")


def test_a_folder_with_files_is_refused_and_stays(
    yard: Yard, environment: str, tmp_path: Path
) -> None:
    prefix = tmp_path / "taken"
    prefix.mkdir()
    (prefix / "notes.txt").write_text("mine")
    _, err = yard.run("environment", "install", environment, str(prefix), expect=2)
    assert "exists and is not an empty folder" in err and "hint: " in err
    assert [file.name for file in prefix.iterdir()] == ["notes.txt"]
    assert not list(tmp_path.glob(".taken*"))
