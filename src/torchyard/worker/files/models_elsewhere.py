"""Find model files that a job wrote outside its own folder, as to /tmp.

Owns: which files those are.
Leaves: telling of them to left_out.py.
Always: names only what the job's own text names (its command, variables, scripts), written while
its ranks ran, by its user: others use /tmp and the home at the same time. Looks at a bounded number
of entries and follows no link.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

MODEL_ENDINGS = (
    ".bin", ".ckpt", ".h5", ".joblib", ".keras", ".npz", ".onnx", ".pb", ".pkl", ".pt", ".pth",
    ".safetensors",
)  # fmt: skip
TEXT_ENDINGS = (".cfg", ".json", ".py", ".sh", ".toml", ".yaml", ".yml")
_MOST_TEXT_BYTES = 256 << 10
_MOST_ENTRIES = 2_000
_MOST_NAMES = 200
_DEEPEST = 3
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
    names = _ends_of_names({match[0] for match in _FILE.finditer(text)})
    folders = {Path("/tmp")} if "/tmp" in text else set()
    if _HOME.search(text):
        folders.add(home)
    models: set[Path] = set()
    for match in _PATH.finditer(text):
        path = Path(re.sub(r"^(?:~|\$HOME|\$\{HOME\})", str(home), match[0]))
        if path.name.endswith(MODEL_ENDINGS):
            models.update(_matching(path.parent, _ends_of_names([path.name]), started_at))
        else:
            folders.add(path)
    for folder in folders:
        is_shared = str(folder) in _SHARED or folder == home
        if is_shared:
            models.update(_matching(folder, names, started_at))
        elif _is_of_this_time(folder, started_at):
            models.update(_below(folder, started_at))
    return sorted(path for path in models if node_folder not in path.parents)


def texts_below(files: Iterable[Path]) -> Iterator[str]:
    """What scripts and settings among these files say."""
    for path in files:
        if path.name.endswith(TEXT_ENDINGS):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield file.read(_MOST_TEXT_BYTES)
            except OSError:
                continue


def _ends_of_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """How model files of these names begin and end, around what is filled in."""
    chosen = sorted(name for name in names if name.endswith(MODEL_ENDINGS))[:_MOST_NAMES]
    split_names = [_FILLED_IN.split(name) for name in chosen]
    return [
        (parts[0], parts[-1] if len(parts) > 1 else "")
        for parts in split_names
        if "".join(parts) not in MODEL_ENDINGS
    ]


def _matching(folder: Path, names: Sequence[tuple[str, str]], started_at: float) -> Iterator[Path]:
    for entry in _entries(folder) if names else ():
        if any(_is_named(entry.name, start, end) for start, end in names):
            if _is_written(entry, started_at):
                yield Path(entry.path)


def _is_named(name: str, start: str, end: str) -> bool:
    if not end:
        return name == start
    return name.startswith(start) and name.endswith(end) and len(name) >= len(start) + len(end)


def _below(folder: Path, started_at: float, depth: int = 0) -> Iterator[Path]:
    for entry in _entries(folder):
        if entry.name.endswith(MODEL_ENDINGS) and _is_written(entry, started_at):
            yield Path(entry.path)
        elif depth < _DEEPEST and entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), started_at, depth + 1)


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


def _is_written(entry: os.DirEntry[str], started_at: float) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
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
