"""What serves a home folder when it is not a server that commands start.

Owns: `service.json` of a home: the systemd unit or the address of the server that serves it.
Leaves: starting and stopping to the unit, or to the person who runs `yard-server`.
Always: while the file is there, no command starts a server for the home, so that none is in the
way of the real one in the moment of its restart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.base.files import write_atomically

_FILE = "service.json"


@dataclass(frozen=True)
class HomeService:
    """`unit` is empty for a server that no systemd unit runs."""

    unit: str
    host: str

    def __str__(self) -> str:
        return f"the unit `{self.unit}`" if self.unit else f"a `yard-server` for `{self.host}`"

    @property
    def start_hint(self) -> str:
        if self.unit:
            return f"start it with `systemctl start {self.unit}`"
        return f"start it with `yard-server --host {self.host}` and its other options"


def read(home: Path) -> HomeService | None:
    """None for a home whose server is started by commands."""
    try:
        body = json.loads((home / _FILE).read_bytes())
        return HomeService(str(body["unit"]), str(body["host"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record(home: Path, service: HomeService | None) -> None:
    """Write down what serves the home; None: commands may start its server."""
    if service is None:
        (home / _FILE).unlink(missing_ok=True)
    elif read(home) != service:
        with write_atomically(home / _FILE, mode=0o600) as writing:
            writing.write(json.dumps({"unit": service.unit, "host": service.host}).encode())


def unit_of_this_process(environ: Mapping[str, str], cgroups: str) -> str:
    """The systemd unit whose main process this is; empty when it is none's.

    Args:
        cgroups: the text of `/proc/self/cgroup`.

    Source: SYSTEMD_EXEC_PID, https://www.freedesktop.org/software/systemd/man/systemd.exec.html
    """
    if environ.get("SYSTEMD_EXEC_PID") != str(os.getpid()):
        return ""
    names = [name for line in cgroups.splitlines() for name in line.split("/")]
    return next((name for name in reversed(names) if name.endswith(".service")), "")
