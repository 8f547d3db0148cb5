"""What a job misses because an ignore file left it out of its code: modules, scripts, other files.

Owns: the hint of such a failure.
Leaves: what was left out to the client, which records it among the job's properties.
Always: only a name that matches a path that was left out changes a hint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from torchyard.jobs.records.types import JobError
from torchyard.jobs.spec.own_properties import LEFT_OUT

_MODULE = re.compile(r"No module named '?([\w.]+)")
_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
_SCRIPT = re.compile(r"can't open file '([^']+)'")
_FILE = re.compile(r"No such file or directory: '([^'\n]{1,400})'|'([^'\n]{1,400})': No such file")
_CODES = ("import_failed", "script_missing", "file_missing")


def explained(error: JobError, properties: Mapping[str, str]) -> JobError:
    """The error with the rule that left out what is missing; the same one where none did."""
    if LEFT_OUT not in properties or error.code not in _CODES:
        return error
    try:
        left_out = dict(json.loads(properties[LEFT_OUT]))
    except (ValueError, TypeError, RecursionError):
        return error  # somebody else wrote it
    paths = [str(path) for path in left_out]
    path = next(_matching(error, paths), None)
    if path is None:
        return error
    file, _, line = str(left_out[path]).partition(":")
    hint = (
        f"`{path}` lies in the job's code folder, but line {line} of `{file}` leaves it out: add "
        f"`!/{path}` below that line"
    )
    if error.code == "file_missing":
        hint += ", or pass it as one of the job's `inputs`"
    return replace(error, hint=hint)


def _matching(error: JobError, paths: list[str]) -> Iterator[str]:
    """Paths that were left out and are what the message misses."""
    for folder in _import_folders(error):
        names = [folder + end for end in _missing(error.message)]
        yield from (name for name in names if name in paths)
        yield from (path for path in paths for name in names if _is_below(name, path))
    script = _SCRIPT.search(error.message)
    if script is not None:
        yield from (path for path in paths if _holds(path, script[1]))
    file = _FILE.search(error.message)
    if file is not None:
        name = file[1] or file[2]
        if name.startswith("/"):
            name = name.rpartition("/work/")[2]  # below the node's folder
        name = name.removeprefix("./")
        yield from (path for path in paths if name in (path, path.rstrip("/")))
        yield from (path for path in paths if _is_below(name, path))


def _import_folders(error: JobError) -> list[str]:
    """Where Python may have looked: the code's top, `src/`, the folders of the user's files."""
    frames = error.details.get("frames")
    files = [str(frame.get("file")) for frame in frames or () if isinstance(frame, Mapping)]
    return ["", "src/", *(f"{file.rpartition('/')[0]}/" for file in files if "/" in file)]


def _missing(message: str) -> list[str]:
    """What the module may be: a folder or a file."""
    module, name = _MODULE.search(message), _NAME.search(message)
    dotted = module[1] if module else f"{name[2]}.{name[1]}" if name else ""
    path = dotted.strip(".").replace(".", "/")
    return [f"{path}/", f"{path}.py"] if path else []


def _is_below(name: str, path: str) -> bool:
    return path.endswith("/") and name.startswith(path)


def _holds(path: str, script: str) -> bool:
    """Whether the script, whose path is the node's, is that file or in that folder."""
    script_path = f"/{script}"
    return f"/{path}" in script_path if path.endswith("/") else script_path.endswith(f"/{path}")
