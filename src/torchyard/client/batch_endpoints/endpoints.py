"""Batch endpoints, over HTTP.

Owns: invoking them, and what an invocation uploads.
Leaves: the verbs of every endpoint to endpoints/verbs.py, finding, hashing and sending files to
snapshots/, jobs to jobs.py.
Always: an error carries the place in the invocation's document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import TorchyardError
from torchyard.base.http import Transport
from torchyard.client.endpoints.verbs import Endpoints
from torchyard.client.resources import Json, Listing, Resource

if TYPE_CHECKING:
    from torchyard.client.job import Job, JobSummary
    from torchyard.client.job_reader import JobReader
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchEndpoint(Resource):
    """`default_deployment` scores where an invocation names none; empty before the first one."""

    name: str
    state: str
    default_deployment: str
    owner: str

    _shown = ("name", "default_deployment")


class BatchEndpoints(Endpoints[BatchEndpoint]):
    """Batch endpoints of the workspace; `client.batch_endpoints` is one.

    Example::

        job = client.batch_endpoints.invoke("digits", "./images")
        job.wait()
        job.download(output_name="score")
    """

    kind = "batch-endpoints"

    def __init__(
        self,
        transport: Transport,
        workspace_path: str,
        snapshots: Snapshots,
        jobs: JobReader,
    ) -> None:
        super().__init__(transport, workspace_path)
        self._snapshots = snapshots
        self._jobs = jobs

    def delete(self, name: str) -> None:
        """Delete an endpoint with its deployments; its jobs stay."""
        self._transport.delete(self._at(name))

    def invoke(
        self,
        name: str,
        data: str | Mapping[str, Any] | None = None,
        document: Mapping[str, Any] | None = None,
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Job:
        """Score files by a job; returns at once.

        Args:
            data: a folder, a file, a reference or a URL; or an input as a job's file has it.
            document: what else an invocation may say, such as `deployment_name`.
            folder: what local paths are relative to; the current one when None.
            progress: called as files are uploaded.

        Raises:
            InvalidInput: the document is wrong; `at` says where.
            NotFound: no such endpoint, deployment or data.
        """
        from torchyard.client.job import job_from_json

        body = dict(document or {})
        if data is not None:
            body["inputs"] = {"data": {"path": data} if isinstance(data, str) else dict(data)}
        body = self._uploaded(body, folder or Path.cwd(), progress)
        raw = self._transport.post(f"{self._at(name)}/jobs", body)
        return job_from_json(raw, self._jobs)

    def list_jobs(self, name: str, deployment: str = "") -> Listing[JobSummary]:
        """The jobs of the endpoint, or of one of its deployments, the newest first."""
        from torchyard.client.job import summary_from_json

        query = {"deployment_name": deployment} if deployment else None
        rows = self._transport.get(f"{self._at(name)}/jobs", query)["value"]
        return Listing(summary_from_json(row, self._jobs) for row in rows)

    def _uploaded(
        self, body: dict[str, Any], folder: Path, progress: Progress | None
    ) -> dict[str, Any]:
        """The document with a snapshot for a local path; a file is a `uri_file` by itself."""
        from torchyard.client.snapshots import job_files

        inputs = body.get("inputs")
        if not isinstance(inputs, Mapping):
            return body
        inputs = {key: _with_type(value, folder) for key, value in inputs.items()}
        literal_inputs = {key: value for key, value in inputs.items() if isinstance(value, dict)}
        try:
            files = job_files.find(
                {"command": "true", "inputs": literal_inputs}, folder, self._snapshots.limits
            )
            sent = self._snapshots.send_job_files(files, progress)
        except TorchyardError as error:
            for each in (error, *error.others):
                if each.at[:1] != ("inputs",):
                    each.at = ("inputs",)
            raise
        return {**body, "inputs": {**inputs, **sent["inputs"]}}

    def _endpoint(self, raw: Json) -> BatchEndpoint:
        return BatchEndpoint(
            raw=raw,
            name=raw["name"],
            state=raw["provisioning_state"],
            default_deployment=raw["defaults"]["deployment_name"],
            owner=raw["owner"],
        )


def _with_type(value: Any, folder: Path) -> Any:
    from torchyard.client.snapshots import local_paths

    if isinstance(value, str):
        value = {"path": value}
    if not isinstance(value, Mapping):
        return value
    written = dict(value)
    path = written.get("path")
    if "type" not in written and isinstance(path, str) and path:
        is_here = not local_paths.is_elsewhere(path)
        if is_here and local_paths.local_path(path, folder).is_file():
            written["type"] = "uri_file"
    return written
