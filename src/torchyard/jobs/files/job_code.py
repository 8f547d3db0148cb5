"""The code that a job runs with, as a page shows it, and how it differs from another job's.

Owns: which files differ; comparing the heads of two.
Leaves: snapshots to base/blobs.py, the lines' comparison to text_diff.py.
Always: a job without code has no files; a response is bounded by the size of heads.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from torchyard.assets import served_files
from torchyard.assets.served_files import Preview
from torchyard.base.blobs import Blobs, SnapshotFile
from torchyard.base.errors import NotFound, did_you_mean
from torchyard.jobs.files import text_diff
from torchyard.jobs.files.text_diff import Hunk
from torchyard.jobs.records.types import Job

_PREFIX = "snapshot:"
_MOST_LINES = 10_000


class CodeChange(TypedDict):
    path: str
    change: Literal["added", "removed", "changed"]


class FileDiff(TypedDict):
    """`hunks` of changed lines, none of a binary file; `whole` unless only heads were compared."""

    hunks: list[Hunk]
    whole: bool


def files_of(blobs: Blobs, job: Job) -> tuple[SnapshotFile, ...]:
    """
    Raises:
        NotFound: the snapshot is gone.
    """
    code = str(job.document.get("code") or "")
    if not code.startswith(_PREFIX):
        return ()
    return blobs.snapshot(code.removeprefix(_PREFIX)).files


def preview(blobs: Blobs, job: Job, path: str) -> Preview:
    """The head of one file, see assets/served_files.py.

    Raises:
        NotFound: with the nearest path there is.
    """
    by_path = {file.path: file for file in files_of(blobs, job)}
    if path not in by_path:
        raise NotFound(
            f"the code of job `{job.name}` has no file `{path}`",
            did_you_mean(path, by_path, "list its files first"),
        )
    return served_files.preview(blobs.path(by_path[path].sha256), path)


def changes(blobs: Blobs, old: Job, new: Job) -> list[CodeChange]:
    """Of each file that differs, sorted by path."""
    before, after = (
        {file.path: (file.sha256, file.mode) for file in files_of(blobs, job)} for job in (old, new)
    )
    differing = sorted(path for path in before | after if before.get(path) != after.get(path))
    return [
        {
            "path": path,
            "change": (
                "added" if path not in before else "removed" if path not in after else "changed"
            ),
        }
        for path in differing
    ]


def file_diff(blobs: Blobs, old: Job, new: Job, path: str) -> FileDiff:
    """
    Raises:
        NotFound: neither job has the file.
    """
    texts: list[str | None] = []
    is_whole, is_there = True, False
    for job in (old, new):
        sha256 = next((f.sha256 for f in files_of(blobs, job) if f.path == path), "")
        text, is_all = served_files.head_text(blobs.path(sha256)) if sha256 else ("", True)
        texts.append(text)
        is_whole, is_there = is_whole and is_all, is_there or bool(sha256)
    if not is_there:
        raise NotFound(
            f"neither job `{old.name}` nor `{new.name}` has a file `{path}`",
            "list the files that differ first",
        )
    before, after = texts
    if before is None or after is None:
        return {"hunks": [], "whole": is_whole}
    lines = [text.split("\n") for text in (before, after)]
    is_whole = is_whole and all(len(each) <= _MOST_LINES for each in lines)
    parts = text_diff.hunks(*(_without_end(each)[:_MOST_LINES] for each in lines))
    return {"hunks": parts, "whole": is_whole}


def _without_end(lines: list[str]) -> list[str]:
    """The lines, without the empty text after the last line's end."""
    return lines if lines[-1] else lines[:-1]
