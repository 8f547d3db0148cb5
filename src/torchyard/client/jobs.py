"""Jobs of the workspace, over HTTP.

Owns: which request each verb is, the order of a submission.
Leaves: local files to snapshots/, what a job wrote to job_reader.py, `Job` and its verbs to job.py.
Always: nothing is uploaded or cloned before the server has found the document valid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from torchyard.base import clock
from torchyard.base.documents.checks import At
from torchyard.base.documents.faults import joined, reaches
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.job import Job, JobStatus, JobSummary, job_from_json, summary_from_json
from torchyard.client.job_reader import JobReader
from torchyard.client.resources import Json, Listing, Resource

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torchyard.client.interactive.job_services import JobService
    from torchyard.client.interactive.shells import RunningShell, ShellOptions
    from torchyard.client.job_documents import JobDocument
    from torchyard.client.snapshots.job_files import JobFiles
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress

_PAGE, _LONG_PAGE = 1000, 100
Paths = list[Path]
Strings = list[str]
# What belongs to one job alone.
_NOT_CLONED = ("name", "display_name")
_CLONED_FROM = "torchyard.cloned_from"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CodeFile(Resource):
    """A file of a job's code snapshot; `mode` is 420 or 493, as 0o644 and 0o755."""

    path: str
    sha256: str
    size_bytes: int
    mode: int

    _shown = ("path", "size_bytes")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NodeReport(Resource):
    """What a node of a job found out before the ranks started.

    `raw` holds all of it: `facts`, `findings`, `ways` to the other nodes; None where the node has
    not reported yet.
    """

    node: int
    address: str
    state: str

    _shown = ("node", "address", "state")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KeptJob(Resource):
    """A job that is not deleted, and why."""

    name: str
    reason: str
    hint: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JobSize(Resource):
    """What deleting a job would remove; `points` are those of its metrics."""

    name: str
    status: JobStatus
    files: int
    size_bytes: int
    points: int


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Deletion(Resource):
    """What a deletion did, or would do.

    Args:
        deleted: names of the deleted jobs, children among them; empty for a dry run.
        pending: those of them whose files are still being removed.
        jobs: of a dry run, what would be deleted.
        kept: jobs that must stay.
    """

    deleted: tuple[str, ...]
    pending: tuple[str, ...]
    jobs: tuple[JobSize, ...]
    kept: tuple[KeptJob, ...]

    _shown = ("deleted", "jobs", "kept")


class Jobs(JobReader):
    """Jobs of the workspace.

    Example::

        job = client.jobs.create(command(command="python train.py", code=".", environment="python"))
        job.stream()
        client.jobs.get(job.name).last_metrics
    """

    def __init__(self, transport: Transport, workspace_path: str, snapshots: Snapshots) -> None:
        super().__init__(transport, workspace_path)
        self._snapshots = snapshots

    def create(
        self,
        document: Mapping[str, Any] | JobDocument,
        folder: Path | None = None,
        *,
        name: str = "",
        reuse: bool = True,
        progress: Progress | None = None,
    ) -> Job:
        """Submit a job; returns at once.

        The same document with the same name again submits nothing: it is the job that exists, and
        `was_submitted` is False.

        Args:
            document: what `command()` or a `@pipeline` built, or a job file's mapping.
            folder: what local paths are relative to; the current one when None.
            name: the job's name when the document has none.
            reuse: False runs every step of a pipeline, as `force_rerun` under its `settings` does.
            progress: called as files are uploaded.

        Raises:
            InvalidInput: the document is wrong; `at` says where.
            Conflict: another job has this name.
        """
        body = _document(document)
        if not reuse:
            _force_rerun(body)
        return self._send(self._path, body, folder, name, progress)

    def retry(
        self,
        name: str,
        document: Mapping[str, Any] | JobDocument | None = None,
        folder: Path | None = None,
        *,
        new_name: str = "",
        progress: Progress | None = None,
    ) -> Job:
        """Submit a pipeline that has ended again: steps that had completed are kept.

        Args:
            document: the pipeline, mended; its own as it was when None.
            folder: what local paths are relative to; the current one when None.
            new_name: the new pipeline's name when the document has none.
            progress: called as files are uploaded.

        Raises:
            Conflict: it has not ended, or another job has the name.
            InvalidInput: the document is wrong, or the job is not a pipeline.
        """
        path = f"{self._path.removesuffix('/jobs')}/pipelines/{quote(name, safe='')}/retry"
        if document is not None:
            return self._send(path, document, folder, new_name, progress)
        query = {"new_name": new_name} if new_name else None
        return self._job(self._transport.call("POST", path, query=query))

    def _send(
        self,
        path: str,
        document: Mapping[str, Any] | JobDocument,
        folder: Path | None,
        name: str,
        progress: Progress | None,
    ) -> Job:
        body = _document(document)
        if name:
            body["name"] = name
        if not body.get("experiment_name"):
            body["experiment_name"] = default_experiment(Path.cwd())
        limits = self._snapshots.limits
        files = self._find(body, folder or Path.cwd())
        with files.locating(), files.with_code(limits) as ready:
            if files.paths or files.clones:
                self._check(files.document)
            sent = self._snapshots.send_job_files(ready, progress)
            return self._job(self._transport.post(path, sent))

    def get(self, name: str) -> Job:
        """One job.

        Raises:
            NotFound: no job has this name.
        """
        return self._job(self.document(name))

    def wait(self, name: str, timeout_s: float | None = None, *, check: bool = False) -> Job:
        """Wait until the job has ended; see `Job.wait`."""
        return self.get(name).wait(timeout_s, check=check)

    def stream(
        self,
        name: str,
        rank: int | None = None,
        *,
        timeout_s: float | None = None,
        out: BinaryIO | None = None,
    ) -> Job:
        """Print the job's output until it has ended; see `Job.stream`."""
        return self.get(name).stream(rank, timeout_s=timeout_s, out=out)

    def validate(
        self, document: Mapping[str, Any] | JobDocument, folder: Path | None = None
    ) -> Strings:
        """Find what is wrong with a job, and upload nothing; returns the notices it would get.

        Raises:
            InvalidInput: the document is wrong; `at` says where.
        """
        body = _document(document)
        if not body.get("experiment_name"):
            body["experiment_name"] = default_experiment(Path.cwd())
        files = self._find(body, folder or Path.cwd())
        with files.locating():
            return self._check(files.document)

    def clone(
        self,
        name: str,
        changes: Mapping[str, Any] | None = None,
        *,
        set: Mapping[str, Any] | None = None,
    ) -> Job:
        """Submit job `name` once more, with its snapshot, its display name and all.

        The new job's property `torchyard.cloned_from` names the one that it was made of.

        Args:
            changes: whole keys of the document that are to be different; a new `name` among them,
                else one is made up.
            set: single values by their paths, as `yard job clone --set` takes them.

        Raises:
            InvalidInput: a path leads to nothing, or the changed document is wrong.

        Example::

            client.jobs.clone("brave-otter", set={"inputs.epochs": 1, "tags.try": "2"})
        """
        from torchyard.base import assignments

        job = self.document(name)
        document = {key: value for key, value in job["spec"].items() if key not in _NOT_CLONED}
        if job.get("display_name") not in (None, "", name):
            document["display_name"] = job["display_name"]
        document |= changes or {}
        for path, value in (set or {}).items():
            steps = assignments.steps_of(path)
            if not steps:
                raise InvalidInput(
                    f"`{path}` is not the path of a value", "write it as `inputs.epochs`"
                )
            assignments.assign(document, steps, value, path)
        properties = document.get("properties") or {}
        if isinstance(properties, Mapping):  # otherwise the server reports the error
            document["properties"] = {**properties, _CLONED_FROM: name}
        return self.create(document)

    def list(
        self,
        *,
        experiment_name: str = "",
        status: str = "",
        parent_job_name: str = "",
        type: str = "",
        tags: Mapping[str, str | None] | None = None,
        owner: str = "",
        text: str = "",
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        sort: str = "",
        descending: bool = False,
        columns: Sequence[str] = (),
        max_results: int | None = 50,
        archived: bool = False,
        only_archived: bool = False,
    ) -> Listing[JobSummary]:
        """Jobs that meet all conditions, newest first or sorted.

        Args:
            parent_job_name: only the children of this job.
            type: `command`, `sweep`, `pipeline`, or `run` for runs logged outside of a job.
            tags: each with its value, or None for any value.
            text: part of the name, the display name or the description, in any case.
            created_after, created_before: times without a zone are in this machine's.
            sort: `metrics.loss` (its last value), `params.x`, `inputs.lr`, `tags.team`, `name`,
                `display_name`, `owner`, `created_at`, `duration_s`; jobs without it come last.
            descending: the largest first.
            columns: `metrics.loss`, `params.x`, `inputs.lr`, or `metrics`, `params`, `inputs` for
                all of them, or `waiting`, why a job waits; each job's `columns` has their values.
            max_results: None for all.
            archived, only_archived: archived ones too; no others.

        Raises:
            InvalidInput: jobs have no such column, or can't be sorted by it.
            NotFound: no such experiment or parent.

        Example::

            best = client.jobs.list(sort="metrics.loss", columns=["metrics.loss", "inputs.lr"])
            [(job.name, job.columns["metrics.loss"]) for job in best]
        """
        query = {
            "experiment_name": experiment_name or None,
            "status": status or None,
            "parent": parent_job_name or None,
            "type": type or None,
            "tag": _tags(tags or {}) or None,
            "owner": owner or None,
            "text": text or None,
            "created_after": clock.to_text(created_after) if created_after else None,
            "created_before": clock.to_text(created_before) if created_before else None,
            "sort": sort or None,
            "descending": "true" if descending else None,
            "column": list(columns) or None,
            "archived": "only" if only_archived else "true" if archived else None,
        }
        return self._pages(query, max_results, _page_size(columns))

    def update(
        self,
        name: str,
        *,
        display_name: str | None = None,
        description: str | None = None,
        tags: Mapping[str, str | None] | None = None,
        experiment_name: str | None = None,
    ) -> Job:
        """Change how a job is described; what is None stays as it is.

        Args:
            tags: merged with those it has; a tag of value None is removed.
            experiment_name: the experiment that a job moves to, which has not begun or has ended;
                made if need be.

        Raises:
            NotFound: no job has this name.
            Conflict: it has not ended, and can't move.
        """
        changes = {
            "display_name": display_name,
            "description": description,
            "tags": tags,
            "experiment_name": experiment_name,
        }
        body = {key: value for key, value in changes.items() if value is not None}
        return self._job(self.request("PATCH", name, body=body))

    def preflight(self, name: str) -> Listing[NodeReport]:
        """What each node of the job found out before the ranks started.

        Raises:
            NotFound: no job has this name.
        """
        rows = self.request("GET", name, "preflight")["value"]
        return Listing(
            NodeReport(raw=row, node=row["node"], address=row["address"], state=row["state"])
            for row in rows
        )

    def cancel(self, name: str, now: bool = False) -> Job:
        """Ask for the job's end; a job that has ended stays as it is.

        Args:
            now: kill its ranks at once, without the grace period in which they may save their
                work; also for a job that is being canceled already.
        """
        query = {"now": "true"} if now else None
        return self._job(self.request("POST", name, "cancel", query=query))

    def shell(
        self, name: str, options: ShellOptions | None = None
    ) -> AbstractContextManager[RunningShell]:
        """Open a shell, or run a command, inside a running job; it ends with the block.

        Raises:
            Conflict: the job does not run.
            Forbidden: the job is somebody else's.

        Example::

            with client.jobs.shell("brave-otter", ShellOptions(command=("nvidia-smi",))) as shell:
                print(b"".join(data for _, data in shell.output()).decode())
        """
        from torchyard.client.interactive import shells

        return shells.open_shell(
            self._transport, self._path, name, options or shells.ShellOptions()
        )

    def services(self, name: str) -> Listing[JobService]:
        """The services of a running job, on each of its nodes; none when it does not run."""
        from torchyard.client.interactive.job_services import service_from_json

        rows = self.request("GET", name, "services")["value"]
        return Listing(service_from_json(row) for row in rows)

    def service_link(self, name: str, service: str, node: int | None = None) -> str:
        """A link that opens a service in a browser; good once, for a minute.

        Raises:
            NotFound: the job has no such service.
            Conflict: it does not run.
            Forbidden: the job is somebody else's.
        """
        path = f"{self._path}/{quote(name, safe='')}/services/{quote(service, safe='')}/link"
        made = self._transport.post(path, {"node": node})
        return str(made["url"])

    def release(self, name: str) -> Job:
        """End the time that a job is held after its script (`torchyard.hold`).

        Raises:
            Conflict: it is not held.
        """
        return self._job(self.request("POST", name, "release"))

    def preempt(self, name: str) -> Job:
        """Take a running job's nodes away; it is queued again and goes on in the same run.

        Raises:
            Conflict: it is not running.
        """
        return self._job(self.request("POST", name, "preempt"))

    def delete(self, *names: str) -> Strings:
        """Delete jobs with their children, for good: files, logs, metrics and all.

        Returns:
            The names of the deleted jobs, children among them; some seconds may pass until the
            last file is gone.

        Raises:
            NotFound: no such job.
            Conflict: one runs, or something needs its files; nothing was deleted.
        """
        return [*self.delete_where(names=names).deleted]

    def delete_where(
        self,
        *,
        names: Sequence[str] = (),
        experiment_name: str = "",
        status: str = "",
        older_than_s: float | None = None,
        dry_run: bool = False,
    ) -> Deletion:
        """Delete jobs that have ended: those of these names, or those that meet all conditions.

        Args:
            older_than_s: seconds since their end.
            dry_run: delete nothing; `jobs` of the answer says what would be deleted.

        Raises:
            InvalidInput: neither names nor conditions are given, or both.
            NotFound: no such job.
            Conflict: a named job must stay; nothing was deleted.
        """
        conditions = {
            "names": list(names) or None,
            "experiment_name": experiment_name or None,
            "status": status or None,
            "older_than_s": older_than_s,
            "dry_run": dry_run or None,
        }
        body = {key: value for key, value in conditions.items() if value is not None}
        return _deletion(self._transport.post(f"{self._path}/delete", body))

    def archive(self, name: str) -> None:
        """Hide a job from lists."""
        self.request("POST", name, "archive")

    def restore(self, name: str) -> None:
        """Undo `archive`."""
        self.request("POST", name, "restore")

    def code(self, name: str) -> Listing[CodeFile]:
        """The files of the job's code snapshot.

        Raises:
            NotFound: the job has no code.
        """
        manifest = self._snapshots.get(self._code_of(name))
        return Listing(
            CodeFile(
                raw=row,
                path=row["path"],
                sha256=row["sha256"],
                size_bytes=row["size"],
                mode=row["mode"],
            )
            for row in manifest["files"]
        )

    def restore_code(self, name: str, folder: Path | str, *, overwrite: bool = False) -> Paths:
        """Put the code that the job ran into `folder`, as it was; returns the files.

        Raises:
            NotFound: the job has no code.
            Conflict: a file is there with another content; nothing was written.
        """
        return self._snapshots.restore(self._code_of(name), Path(folder), overwrite=overwrite)

    def _job(self, raw: Json) -> Job:
        return job_from_json(raw, self)

    def _pages(
        self, query: Mapping[str, Any], max_results: int | None, page_size: int
    ) -> Listing[JobSummary]:
        """The rows of all pages, each of `page_size` jobs or fewer."""
        jobs: Listing[JobSummary] = Listing()
        before = None
        while max_results is None or len(jobs) < max_results:
            missing = page_size if max_results is None else max_results - len(jobs)
            here = {"limit": min(missing, page_size), "before": before}
            response = self._transport.get(self._path, {**query, **here})
            page = response["value"]
            jobs += [summary_from_json(row, self) for row in page]
            before = response.get("next")
            if not before or not page:
                break
        return jobs

    def _code_of(self, name: str) -> str:
        spec = self.document(name)["spec"]
        trial = spec.get("trial")  # of a sweep
        code = str((trial if isinstance(trial, dict) else spec).get("code") or "")
        if not code.startswith("snapshot:"):
            raise NotFound(f"job `{name}` has no code snapshot", "it was created without `code`")
        return code.removeprefix("snapshot:")

    def _find(self, document: Mapping[str, Any], folder: Path) -> JobFiles:
        """The local things that a document names.

        Raises:
            TorchyardError: one is missing or can't be read; what the server finds wrong with the
                rest of the document is told with it.
        """
        from torchyard.client.snapshots import job_files

        files, errors = job_files.find_all(document, folder, self._snapshots.limits)
        if not errors:
            return files
        missing = [error.at for error in errors]
        try:
            with files.locating():
                self._check(files.document)
        except InvalidInput as error:
            # Of what is not in the document, a file that is missing may be the cause.
            there = [each for each in (error, *error.others) if reaches(files.document, each.at)]
            errors += [each for each in there if not _is_beside(each.at, missing)]
            error.others = ()  # they are in the list
        raise joined(errors, None, ())

    def _check(self, document: Mapping[str, Any]) -> Strings:
        response = self._transport.post(f"{self._path}/validate", document)
        return [str(notice) for notice in response.get("notices") or []]


def _is_beside(at: At, places: Sequence[At]) -> bool:
    """Whether something is at one of the places, in it or around it."""
    return any(tuple(at[: len(place)]) == place[: len(at)] for place in places)


def default_experiment(folder: Path) -> str:
    """The experiment of a job that names none: the folder's name, without what names can't hold."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", folder.name).lstrip("_-")[:255]
    return name or "Default"


def _page_size(columns: Sequence[str]) -> int:
    """Jobs with all of their metrics may be long."""
    return _PAGE if all("." in column or column == "waiting" for column in columns) else _LONG_PAGE


def _tags(tags: Mapping[str, str | None]) -> Strings:
    return [key if value is None else f"{key}={value}" for key, value in tags.items()]


def _document(document: Mapping[str, Any] | JobDocument) -> dict[str, Any]:
    if isinstance(document, Mapping):
        return dict(document)
    to_dict = getattr(document, "to_dict", None)
    if to_dict is None:
        raise InvalidInput(
            "a job is a mapping, or what `command()` or a pipeline returns, not "
            f"{type(document).__name__}",
            'write `client.jobs.create(command(command="python train.py", …))`',
        )
    body: dict[str, Any] = to_dict()
    return body


def _force_rerun(body: dict[str, Any]) -> None:
    from torchyard.client.snapshots import job_files

    kind = job_files.kind_of(body)
    if kind != job_files.PIPELINE:
        raise InvalidInput(
            f"only steps of a pipeline are reused, and this is a job of type `{kind}`",
            "leave out `--no-reuse` or `reuse=False`: it runs each time",
            at=("type",),
        )
    settings = body.get("settings") or {}
    if isinstance(settings, Mapping):  # otherwise the server reports the error
        body["settings"] = {**settings, "force_rerun": True}


def _deletion(raw: Json) -> Deletion:
    return Deletion(
        raw=raw,
        deleted=read.texts(raw, "deleted"),
        pending=read.texts(raw, "pending"),
        jobs=tuple(
            JobSize(
                raw=row,
                name=row["name"],
                status=row["status"],
                files=row["files"],
                size_bytes=row["size_bytes"],
                points=row["points"],
            )
            for row in raw.get("jobs") or ()
        ),
        kept=tuple(
            KeptJob(raw=row, name=row["name"], reason=row["reason"], hint=read.text(row, "hint"))
            for row in raw.get("kept") or ()
        ),
    )
