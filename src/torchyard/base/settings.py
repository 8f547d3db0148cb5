"""Settings, read once at the two ends.

Owns: which environment variables torchyard reads and what their absence means.
Leaves: settings of a workspace to workspaces/.
Always: nothing else in the package reads `os.environ`, but `base/job_env.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_WORKSPACE = "default"


@dataclass(frozen=True)
class Settings:
    """`url` and `token` are empty when the embedded server on this machine is meant."""

    home: Path
    url: str = ""
    token: str = ""
    workspace: str = ""

    @property
    def token_file(self) -> Path:
        """The token of the person who owns the embedded server; readable by that person only."""
        return self.home / "token"

    @property
    def server_file(self) -> Path:
        """What the running embedded server says of itself: url, pid, start_time, version."""
        return self.home / "server.json"

    @property
    def server_log(self) -> Path:
        return self.home / "server.log"


def read(environ: Mapping[str, str] | None = None) -> Settings:
    """Read TORCHYARD_HOME, TORCHYARD_URL, TORCHYARD_TOKEN and TORCHYARD_WORKSPACE."""
    values = os.environ if environ is None else environ
    home = values.get("TORCHYARD_HOME") or "~/.torchyard"
    return Settings(
        home=Path(home).expanduser().absolute(),
        url=values.get("TORCHYARD_URL", "").rstrip("/"),
        token=values.get("TORCHYARD_TOKEN", ""),
        workspace=values.get("TORCHYARD_WORKSPACE", ""),
    )
