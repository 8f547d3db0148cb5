"""A folder of wheels from which an image is built and its nodes install Ray, without a network.

Owns: which wheels; fetching them from where this machine's pip takes packages.
Always: torchyard's own dependencies are those of requirements-all.lock.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import run_uv
from required import missing
from torchyard.executors.ray.ray_environment import TESTED_VERSION

_UV = Path(sys.executable).with_name("uv")
_START = run_uv.ROOT / "examples" / "start" / "requirements.txt"


class Wheelhouse:
    """
    Args:
        python: of the images, whose version and kind the wheels are for.
    """

    def __init__(self, folder: Path, python: str = "/usr/bin/python3") -> None:
        self.folder = folder
        self._python = python
        self._version = _output(python, "-c", "import platform; print(platform.python_version())")

    def add_torchyard(self) -> None:
        """What building the image installs, and Ray, which nodes install when they join."""
        self._download(self._dependencies(), "--no-deps")
        for lock in ("packaging/image/requirements.txt", "requirements-build.lock"):
            self._download((run_uv.ROOT / lock).read_text(), "--no-deps")
        self._download(f"ray=={TESTED_VERSION}\n")

    def add_start(self) -> None:
        """What a project of `yard init` needs; `torchyard-train` comes with the server."""
        lines = _START.read_text().splitlines()
        self._download("\n".join(line for line in lines if line != "torchyard-train"))

    def _dependencies(self) -> str:
        """Of torchyard with PostgreSQL, as the lock pins them for this Python."""
        words: list[str | Path] = [_UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
        words += ["--python-version", self._version, "-c", "requirements-all.lock"]
        words += ["--extra", "postgres", "pyproject.toml"]
        settings = run_uv.read_pip_settings(_output(*run_uv.PIP, "config", "list"))
        environment = run_uv.uv_environment(settings, os.environ)
        done = subprocess.run(
            words, cwd=run_uv.ROOT, env=environment, capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            missing(f"the packages of the image are not to be had: {done.stderr}")
        listing: str = done.stdout
        return listing

    def _download(self, requirements: str, *options: str) -> None:
        file = self.folder.with_suffix(".txt")
        # pip wants hashes of all or of none; the build of the image checks them.
        lines = requirements.replace("\\\n", " ").splitlines()
        file.write_text("".join(line.split(" --hash")[0].rstrip() + "\n" for line in lines))
        words: list[str | Path] = [*run_uv.PIP, "download", "-qq", "--only-binary", ":all:"]
        words += options
        words += ["--python-version", self._version, "--dest", self.folder, "-r", file]
        done = subprocess.run(words, capture_output=True, text=True, timeout=1200)
        file.unlink()
        if done.returncode:
            missing(f"wheels for the image can't be fetched: {done.stderr}")


def _output(*words: str | Path) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
