"""Find model files that a job wrote outside its own folder, as to /tmp.

Owns: which files those are.
Leaves: telling of them to left_out.py.
Always: names only what the job's own text names (its command, variables, scripts), written while
its ranks ran, by its user: others use /tmp and the home at the same time. Reads a bounded
number of entries and of bytes, and follows no link.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

MODEL_ENDINGS = (
    ".bin", ".ckpt", ".h5", ".joblib", ".keras", ".npz", ".onnx", ".pb", ".pkl", ".pt", ".pth",
    ".safetensors",
)  # fmt: skip
TEXT_ENDINGS = (".cfg", ".json", ".py", ".sh", ".toml", ".yaml", ".yml")
# Of one file, and of all: data may lie beside the scripts.
_MOST_FILE_BYTES = 256 << 10
_MOST_TEXT_BYTES = 4 << 20
# Of a folder; milliseconds, where thousands of files of data lie beside the code.
_MOST_ENTRIES = 2_000
_MOST_NAMES = 200
_MOST_PATHS = 500
_SHARED = ("/", "/tmp", "/var/tmp", "/dev/shm", "/mnt", "/home", "/root")
_NAME = r"[\w.{}%@=:+-]{1,100}"
# Not the path of a URL, nor the end of a relative one.
_PATH = re.compile(rf"(?<![\w.~/$}}])(?:~|\$HOME|\$\{{HOME\}})?(?:/{_NAME}){{1,20}}")
_FILE = re.compile(_NAME)
_HOME = re.compile(r"(?<![\w.])~|\bHOME\b|\bexpanduser\b|\bPath\.home\b")
# What a format string or the shell fills in: `model-{epoch}.pt`, `model-%03d.pt`.
_FILLED_IN = re.compile(r"\{[^{}]*\}|%[\d.]*[a-z]")


def find(texts: Iterable[str], home: Path, node_folder: Path, started_at: float) -> list[Path]:
    """Model files that the texts name outside the node's folder.

    Args:
        started_at: when the ranks were started, in seconds since 1970.
    """
    text = "\n".join(texts)
    words = (match[0] for match in _FILE.finditer(text))
    names = _ends_of_names(dict.fromkeys(word for word in words if is_model(word)))
    folders = {Path("/tmp")} if "/tmp" in text else set()
    if _HOME.search(text):
        folders.add(home)
    names_by_folder: dict[Path, list[str]] = {}
    paths = dict.fromkeys(match[0] for match in _PATH.finditer(text))
    for written in islice(paths, _MOST_PATHS):
        path = Path(re.sub(r"^(?:~|\$HOME|\$\{HOME\})", str(home), written))
        if is_model(path.name):
            names_by_folder.setdefault(path.parent, []).append(path.name)
        else:
            folders.add(path)
    models: set[Path] = set()
    for folder, model_names in names_by_folder.items():
        models.update(_matching(folder, _ends_of_names(model_names), started_at))
    for folder in folders:
        is_shared = str(folder) in _SHARED or folder == home
        if is_shared:
            models.update(_matching(folder, names, started_at))
        elif _is_of_this_time(folder, started_at):
            files = (path for path in outermost_files(folder) if is_model(path.name))
            models.update(path for path in files if _is_written(path, started_at))
    return sorted(path for path in models if node_folder not in path.parents)


def outermost_files(top: Path, skipped: Collection[Path] = ()) -> Iterator[Path]:
    """Those below `top` but in no folder that is skipped, the outermost first; not all of many."""
    waiting = deque([top])
    left = _MOST_ENTRIES
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    path = Path(entry.path)
                    if entry.is_dir(follow_symlinks=False) and path not in skipped:
                        waiting.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        yield path
        except OSError:
            continue  # it is being removed, or can't be read


def texts_below(files: Iterable[Path]) -> Iterator[str]:
    """What scripts and settings among these files say, as far as it is no more than some MB."""
    left = _MOST_TEXT_BYTES
    for path in files:
        if path.name.endswith(TEXT_ENDINGS) and left > 0:
            try:
                with open(path, "rb") as file:
                    content = file.read(min(left, _MOST_FILE_BYTES))
            except OSError:
                continue
            left -= len(content)
            yield content.decode("utf-8", "replace")


def _ends_of_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """How model files of the first of these names begin and end, around what is filled in."""
    split_names = [_FILLED_IN.split(name) for name in islice(names, _MOST_NAMES)]
    return [
        (parts[0], parts[-1] if len(parts) > 1 else "")
        for parts in split_names
        if "".join(parts) not in MODEL_ENDINGS
    ]


def _matching(folder: Path, names: Sequence[tuple[str, str]], started_at: float) -> Iterator[Path]:
    for entry in _entries(folder) if names else ():
        if any(_is_named(entry.name, start, end) for start, end in names):
            path = Path(entry.path)
            if _is_written(path, started_at):
                yield path


def is_model(name: str) -> bool:
    """Whether a file of this name looks like a model."""
    return name.endswith(MODEL_ENDINGS)


def _is_named(name: str, start: str, end: str) -> bool:
    if not end:
        return name == start
    return name.startswith(start) and name.endswith(end) and len(name) >= len(start) + len(end)


def _is_of_this_time(folder: Path, started_at: float) -> bool:
    """Whether the folder is this user's, and all in it from the time of the job."""
    try:
        status = folder.lstat()
        return (
            stat.S_ISDIR(status.st_mode)
            and status.st_uid == os.getuid()
            and all(
                entry.stat(follow_symlinks=False).st_ctime >= started_at
                for entry in _entries(folder)
            )
        )
    except OSError:
        return False


def _is_written(path: Path, started_at: float) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.getuid()
        and status.st_mtime >= started_at
    )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False)]
    except OSError:
        return []
