"""The Python SDK: the nouns of a workspace over HTTP.

Owns: which request each verb is, connecting, downloads that are whole or not there.
Leaves: HTTP to base/http.py, snapshots to snapshots/, the embedded server to embedded.py.
Always: results are the server's JSON objects as plain dicts, typed in answers.py; an
error is a `TorchyardError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchyard.answers import Job, JobSummary, OutputFiles, Paths, RemoteFiles, Rows
from torchyard.base import settings as base_settings
from torchyard.base.errors import InvalidInput, NotAuthenticated, NotFound
from torchyard.base.http import Transport
from torchyard.base.settings import DEFAULT_WORKSPACE, Settings
from torchyard.downloads import below, download_file

# What takes time to import and is not asked for by most commands is imported where it is used.
if TYPE_CHECKING:
    from torchyard.follow import Cursor, Frame
    from torchyard.snapshots.job_files import JobFiles
    from torchyard.snapshots.snapshot import Snapshot
    from torchyard.snapshots.upload import Progress
    from torchyard.snapshots.walk import Limits


class Client:
    """One workspace of one server; not for use by several threads at once.

    `connect()` makes one. The nouns: `jobs`, `computes`, `models`, `workspaces`, `environments`.
    """

    def __init__(self, transport: Transport, workspace: str, settings: Settings) -> None:
        self.transport = transport
        self.workspace = workspace
        here = f"/v1/workspaces/{quote(workspace, safe='')}"
        self.snapshots = Snapshots(transport, here, settings)
        self.jobs = Jobs(transport, here, workspace, self.snapshots)
        self.computes = Computes(transport, here)
        self.models = Models(transport, here, self.snapshots)
        self.environments = Environments(transport, here)
        self.workspaces = Workspaces(transport)

    def close(self) -> None:
        self.transport.close()


def connect(
    settings: Settings | None = None,
    workspace: str = "",
    on_start: Callable[[], None] | None = None,
) -> Client:
    """A client for TORCHYARD_URL, or for the server of this machine, started when none runs.

    Args:
        settings: read from the environment when None.
        workspace: the settings' own, then `default`, when empty.
        on_start: called when a server has to be started, which takes a second or two.

    Raises:
        NotAuthenticated: TORCHYARD_URL is set and TORCHYARD_TOKEN is not.
        Unreachable: no server answers, or none could be started.
    """
    settings = settings or base_settings.read()
    name = workspace or settings.workspace or DEFAULT_WORKSPACE
    if settings.url:
        if not settings.token:
            raise NotAuthenticated(
                f"no token for the server `{settings.url}`",
                "set TORCHYARD_TOKEN, or unset TORCHYARD_URL to use the server of this machine",
            )
        return Client(Transport(settings.url, settings.token), name, settings)
    from torchyard import embedded

    running = embedded.ensure(settings, on_start=on_start)
    return Client(Transport(running.url, embedded.token(settings)), name, settings)


class Snapshots:
    """Folders and files on their way to the server."""

    def __init__(self, transport: Transport, here: str, settings: Settings) -> None:
        self._transport = transport
        self._here = here
        self._index_folder = settings.home / "cache" / "snapshots"
        self._settings = settings

    @property
    def limits(self) -> Limits:
        """For code folders."""
        from torchyard.snapshots.walk import Limits

        return Limits(self._settings.snapshot_max_files, self._settings.snapshot_max_mb << 20)

    def take(self, place: Path) -> Snapshot:
        """Snapshot the folder or file at `place`, all of it."""
        from torchyard.snapshots import snapshot
        from torchyard.snapshots.walk import Limits

        return snapshot.take(place, snapshot.find(place, Limits()), self._index_folder)

    def send(self, snapshot: Snapshot, progress: Progress | None = None) -> str:
        """Upload what the server lacks of `snapshot`; returns its id."""
        from torchyard.snapshots.upload import upload

        try:
            return upload(snapshot, self, progress)
        except BaseException:
            # A body that broke off half-way leaves the connection unusable.
            self._transport.close()
            raise

    def send_job_files(self, files: JobFiles, progress: Progress | None = None) -> dict[str, Any]:
        """Upload what a job document names on this machine; returns the document to post."""
        return files.with_snapshots(lambda path: self.send(path.take(self._index_folder), progress))

    def missing(self, hashes: list[str]) -> list[str]:
        answer = self._transport.post(f"{self._here}/blobs/missing", {"sha256": hashes})
        return list(answer["missing"])

    def put(self, sha256: str, chunks: Iterable[bytes], size_bytes: int) -> None:
        self._transport.send("PUT", f"{self._here}/blobs/{sha256}", chunks, size_bytes)

    def put_bundle(self, bundle: bytes) -> None:
        self._transport.send("POST", f"{self._here}/blobs", bundle, len(bundle))

    def put_snapshot(self, manifest: bytes) -> str:
        path = f"{self._here}/snapshots"
        stored = self._transport.send("PUT", path, manifest, content_type="application/json")
        return str(stored["id"])


class Jobs:
    """Jobs of the workspace."""

    def __init__(
        self, transport: Transport, here: str, workspace: str, snapshots: Snapshots
    ) -> None:
        self._transport = transport
        self._here = f"{here}/jobs"
        self._workspace = workspace
        self._snapshots = snapshots

    def create(
        self,
        document: Mapping[str, Any],
        folder: Path | None = None,
        *,
        name: str = "",
        progress: Progress | None = None,
    ) -> Job:
        """Submit the job that `document` describes, as a job file does; returns at once.

        Nothing is uploaded before the server has found the document valid.

        Args:
            document: the job file's mapping, local paths in it relative to `folder`.
            folder: the current one when None.
            name: the job's name when the document has none.

        Raises:
            InvalidSpec: the document is wrong; `at` says where.
            Conflict: another job has this name.
        """
        from torchyard.snapshots import job_files

        asked = dict(document)
        if name:
            asked["name"] = name
        if not asked.get("experiment_name"):
            asked["experiment_name"] = default_experiment(Path.cwd())
        files = job_files.find(asked, folder or Path.cwd(), self._snapshots.limits)
        if files.paths:
            self.validate(files.document)
        return self._post(self._snapshots.send_job_files(files, progress))

    def _post(self, document: Mapping[str, Any]) -> Job:
        job: Job = self._transport.post(self._here, document)
        return job

    def validate(self, document: Mapping[str, Any]) -> None:
        """Ask the server whether `document` is a job; local paths may stand as `local:<path>`.

        Raises:
            InvalidSpec: it is not; `at` says where.
        """
        self._transport.post(f"{self._here}/validate", document)

    def list(
        self, *, experiment_name: str = "", status: str = "", max_results: int = 50
    ) -> list[JobSummary]:
        """The newest `max_results` jobs, newest first."""
        found: list[JobSummary] = []
        before = None
        while len(found) < max_results:
            answer = self._transport.get(
                self._here,
                {
                    "experiment_name": experiment_name or None,
                    "status": status or None,
                    "limit": min(max_results - len(found), 1000),
                    "before": before,
                },
            )
            found += answer["value"]
            before = answer.get("next")
            if not before or not answer["value"]:
                break
        return found[:max_results]

    def get(self, name: str) -> Job:
        """
        Raises:
            NotFound: no job has this name.
        """
        job: Job = self._transport.get(self._of(name))
        return job

    def cancel(self, name: str) -> Job:
        """Ask for the job's end; a job that has ended stays as it is."""
        job: Job = self._transport.post(f"{self._of(name)}/cancel")
        return job

    def follow(
        self,
        name: str,
        cursor: Cursor | None = None,
        on_lost: Callable[[float], None] | None = None,
    ) -> Iterator[Frame]:
        """The job's events and log bytes from `cursor` on, live, each once, until it has ended.

        A lost connection or server is waited for; see follow.py.
        """
        from torchyard.follow import Answer, follow

        def open_stream(at: Cursor) -> AbstractContextManager[Answer]:
            return self._transport.stream(
                f"{self._of(name)}/stream",
                {
                    "after": at.after or None,
                    "offsets": json.dumps(at.offsets) if at.offsets else None,
                },
            )

        return follow(open_stream, cursor, on_lost=on_lost)

    def files(self, name: str) -> RemoteFiles:
        """The job's artifacts and logs: `outputs/…`, `user_logs/…`, `logs/…`."""
        found: RemoteFiles = self._transport.get(f"{self._of(name)}/files")["value"]
        return found

    def outputs(self, name: str) -> OutputFiles:
        """The files of the job's named outputs."""
        found: OutputFiles = self._transport.get(f"{self._of(name)}/outputs")["value"]
        return found

    def metrics(self, name: str) -> dict[str, Rows]:
        """Every point: by key, `step`, `timestamp` in milliseconds and `value`."""
        found: dict[str, Any] = self._transport.get(f"{self._of(name)}/metrics")["metrics"]
        return found

    def download(
        self, name: str, folder: Path, *, output_name: str = "", everything: bool = False
    ) -> Paths:
        """Download into `folder`, as Azure ML does: artifacts to `artifacts/`, a named output to
        `named-outputs/<output>/`. Returns the files written.

        Args:
            output_name: this output and no artifacts.
            everything: the artifacts and all named outputs.

        Raises:
            NotFound: the job has no such output.
        """
        written = []
        if not output_name:
            for file in self.files(name):
                source = f"{self._of(name)}/files/{quote(file['path'])}"
                target = below(folder / "artifacts", file["path"])
                written.append(download_file(self._transport, source, target))
        if output_name or everything:
            outputs = self.outputs(name)
            if output_name and output_name not in {file["output"] for file in outputs}:
                known = sorted({file["output"] for file in outputs})
                raise NotFound(
                    f"job `{name}` has no output `{output_name}` with files in it",
                    f"it has: {', '.join(known)}" if known else "it has no named outputs",
                )
            for output in outputs:
                if output_name and output["output"] != output_name:
                    continue
                label = output["output"]
                source = f"{self._of(name)}/outputs/{quote(label)}/{quote(output['path'])}"
                target = below(folder / "named-outputs" / label, output["path"])
                written.append(download_file(self._transport, source, target))
        return written

    def _of(self, name: str) -> str:
        return f"{self._here}/{quote(name, safe='')}"


class Computes:
    """Clusters of the workspace."""

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = f"{here}/computes"

    def create(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Create or change the cluster `document["name"]`; keys as in Azure ML's amlCompute."""
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput("a compute needs a name", "give one with `--name`", at=("name",))
        created: dict[str, Any] = self._transport.put(self._of(name), dict(document))
        return created

    def list(self) -> Rows:
        found: Rows = self._transport.get(self._here)["value"]
        return found

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get(self._of(name))
        return found

    def delete(self, name: str) -> None:
        self._transport.delete(self._of(name))

    def _of(self, name: str) -> str:
        return f"{self._here}/{quote(name, safe='')}"


class Models:
    """Registered models of the workspace."""

    def __init__(self, transport: Transport, here: str, snapshots: Snapshots) -> None:
        self._transport = transport
        self._here = f"{here}/models"
        self._snapshots = snapshots

    def create(self, document: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
        """Register a version of the model `document["name"]`.

        Args:
            document: name, path and maybe version, type, description, tags; the path is
                `azureml://jobs/…` or names something on this machine, relative to `folder`.
        """
        from torchyard.snapshots.job_files import is_elsewhere, local_path

        asked = dict(document)
        path = asked.get("path")
        if isinstance(path, str) and path and not is_elsewhere(path):
            place = local_path(path, folder or Path.cwd())
            if not place.exists():
                raise InvalidInput(
                    f"the path `{path}` does not exist",
                    "name a file or folder, or `azureml://jobs/<job>/outputs/artifacts/paths/…`",
                    at=("path",),
                )
            asked["path"] = f"snapshot:{self._snapshots.send(self._snapshots.take(place))}"
        created: dict[str, Any] = self._transport.post(self._here, asked)
        return created

    def list(self, name: str = "") -> Rows:
        """The latest version of each model; with `name`, all its versions."""
        answer = self._transport.get(self._here, {"name": name or None})
        found: Rows = answer["value"]
        return found

    def get(self, name: str, version: str = "latest") -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get(self._of(name, version))
        return found

    def download(self, name: str, version: str, folder: Path) -> Paths:
        """Download to `folder/<name>/…`; returns the files written."""
        files: RemoteFiles = self._transport.get(f"{self._of(name, version)}/files")["value"]
        return [
            download_file(
                self._transport,
                f"{self._of(name, version)}/files/{quote(file['path'])}",
                below(folder / name, file["path"]),
            )
            for file in files
        ]

    def _of(self, name: str, version: str) -> str:
        return f"{self._here}/{quote(name, safe='')}/versions/{quote(version, safe='')}"


class Environments:
    """Environments that jobs of the workspace may name."""

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = f"{here}/environments"

    def list(self) -> Rows:
        found: Rows = self._transport.get(self._here)["value"]
        return found


class Workspaces:
    """Workspaces of the server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Rows:
        answer = self._transport.get("/v1/workspaces")
        found: Rows = answer["value"] if isinstance(answer, dict) else answer
        return found

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get(f"/v1/workspaces/{quote(name, safe='')}")
        return found


def default_experiment(folder: Path) -> str:
    """The experiment of a job that names none: the folder's name, as far as it is allowed."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", folder.name).lstrip("_-")[:255]
    return name or "Default"
