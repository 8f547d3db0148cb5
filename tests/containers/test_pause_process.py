"""An ordinary user's podman keeps its namespaces by a process that pauses; ours leaves none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordinary_user import as_nobody, python_of_nobody
from torchyard.base import leash

pytestmark = [pytest.mark.containers, pytest.mark.timeout(300)]

_NOBODY = 65534


def paused() -> set[int]:
    """Processes of `nobody` that are podman's."""
    pids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text()
            if folder.stat().st_uid == _NOBODY and name.startswith(("podman", "catatonit")):
                pids.add(int(folder.name))
        except OSError:
            continue
    return pids


@pytest.fixture
def home_of_nobody() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    with tempfile.TemporaryDirectory(prefix="torchyard-nobody-") as name:
        os.chown(name, _NOBODY, _NOBODY)
        yield Path(name)


def test_asking_podman_leaves_no_process(home_of_nobody: Path) -> None:
    podman = shutil.which("podman")
    assert podman is not None
    before = paused()
    variables = {
        "PATH": os.environ["PATH"], "HOME": str(home_of_nobody),
        "XDG_RUNTIME_DIR": str(home_of_nobody),
    }  # fmt: skip
    # A Python that `nobody` can run, with this program: that user can't read the checkout.
    program = leash._PROGRAM
    script = (
        "import os, subprocess, sys; "
        f"ran = subprocess.run([sys.executable, '-I', '-S', '-c', {program!r}, str(os.getpid()), "
        f"{podman!r}, 'info'], start_new_session=True, capture_output=True, text=True); "
        "print(ran.stdout, ran.stderr); sys.exit(ran.returncode)"
    )
    ran = as_nobody(["/usr/bin/env", "-i", *(f"{k}={v}" for k, v in variables.items()),
                     python_of_nobody(), "-c", script])  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert paused() == before
