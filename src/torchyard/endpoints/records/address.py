"""Where the router listens, as it is remembered in the home.

Owns: the file `HOME/router/address.json`, and the addresses below it.
Leaves: starting the router and choosing its port to running/.
Always: the file is replaced whole; without it endpoints have no address yet.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from torchyard.base import files


def write(home: Path, url: str) -> None:
    """
    Args:
        url: `http(s)://HOST:PORT`, as callers reach it.
    """
    _file(home).parent.mkdir(mode=0o700, exist_ok=True)
    with files.write_atomically(_file(home)) as file:
        file.write(json.dumps({"url": url}).encode())


def read(home: Path) -> str:
    """`http(s)://HOST:PORT`; empty where no router has been started yet."""
    try:
        url = json.loads(_file(home).read_bytes())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return url.rstrip("/") if isinstance(url, str) else ""


def of_endpoint(home: Path, workspace: str, name: str) -> str:
    """`http(s)://HOST:PORT/endpoints/WORKSPACE/NAME`; empty without a router."""
    url = read(home)
    return url and f"{url}/endpoints/{quote(workspace, safe='')}/{quote(name, safe='')}"


def _file(home: Path) -> Path:
    return home / "router" / "address.json"
