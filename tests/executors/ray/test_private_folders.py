"""Folders of Ray's sessions: Ray opens them to everybody, so one above each is closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.executors.ray import bridge_program, private_start
from torchyard.node_agent import ray_node

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's try needs root")
# As Ray does with its folder of sessions, and with each session in it.
_AS_RAY = """
import os, sys
place = sys.argv[1]
os.chmod(place, 0o777)
log = os.path.join(place, "raylet.out")
open(log, "w").write("log")
os.chmod(log, 0o666)
print(place)
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Short, and open to all, as /tmp is."""
    with tempfile.TemporaryDirectory(prefix="ty-t", dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def start(folder: Path, temporary: Path) -> Path:
    """Where a program that plays Ray was given to write."""
    words = [sys.executable, "-I", "-S", "-c", _AS_RAY, private_start.SESSIONS]
    request = {"folder": str(folder), "token": "the-token", "words": words}
    ended = subprocess.run(
        [sys.executable, "-I", "-S", private_start.__file__],
        input=json.dumps(request) + "\n",
        env={"TMPDIR": str(temporary), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ended.returncode == 0, ended.stderr
    return Path(ended.stdout.strip())


def closed(place: Path) -> bool:
    """Whether a folder above it lets nobody else pass."""
    return any(not folder.stat().st_mode & 0o077 for folder in place.parents)


def other_plants_a_link(place: Path, target: Path) -> bool:
    """Another user puts a link in the place of the log; whether they could."""
    program = "import os, sys\nlog, target = sys.argv[1:]\n"
    program += "os.rename(log, log + '.old'); os.symlink(target, log)"
    log = str(place / "raylet.out")
    ended = subprocess.run(
        [_python(), "-I", "-S", "-c", program, log, str(target)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        timeout=90,
    )
    return ended.returncode == 0


def _python() -> str:
    return next(
        path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()
    )


@pytest.mark.parametrize("is_long", [False, True])
def test_a_heads_sessions_are_below_a_closed_folder(temporary: Path, is_long: bool) -> None:
    folder = temporary / ("h" * 60 if is_long else "h")
    place = start(folder, temporary)
    assert place.stat().st_mode & 0o777 == 0o777 and closed(place)
    assert (place.parent != folder) is is_long
    assert len(str(place)) <= private_start._LONGEST_PLACE
    assert (folder / "token").read_text() == "the-token"
    assert (folder / "token").stat().st_mode & 0o077 == 0
    # The same again: machines that joined look for their sockets there.
    assert start(folder, temporary) == place


@needs_root
@pytest.mark.parametrize("is_long", [False, True])
def test_nobody_else_plants_a_link_among_a_heads_logs(temporary: Path, is_long: bool) -> None:
    place = start(temporary / ("h" * 60 if is_long else "h"), temporary)
    database = temporary / "torchyard.db"
    database.write_text("rows")
    assert not other_plants_a_link(place, database)
    start(temporary / ("h" * 60 if is_long else "h"), temporary)
    assert database.read_text() == "rows"


@needs_root
def test_a_place_that_somebody_else_made_is_not_used(temporary: Path) -> None:
    folder = temporary / ("h" * 60)
    place = start(folder, temporary)
    # The folder for temporary files was emptied, and somebody else was first.
    subprocess.run(["rm", "-rf", str(place.parent)], check=True)
    place.mkdir(parents=True)
    os.chown(place.parent, NOBODY, NOBODY)
    place.parent.chmod(0o777)
    assert start(folder, temporary) != place


def test_a_bridge_has_a_closed_folder_and_removes_those_of_killed_ones(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    monkeypatch.setattr(os, "environ", {})
    stale = temporary / "ty-bridge-killed"
    stale.mkdir()
    first = Path(bridge_program.make_private("the-token"))
    assert not stale.exists()
    assert first.stat().st_mode & 0o077 == 0
    assert (first / "token").stat().st_mode & 0o077 == 0
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(first / "token")
    bridge_program.make_private("")
    assert first.exists()  # its process lives


def test_a_folder_that_another_bridge_took_for_a_stale_one_is_not_used(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def mkdtemp(prefix: str, dir: str) -> str:
        folder = Path(dir, f"{prefix}{len(made)}")
        folder.mkdir(0o700)
        made.append(folder)
        if len(made) == 1:
            bridge_program._remove_if_free(str(folder))  # another bridge, in this very moment
            assert not folder.exists()
        return str(folder)

    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    monkeypatch.setattr(os, "environ", {})
    assert bridge_program.make_private("the-token") == str(made[1])
    assert (made[1] / "token").read_text() == "the-token"


def test_a_machines_sessions_are_below_a_closed_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    for folder in (temporary / "n", temporary / ("n" * 60)):
        folder.mkdir(mode=0o700)
        place = ray_node._sessions(folder)
        place.chmod(0o777)
        assert closed(place)
