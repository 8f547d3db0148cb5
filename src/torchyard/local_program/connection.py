"""From the program of a local run to the server.

Owns: the addresses below the run, logs as JSON, files by their signed addresses.
Leaves: connections and what an answer means to worker/server/connection.py.
Always: the user's token goes to the server that it is of, and to no other. Runs on the user's
machine on Python 3.9 and later, with the standard library and the worker's modules.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.worker.server.connection import Link, Refused

_SECRETS = {"MSI_ENDPOINT": "MSI_SECRET", "IDENTITY_ENDPOINT": "IDENTITY_HEADER"}
_TIMEOUT_S = 60.0


class RunLink(Link):
    """A worker's line, whose paths are below a local run.

    Args:
        path: of the run, as the client writes it.
    """

    def __init__(self, server: str, token: str, path: str) -> None:
        super().__init__(server, token, "")
        self._path = path

    def send(
        self,
        method: str,
        path: str,
        content: Any,
        query: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """As `Link.send`; a piece of a log becomes JSON, for Azure's paths take nothing else."""
        if path == "/logs":
            told = {**(query or {}), "content": base64.b64encode(content).decode()}
            content, query = json.dumps(told).encode(), None
        return super().send(method, path, content, query, timeout_s, content_type)


def token(server: str, variables: Mapping[str, str]) -> str:
    """The user's token, as `yard client-env` has put it there; empty when it has not.

    Args:
        server: as the client named it, `https://host:port`.
    """
    for address, secret in _SECRETS.items():
        if variables.get(address, "").startswith(f"{server}/"):
            return variables.get(secret, "")
    return ""


def put(url: str, file: Path) -> None:
    """Send a file to a signed address; one that can't be read any more is left out.

    Raises:
        OSError: the server is away; try again.
        Refused: it says no.
    """
    try:
        content = open(file, "rb")
    except OSError as error:
        print(f"{file} is not sent: {error}")
        return
    with content:
        size = os.fstat(content.fileno()).st_size
        headers = {
            "x-ms-blob-type": "BlockBlob",
            "content-length": str(size),
            "content-type": "application/octet-stream",
        }
        _answered(urllib.request.Request(url, content if size else b"", headers, method="PUT"))


def get(url: str, target: Path) -> None:
    """Fetch the file of a signed address; its folder is made.

    Raises:
        OSError: the server is away; try again.
        Refused: it says no.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.part")
    _answered(urllib.request.Request(url), draft)
    draft.replace(target)


def _answered(request: urllib.request.Request, target: Path | None = None) -> None:
    try:
        # Through no proxy: `yard client-env` names a server that is reached without.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            if target is not None:
                with open(target, "wb") as file:
                    shutil.copyfileobj(answer, file, 1 << 20)
    except urllib.error.HTTPError as error:
        text = error.read(1000).decode("utf-8", "replace")
        if error.code >= 500 or error.code == 429:
            raise OSError(f"server not ready: {error.code} {text}") from error
        raise Refused(error.code, {"text": text}) from error


def enough_after(seconds: float) -> Callable[[], bool]:
    """For `patiently`: whether the server was waited for so long."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until
