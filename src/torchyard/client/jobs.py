"""Jobs of the workspace, over HTTP.

Owns: which request each verb is, the order of a submission.
Leaves: local files to snapshots/, streams to follow.py and printing.py, metrics to job_history.py.
Always: nothing is uploaded or cloned before the server has found the document valid.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.base.http import Transport
from torchyard.client.job_history import JobHistory
from torchyard.client.responses import (
    Job,
    JobSummary,
    OutputFiles,
    Paths,
    Record,
    Records,
    RemoteFiles,
    Rows,
)

if TYPE_CHECKING:
    from torchyard.client.command_jobs import CommandJob
    from torchyard.client.downloads import Counter
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress
    from torchyard.client.streams import Cursor, Frame

_PAGE = 1000
Strings = list[str]
# What belongs to one job alone.
_OWN = ("name", "display_name")


class Jobs(JobHistory):
    """Jobs of the workspace.

    Example::

        job = client.jobs.create(command(command="python train.py", code=".", environment="python"))
        client.jobs.stream(job.name)
        client.jobs.get(job.name).metrics
    """

    def __init__(self, transport: Transport, here: str, snapshots: Snapshots) -> None:
        super().__init__(transport, here)
        self._snapshots = snapshots

    def create(
        self,
        document: Mapping[str, Any] | CommandJob,
        folder: Path | None = None,
        *,
        name: str = "",
        progress: Progress | None = None,
    ) -> Job:
        """Submit a job; returns at once.

        Args:
            document: what `command()` built, or a job file's mapping.
            folder: what local paths are relative to; the current one when None.
            name: the job's name when the document has none.

        Raises:
            InvalidInput: the document is wrong; `at` says where.
            Conflict: another job has this name.
        """
        from torchyard.client.snapshots import job_files

        asked = _document(document)
        if name:
            asked["name"] = name
        if not asked.get("experiment_name"):
            asked["experiment_name"] = default_experiment(Path.cwd())
        limits = self._snapshots.limits
        files = job_files.find(asked, folder or Path.cwd(), limits)
        if files.paths or files.clones:
            self._check(files.document)
        with files.with_code(limits) as ready:
            return Job(
                self._transport.post(self._here, self._snapshots.send_job_files(ready, progress))
            )

    def validate(
        self, document: Mapping[str, Any] | CommandJob, folder: Path | None = None
    ) -> Strings:
        """Find what is wrong with a job, and upload nothing; returns what would be noticed.

        Raises:
            InvalidInput: it is no job; `at` says where.
        """
        from torchyard.client.snapshots import job_files

        asked = _document(document)
        if not asked.get("experiment_name"):
            asked["experiment_name"] = default_experiment(Path.cwd())
        files = job_files.find(asked, folder or Path.cwd(), self._snapshots.limits)
        return self._check(files.document)

    def clone(self, name: str, changes: Mapping[str, Any] | None = None) -> Job:
        """Submit job `name` once more, with its snapshot and all.

        Args:
            changes: keys of the document that are to be different; a new `name` among them,
                else one is made up.
        """
        spec = {key: value for key, value in self.get(name).spec.items() if key not in _OWN}
        return self.create({**spec, **(changes or {})})

    def list(
        self,
        *,
        experiment_name: str = "",
        status: str = "",
        parent_job_name: str = "",
        max_results: int | None = 50,
        archived: bool = False,
        only_archived: bool = False,
    ) -> Records[JobSummary]:
        """The newest jobs, newest first.

        Args:
            parent_job_name: only the children of this job.
            max_results: None for all.
            archived: archived ones too.
            only_archived: no others.
        """
        found: Records[JobSummary] = Records()
        before = None
        while max_results is None or len(found) < max_results:
            left = _PAGE if max_results is None else max_results - len(found)
            answer = self._transport.get(
                self._here,
                {
                    "experiment_name": experiment_name or None,
                    "status": status or None,
                    "parent": parent_job_name or None,
                    "archived": "only" if only_archived else "true" if archived else None,
                    "limit": min(left, _PAGE),
                    "before": before,
                },
            )
            page = answer["value"]
            found += [JobSummary(job) for job in page]
            before = answer.get("next")
            if not before or not page:
                break
        return found

    def update(self, name: str, changes: Mapping[str, Any]) -> Job:
        """Change `display_name`, `description` or `tags` (merged; None takes one away)."""
        return Job(self._transport.call("PATCH", self._of(name), dict(changes)))

    def preflight(self, name: str) -> Rows:
        """What each node of the job knew and found out before the ranks started: `facts`,
        `findings`, `ways` to the other nodes; None each where it has not told yet.

        Raises:
            NotFound: no job has this name.
        """
        found = self._transport.get(f"{self._of(name)}/preflight")["value"]
        return Records(Record(row) for row in found)

    def read_file(self, name: str, path: str) -> bytes:
        """A file of the job, as `user_logs/std_log.txt`, whole; only what is small.

        Raises:
            NotFound: the job has no such file.
        """
        with self._transport.stream(f"{self._of(name)}/files/{quote(path)}") as answer:
            return answer.read()

    def cancel(self, name: str) -> Job:
        """Ask for the job's end; a job that has ended stays as it is."""
        return Job(self._transport.post(f"{self._of(name)}/cancel"))

    def preempt(self, name: str) -> Job:
        """Take a running job's nodes away; it is queued again and goes on in the same run.

        Raises:
            Conflict: it doesn't run.
        """
        return Job(self._transport.post(f"{self._of(name)}/preempt"))

    def delete(self, *names: str) -> Strings:
        """Delete jobs with their children, for good: files, logs, metrics and all.

        Returns:
            The names of those that go, children among them; some seconds may pass until the last
            file is gone.

        Raises:
            NotFound: no such job.
            Conflict: one runs, or something needs its files; nothing was deleted.
        """
        return [str(name) for name in self.delete_chosen(names=list(names))["deleted"]]

    def delete_chosen(self, **choice: Any) -> dict[str, Any]:
        """Delete jobs that have ended, by name or by condition.

        Args:
            choice: `names`; or some of `experiment_name`, `status`, `older_than_s` (seconds since
                the end). With `dry_run` True nothing is deleted.

        Returns:
            `deleted` and `pending`, names, and `kept`, each with `name` and `reason`; of a dry run
            `jobs`, each with `name`, `status`, `files`, `size_bytes` and `points`, and `kept`.
        """
        found: dict[str, Any] = self._transport.post(f"{self._here}/delete", choice)
        return found

    def archive(self, name: str) -> None:
        """Hide a job from lists."""
        self._transport.post(f"{self._of(name)}/archive")

    def restore(self, name: str) -> None:
        """Take back `archive`."""
        self._transport.post(f"{self._of(name)}/restore")

    def stream(self, name: str, rank: int | None = None, out: BinaryIO | None = None) -> Job:
        """Print the job's output from its first byte on, until it has ended; returns it then.

        Args:
            rank: only this rank's.
            out: where the ranks' bytes go; standard output, or the notebook's cell, when None.
        """
        from torchyard.client.printing import Printer, for_text, print_frames

        say = print
        if out is None:
            out = getattr(sys.stdout, "buffer", None) or for_text(sys.stdout)
        return print_frames(self.follow(name), Printer(out, say, rank))

    def follow(
        self,
        name: str,
        cursor: Cursor | None = None,
        on_lost: Callable[[float], None] | None = None,
    ) -> Iterator[Frame]:
        """The job's events and log bytes from `cursor` on, live, each once, until it has ended.

        A lost connection or server is waited for; see follow.py.
        """
        from torchyard.client.streams import Answer, follow

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

    def code(self, name: str) -> dict[str, Any]:
        """The manifest of the job's code snapshot: `files`, each with path, sha256, size, mode."""
        return self._snapshots.get(self._code_of(name))

    def restore_code(self, name: str, folder: Path | str, *, overwrite: bool = False) -> Paths:
        """Put the code that the job ran into `folder`, as it was; returns the files.

        Raises:
            NotFound: the job has no code.
            Conflict: a file is there with another content; nothing was written.
        """
        return self._snapshots.restore(self._code_of(name), Path(folder), overwrite=overwrite)

    def download(
        self,
        name: str,
        folder: Path | str = ".",
        *,
        output_name: str = "",
        everything: bool = False,
        count: Counter | None = None,
    ) -> Paths:
        """Download into `folder`, as Azure ML does: artifacts to `artifacts/`, a named output to
        `named-outputs/<output>/`. Returns the files written.

        Args:
            output_name: this output and no artifacts.
            everything: the artifacts and all named outputs.
            count: told of the bytes to come, then of each piece that came.

        Raises:
            NotFound: the job has no such output.
        """
        from torchyard.client.downloads import Wanted, below, download_all

        top = Path(folder)
        bundle = f"{self._here.rpartition('/')[0]}/bundle"
        wanted = []
        if not output_name:
            for file in self.files(name):
                source = f"{self._of(name)}/files/{quote(file['path'])}"
                target = below(top / "artifacts", file["path"])
                wanted.append(Wanted(source, target, int(file["size_bytes"]), bundle))
        if output_name or everything:
            for output in self._output_files(name, output_name):
                label = output["output"]
                source = f"{self._of(name)}/outputs/{quote(label)}/{quote(output['path'])}"
                target = below(top / "named-outputs", f"{label}/{output['path']}")
                wanted.append(Wanted(source, target, int(output["size_bytes"]), bundle))
        return download_all(self._transport, wanted, count)

    def _output_files(self, name: str, output_name: str) -> OutputFiles:
        found = self.outputs(name)
        known = sorted({file["output"] for file in found})
        if output_name and output_name not in known:
            raise NotFound(
                f"job `{name}` has no output `{output_name}` with files in it",
                f"it has: {', '.join(known)}" if known else "it has no named outputs",
            )
        return [file for file in found if not output_name or file["output"] == output_name]

    def _code_of(self, name: str) -> str:
        code = str(self.get(name).spec.get("code") or "")
        if not code.startswith("snapshot:"):
            raise NotFound(f"job `{name}` has no code snapshot", "it was created without `code`")
        return code.removeprefix("snapshot:")

    def _check(self, document: Mapping[str, Any]) -> Strings:
        answer = self._transport.post(f"{self._here}/validate", document)
        return [str(notice) for notice in answer.get("notices") or []]


def default_experiment(folder: Path) -> str:
    """The experiment of a job that names none: the folder's name, as far as it is allowed."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", folder.name).lstrip("_-")[:255]
    return name or "Default"


def _document(document: Mapping[str, Any] | CommandJob) -> dict[str, Any]:
    if isinstance(document, Mapping):
        return dict(document)
    to_dict = getattr(document, "to_dict", None)
    if to_dict is None:
        raise InvalidInput(
            f"a job is a mapping or what `command()` returns, not {type(document).__name__}",
            'write `client.jobs.create(command(command="python train.py", …))`',
        )
    made: dict[str, Any] = to_dict()
    return made
