"""What only an ordinary user meets: permissions do not hold root back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NOBODY = 65534


def as_nobody(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program as the user `nobody`."""
    return subprocess.run(
        words, user="nobody", group="nogroup", extra_groups=[], cwd="/",
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def python_of_nobody() -> str:
    """A Python that `nobody` may run."""
    for program in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            if as_nobody([program, "-c", "import ctypes"]).returncode == 0:
                return program
        except OSError:
            continue
    pytest.skip("user `nobody` has no Python on this machine")


@contextmanager
def as_an_ordinary_user() -> Iterator[Path]:
    """Be one until the end of the block; gives a folder of that user's own, the current one."""
    # The checkout may be in a folder that this user can't enter.
    checkout = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(name, _NOBODY, _NOBODY)
            os.seteuid(_NOBODY)
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)
            os.chdir(checkout)
