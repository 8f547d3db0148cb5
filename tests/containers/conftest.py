"""A torchyard whose podman keeps everything in a folder of the test session's own.

Owns: the base image, the server over podman.
Leaves: podman's configuration to own_podman.py, asking it to end_to_end/yard_under_test.py.
Always: at the end no process, image, mount or folder of it is left; the machine's own images are
never looked at.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from containers import base_image, own_podman
from end_to_end.yard_under_test import Yard, remove, wait_until

BASE = "localhost/base:1"


@dataclass(frozen=True)
class _Yard(Yard):
    """Its commands and its server see `more`; the tests' own process does not."""

    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, **self.more}


@dataclass(frozen=True)
class Machine:
    """Its `yard`; `wheels` is the folder that the machine's pip takes packages from."""

    yard: Yard
    wheels: Path
    variables: dict[str, str]

    def podman(self, *words: str) -> str:
        """What podman prints, over the session's own storage."""
        done = subprocess.run(
            ["podman", *words], env={**os.environ, **self.variables}, text=True,
            capture_output=True, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def _why_not() -> str:
    if shutil.which("podman") is None:
        return "podman is not here: apt-get install podman"
    if shutil.which("dpkg-query") is None:
        return "the base image is made of a Debian's own files"
    return ""


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    why_not = _why_not()
    if why_not:
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail(why_not)
        pytest.skip(why_not)
    folder = Path(tempfile.mkdtemp(prefix="torchyard-containers-"))
    wheels = folder / "wheels"
    wheels.mkdir()
    variables = {
        **own_podman.configure(folder),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_INDEX": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    made = Machine(_Yard(folder / "home", more=variables), wheels, variables)
    try:
        base_image.write(folder / "base.tar")
        made.podman("import", "--quiet", str(folder / "base.tar"), BASE)
        (folder / "base.tar").unlink()
        (folder / "home").mkdir(mode=0o700)
        (folder / "home" / "containers.yml").write_text(f"engine: podman\nos_image: {BASE}\n")
        made.yard("server", "start")
        yield made
        made.yard("server", "stop")
        wait_until(lambda: not made.yard.processes(), 60, "every process of the server has ended")
        mounts = Path("/proc/mounts").read_text().splitlines()
        mounted = [line for line in mounts if str(folder) in line]
        assert not mounted, mounted
    finally:
        for process in made.yard.processes():
            with contextlib.suppress(OSError):
                os.kill(int(process.split()[0]), signal.SIGKILL)
        # What root removes needs no write bits first, and these are many files.
        shutil.rmtree(folder, ignore_errors=True) if os.geteuid() == 0 else remove(folder)


@pytest.fixture(autouse=True)
def nothing_goes_on(machine: Machine) -> Iterator[None]:
    """What a test that failed in the middle has started does not run on into the others."""
    yield
    machine.yard.quiet_down()


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[..., str]:
    """Write a job file beside a build context of these files; the answer is its path."""

    def write(command: str, context: dict[str, str] | None = None, **job: Any) -> str:
        if context is not None:
            for name, text in context.items():
                file = tmp_path / "docker" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            job["environment"] = {"build": {"path": "docker"}}
        file = tmp_path / "job.yml"
        file.write_text(yaml.safe_dump({"command": command, **job}))
        return str(file)

    return write
