"""Read one job over HTTP, by its name: its stream, its logs, its files.

Owns: the requests for what a job wrote; where downloaded files lie.
Leaves: metrics to job_history.py, printing to printing.py, `Job` to job.py.
Always: a lost connection is waited for, and everything that takes long ends at its deadline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from torchyard.base.errors import NotFound, did_you_mean
from torchyard.client.job_history import JobHistory
from torchyard.client.resources import Json, Listing, Resource
from torchyard.client.times import Deadline

if TYPE_CHECKING:
    from torchyard.client.downloads import Counter
    from torchyard.client.streams import Answer, Cursor, Frame
    from torchyard.client.trials.trials import SweepTrials

_SILENCE_S = 60.0


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RemoteFile(Resource):
    """A file of a job, a model or a data asset; `path` has forward slashes.

    Args:
        output: the job's named output that it belongs to; empty for artifacts and logs.
    """

    path: str
    size_bytes: int
    output: str = ""

    _shown = ("output", "path", "size_bytes")


class JobReader(JobHistory):
    """What the jobs of one workspace wrote; `client.jobs` is one."""

    def follow(
        self,
        name: str,
        cursor: Cursor | None = None,
        on_lost: Callable[[float], None] | None = None,
        deadline: Deadline | None = None,
    ) -> Iterator[Frame]:
        """The job's events and log bytes from `cursor` on, live, each once, until it has ended.

        Args:
            cursor: moved along; the stream's begin when None.
            on_lost: called with the seconds until the next try when the server is unreachable.
            deadline: when to give up; never when None.

        Raises:
            NotFound: no job has this name.
            Unreachable: the server was unreachable for ten minutes.
            Timeout: the deadline is over.
        """
        from torchyard.client.streams import follow

        @contextmanager
        def limited(response: AbstractContextManager[HTTPResponse]) -> Iterator[Answer]:
            with response as answer:
                yield answer if deadline is None else _Limited(answer, self._limit(deadline))

        def open_stream(at: Cursor) -> AbstractContextManager[Answer]:
            query = {
                "after": at.after or None,
                "offsets": json.dumps(at.offsets) if at.offsets else None,
            }
            return limited(self._transport.stream(f"{self._job_path(name)}/stream", query))

        return follow(open_stream, cursor, on_lost=on_lost, deadline=deadline)

    def trials(self, name: str) -> SweepTrials:
        """The trials of a sweep, with its best one.

        Raises:
            NotFound: no job has this name.
            InvalidInput: it is not a sweep.

        Example::

            client.jobs.trials("tuning").best.parameters
        """
        from torchyard.client.trials.trials import sweep_trials_from_json

        path = f"{self._workspace_path}/sweeps/{quote(name, safe='')}/trials"
        return sweep_trials_from_json(self._transport.get(path))

    def logs(self, name: str, rank: int | None = None) -> str:
        """What the job's ranks have written so far, in its newest attempt.

        Args:
            rank: only this rank's output, as it is. None for all: of a job with several ranks
                they follow each other, every line behind its rank, `[3] `, and of a progress
                bar its last state.

        Raises:
            NotFound: no job has this name, or the rank has written nothing.
        """
        from torchyard.client.printing import last_state, rank_of_log

        paths = {rank_of_log(file.path): file.path for file in self.files(name)}
        ranks = sorted(number for number in paths if number is not None)
        if rank is not None and rank not in ranks:
            shown = ", ".join(map(str, ranks)) or "none"
            raise NotFound(
                f"rank {rank} of job `{name}` has written nothing", f"ranks that have: {shown}"
            )
        texts = {
            number: self.read_file(name, str(paths[number]))
            for number in (ranks if rank is None else [rank])
        }
        if rank is not None or len(texts) == 1:
            return b"".join(texts.values()).decode("utf-8", "replace")
        return "".join(
            f"[{number}] {last_state(line).decode('utf-8', 'replace')}\n"
            for number, text in texts.items()
            for line in text.removesuffix(b"\n").split(b"\n")
            if text
        )

    def read_file(self, name: str, path: str) -> bytes:
        """A file of the job, such as `user_logs/std_log.txt`, whole: only for what is small.

        Raises:
            NotFound: the job has no such file.
        """
        with self._transport.stream(f"{self._job_path(name)}/files/{quote(path)}") as response:
            return response.read()

    def read_end(self, name: str, path: str, most_bytes: int) -> bytes:
        """The last bytes of a file of the job that is not empty.

        Raises:
            NotFound: the job has no such file.
        """
        headers = {"Range": f"bytes=-{most_bytes}"}
        source = f"{self._job_path(name)}/files/{quote(path)}"
        with self._transport.stream(source, headers=headers) as response:
            return response.read()[-most_bytes:]

    def page(self, name: str) -> str:
        """The address of the job's page."""
        workspace = self._workspace_path.removeprefix("/v1")
        return f"{self._transport.url}/ui{workspace}/jobs/{quote(name, safe='')}"

    def twin(self) -> JobReader:
        """Another one of the same workspace with a connection of its own, for another thread."""
        return JobReader(self._transport.twin(), self._workspace_path)

    def files(self, name: str) -> Listing[RemoteFile]:
        """The job's artifacts and logs: `outputs/…`, `user_logs/…`, `logs/…`."""
        return remote_files(self._transport.get(f"{self._job_path(name)}/files"))

    def outputs(self, name: str) -> Listing[RemoteFile]:
        """The files of the job's named outputs."""
        return remote_files(self._transport.get(f"{self._job_path(name)}/outputs"))

    def download(
        self,
        name: str,
        folder: Path | str = ".",
        *,
        output_name: str = "",
        everything: bool = False,
        path: str = "",
        timeout_s: float | None = None,
        count: Counter | None = None,
        on_replace: Callable[[Path], None] | None = None,
    ) -> list[Path]:
        """Download into `folder`, as Azure ML does: artifacts to `artifacts/`, a named output to
        `named-outputs/<output>/`. Returns the files written.

        Args:
            output_name: this output and no artifacts.
            everything: the artifacts and all named outputs.
            path: only this file, or what is below this folder.
            timeout_s: how long it may take; None for as long as it takes.
            count: gets the bytes to come, then those of each piece that came.
            on_replace: called, from several threads, with each file that was there before and is
                replaced.

        Raises:
            NotFound: the job has no such output, or nothing at `path`.
            Timeout: it took longer than `timeout_s`; files that are there are whole.
        """
        from torchyard.client.downloads import RequestedFile, below, download_all

        top = Path(folder)
        bundle = f"{self._workspace_path}/bundle"
        files_to_fetch = []
        if not output_name:
            for file in _below(self.files(name), path):
                source = f"{self._job_path(name)}/files/{quote(file.path)}"
                target = below(top / "artifacts", file.path)
                files_to_fetch.append(RequestedFile(source, target, file.size_bytes, bundle))
        if output_name or everything:
            for file in _below(self._output_files(name, output_name), path):
                source = f"{self._job_path(name)}/outputs/{quote(file.output)}/{quote(file.path)}"
                target = below(top / "named-outputs", f"{file.output}/{file.path}")
                files_to_fetch.append(RequestedFile(source, target, file.size_bytes, bundle))
        if path and not files_to_fetch:
            raise self._nothing_at(name, path, output_name)
        return download_all(self._transport, files_to_fetch, count, timeout_s, on_replace)

    def request(
        self,
        method: str,
        name: str,
        verb: str = "",
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Send a request about one job, and return its JSON."""
        path = self._job_path(name) + (f"/{verb}" if verb else "")
        document: Json = self._transport.call(method, path, body, query)
        return document

    def _limit(self, deadline: Deadline) -> Callable[[], None]:
        return lambda: self._transport.limit_silence(deadline.within(_SILENCE_S))

    def _nothing_at(self, name: str, path: str, output_name: str) -> NotFound:
        files = self._output_files(name, output_name) if output_name else self.files(name)
        hint = did_you_mean(
            path, [file.path for file in files], "paths are such as `outputs/model.pt`"
        )
        return NotFound(f"job `{name}` has no file `{path}`", hint)

    def _output_files(self, name: str, output_name: str) -> list[RemoteFile]:
        files = self.outputs(name)
        names = sorted({file.output for file in files})
        if output_name and output_name not in names:
            raise NotFound(
                f"job `{name}` has no output `{output_name}` with files in it",
                f"it has: {', '.join(names)}" if names else "it has no named outputs",
            )
        return [file for file in files if not output_name or file.output == output_name]


def _below(files: Iterable[RemoteFile], path: str) -> list[RemoteFile]:
    """The file at a path, or those below it; all without a path."""
    top = path.strip("/")
    return [
        file for file in files if not top or file.path == top or file.path.startswith(f"{top}/")
    ]


class _Limited:
    """An answer that is waited for no longer than its deadline allows."""

    def __init__(self, answer: Answer, limit: Callable[[], None]) -> None:
        self._answer = answer
        self._limit = limit

    def read1(self, n: int = -1, /) -> bytes:
        self._limit()
        return self._answer.read1(n)


def remote_files(response: Json) -> Listing[RemoteFile]:
    """The files that an answer lists."""
    return Listing(
        RemoteFile(
            raw=row,
            path=row["path"],
            size_bytes=int(row["size_bytes"]),
            output=row.get("output") or "",
        )
        for row in response["value"]
    )
