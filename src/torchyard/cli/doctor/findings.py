"""The result of a check of `yard doctor`, and how a check runs other programs.

Owns: the finding, one run of a program and its last line.
Leaves: the checks to programs_check.py, machine_check.py and server_check.py.
Always: a program gets no input and is killed after `TIMEOUT_S`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import leash

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Finding:
    """`status`: ok; note, something is limited; wrong, jobs can't run."""

    check: str
    status: str
    result: str
    remedy: str = ""


def ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", message)


def uv_program() -> str | None:
    """The uv installed beside this Python, else one on PATH."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return _timed_out(command)


def run_leashed(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program, the first word an absolute path, and end all that it leaves behind."""
    try:
        return leash.run(command, TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return _timed_out(command)


def _timed_out(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    message = f"timed out after {TIMEOUT_S:.0f} s"
    return subprocess.CompletedProcess(command, 124, "", message)


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"
