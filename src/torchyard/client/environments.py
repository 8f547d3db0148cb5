"""Environments that jobs of the workspace may name, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchyard.base.errors import BuildFailed
from torchyard.base.http import Transport
from torchyard.client.responses import Paths, Record, Records, Rows

if TYPE_CHECKING:
    from torchyard.client.snapshots.snapshots import Snapshots

_POLL_S = 0.3


class Environments:
    """Environments that jobs of the workspace may name.

    Example::

        client.environments.create({"name": "mine", "pip_requirements": ["torch==2.13.0"]})
        client.environments.build("mine@latest", print)
    """

    def __init__(self, transport: Transport, here: str, snapshots: Snapshots) -> None:
        self._transport = transport
        self._snapshots = snapshots
        self._here = f"{here}/environments"

    def create(self, document: Mapping[str, Any], folder: Path | None = None) -> Record:
        """Register a version of `document["name"]`, the next one unless it names one.

        Args:
            document: name, and one of `image`, `image` with `conda_file`, `conda_file`,
                `pip_requirements`, `build`; files in it are relative to `folder`.
            folder: the current one when None.

        Raises:
            InvalidSpec: a key that can't be honoured.
            Conflict: the version it names exists with another content.
        """
        return Record(self._transport.post(self._here, self.uploaded(document, folder)))

    def uploaded(self, document: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
        """The document with the files that it names read into it, and its build context sent."""
        from torchyard.client.snapshots.job_files import find_environment

        files = find_environment(document, folder or Path.cwd(), self._snapshots.limits)
        return self._snapshots.send_job_files(files)

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

    def export(self, environment: str | Mapping[str, Any], format: str = "dockerfile") -> Record:
        """The environment as a file for elsewhere: `text`, and `file`, how it is called.

        `source` is `lock` for one that was built: then every package has its version; else
        `definition`. `notices` say what the file can't.

        Args:
            format: `dockerfile`, `requirements` or `conda`.

        Raises:
            InvalidInput: no such format, or it can't hold what is in the environment.
        """
        body = {"environment": environment, "format": format}
        return Record(self._transport.post(f"{self._here}/export", body))

    def definition(self, name: str) -> Record:
        """What a named environment is defined by, as `definition`; curated ones have theirs, too.

        Raises:
            NotFound: no environment has the name.
        """
        return Record(self._transport.post(f"{self._here}/definition", {"environment": name}))

    def clone(self, name: str, new_name: str) -> Record:
        """Register the next version of `new_name` with the content of the environment `name`.

        Raises:
            InvalidSpec: `new_name` is reserved for curated environments.
            NotFound: no environment has the name.
        """
        body = {"environment": name, "name": new_name}
        return Record(self._transport.post(f"{self._here}/clone", body))

    def save_to_directory(
        self,
        name: str,
        directory: Path | str,
        *,
        overwrite: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> Paths:
        """Write the files that azureml-core's `Environment.load_from_directory` reads.

        Args:
            name: of the environment, maybe with its version, `vision:3`.
            say: is told when another environment takes the place of a published one.

        Raises:
            Conflict: the directory is there, and `overwrite` is false.
            NotFound: no environment has the name.
        """
        from torchyard.client import environment_folders

        found = self.definition(name)
        for notice in found["notices"]:
            say(notice)
        return environment_folders.save(
            Path(directory), found["name"], found["version"], found["definition"], overwrite
        )

    def load_from_directory(
        self, directory: Path | str, say: Callable[[str], None] = lambda text: None
    ) -> dict[str, Any]:
        """The document that `save_to_directory`, or azureml-core's, wrote: `create` takes it, and
        so does a job as its environment.

        Args:
            say: is told what the files say and an environment here can't hold.

        Raises:
            NotFound: the directory holds no environment.
        """
        from torchyard.client import environment_folders

        return environment_folders.load(Path(directory), say)

    def use(self, environment: str | Mapping[str, Any]) -> Record:
        """Where a built environment lies on the server's machine: `folder`, read-only, and `lock`,
        a file whose shared lock keeps the folder.

        Raises:
            NotFound: it is not built.
        """
        return Record(self._transport.post(f"{self._here}/use", {"environment": environment}))

    def _container(self, name: str, version: str) -> str:
        return self._of(name, version) if version else f"{self._here}/{quote(name, safe='')}"

    def _of(self, name: str, version: str) -> str:
        return f"{self._here}/{quote(name, safe='')}/versions/{quote(version, safe='')}"
