"""Environments that jobs of the workspace may name, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchyard.answers import Record, Records, Rows
from torchyard.base.errors import BuildFailed
from torchyard.base.http import Transport

_POLL_S = 0.3


class Environments:
    """Environments that jobs of the workspace may name.

    Example::

        client.environments.create({"name": "mine", "pip_requirements": ["torch==2.13.0"]})
        client.environments.build("mine@latest", print)
    """

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = f"{here}/environments"

    def create(self, document: Mapping[str, Any], folder: Path | None = None) -> Record:
        """Register a version of `document["name"]`, the next one unless it names one.

        Args:
            document: name, and one of `image`, `image` with `conda_file`, `conda_file`,
                `pip_requirements`; files in it are relative to `folder`.
            folder: the current one when None.

        Raises:
            InvalidSpec: a key that can't be honoured.
            Conflict: the version it names exists with another content.
        """
        from torchyard.snapshots.job_files import environment_files

        asked = environment_files(document, folder or Path.cwd())
        return Record(self._transport.post(self._here, asked))

    def list(self, name: str = "", *, archived: bool = False) -> Rows:
        """Curated ones and the workspace's own, the latest of each; with `name`, its versions."""
        query = {"name": name or None, "archived": "true" if archived else None}
        answer = self._transport.get(self._here, query)
        return Records(Record(row) for row in answer["value"])

    def get(self, name: str, version: str = "latest") -> Record:
        """
        Raises:
            NotFound: there is no such environment, or not in this version.
        """
        return Record(self._transport.get(self._of(name, version)))

    def archive(self, name: str, version: str = "") -> None:
        """Hide a version, or all of them, from lists; jobs that name it still find it."""
        self._transport.post(f"{self._container(name, version)}/archive")

    def restore(self, name: str, version: str = "") -> None:
        """Take back `archive`."""
        self._transport.post(f"{self._container(name, version)}/restore")

    def resolve(self, environment: str | Mapping[str, Any]) -> Record:
        """What a reference or an inline definition becomes here: packages, notices, its build."""
        body = {"environment": environment}
        return Record(self._transport.post(f"{self._here}/resolve", body))

    def build(
        self,
        environment: str | Mapping[str, Any],
        log: Callable[[str], None] = lambda text: None,
    ) -> Record:
        """Build it now, unless it is there; returns when it is.

        Args:
            log: gets the build's log as it is written.

        Raises:
            BuildFailed: names the package at fault.
        """
        found = self._transport.post(f"{self._here}/build", {"environment": environment})
        while True:
            if found["log"]:
                log(found["log"])
            if found["status"] != "building" and not found["log"]:
                break
            if found["status"] == "building":
                time.sleep(_POLL_S)
            query = {"offset": str(found["next_offset"])}
            found = self._transport.get(f"{self._here}/builds/{found['hash']}", query)
        if found["status"] != "ready":
            raise BuildFailed(found["error"] or "the build was broken off", found["hint"])
        return self.resolve(environment)

    def _container(self, name: str, version: str) -> str:
        return self._of(name, version) if version else f"{self._here}/{quote(name, safe='')}"

    def _of(self, name: str, version: str) -> str:
        return f"{self._here}/{quote(name, safe='')}/versions/{quote(version, safe='')}"
