"""What scripts call: `init`, `Checkpoint`, and finding checkpoints.

Owns: the process's settings and open versions, and when a version has all of this rank's objects.
Leaves: copies and files to writer_process, what is whole to versions.
Always: `save` returns after the copy to memory, and what is found is whole.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
import uuid
import weakref
import zlib
from pathlib import Path
from typing import Any

import torch

from nebulaml import memory, ranks, settings, versions
from nebulaml.requests import Begin, Configure, Put
from nebulaml.settings import Settings
from nebulaml.versions import Version, WholeVersion
from nebulaml.writer_process import WriterProcess
from torchyard.train.checkpoint.errors import CheckpointError

_LOG = logging.getLogger("nebulaml")
_UNTIL_RELEASED = -1
_UNTIL_COMMIT = -2
# How long a rank that looks for checkpoints waits for the others' parts of what it committed.
_WAIT_S = 60.0
_POLL_S = 0.05


class _Open:
    """A version that this process adds objects to."""

    def __init__(self, version: Version, is_explicit: bool) -> None:
        self.version = version
        self.is_explicit = is_explicit
        self.names: set[str] = set()
        self.has_failed = False


class _Process:
    """One training's process: settings, its writer, and the version that is open."""

    def __init__(self, parsed: Settings) -> None:
        self.settings = parsed
        self._due_at = float("-inf")
        self._opened: dict[tuple[Path, str], int] = {}
        self._unnamed = 0
        self._open: _Open | None = None
        # How many objects this rank had in the version before, and whether it ever committed.
        self._usual = 0
        self._commits = False
        self._committed: list[Version] = []
        self._crashed = False
        self._told: set[str] = set()
        limit_bytes = settings.memory_limit_bytes(os.environ)
        self.writer = WriterProcess(self._configuration(), limit_bytes)
        self._watch_crashes()
        atexit.register(self.close)

    def configure(self, parsed: Settings) -> None:
        self.settings = parsed
        self.writer.configure(self._configuration())

    def unnamed_tag(self) -> str:
        """The same on every rank that makes as many checkpoints without a tag."""
        self._unnamed += 1
        return ranks.agree(
            f"unnamed/{self._unnamed}", lambda: f"checkpoint-{time.time_ns() // 1000}"
        )

    def open(self, root: Path, tag: str, number: int, is_best: bool) -> _Open:
        self.release()
        if ranks.is_group_missing():
            self.tell_once(
                "several ranks save without a process group, each to checkpoints of its own: call "
                "torch.distributed.init_process_group before nebulaml.Checkpoint"
            )
        times = self._opened[root, tag] = self._opened.get((root, tag), 0) + 1
        mark = f"{zlib.crc32(str(root).encode()):x}/{tag}/{times}"
        is_due = time.monotonic() - self._due_at >= self.settings.interval_s
        chosen = ranks.agree(mark, lambda: f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}/{is_due}")
        name, _, due = chosen.partition("/")
        version = Version(root, tag, name, number if number > 0 else None, is_best)
        try:
            versions.open_version(version, ranks.rank())
        except OSError as error:
            raise CheckpointError(
                f"checkpoint `{tag}` can't be written to {root}: {error.strerror}",
                "name another folder with `nebulaml.init(persistent_storage_path)`",
            ) from error
        if due == "True":
            self._due_at = time.monotonic()
        self.writer.begin(Begin(version, due == "True", time.time()))
        self._open = _Open(version, number == _UNTIL_COMMIT)
        return self._open

    def save(self, opened: _Open, name: str, value: Any) -> None:
        started_at = time.monotonic()
        try:
            copy = self.writer.copy(name, value)
            if copy is None:
                self._save_now(opened.version, name, value)
            else:
                blocked_s = time.monotonic() - started_at
                number = self.writer.next_number()
                message = Put(opened.version, number, name, copy.size_bytes, blocked_s)
                self.writer.put(message, copy)
        except BaseException:
            opened.has_failed = True
            raise
        opened.names.add(name)
        if opened.version.count is not None and len(opened.names) >= opened.version.count:
            self.release()

    def commit(self, opened: _Open) -> bool:
        self._commits = True
        if opened.has_failed:
            return False
        self.writer.release(opened.version)
        self._committed.append(opened.version)
        if opened is self._open:
            self._usual, self._open = len(opened.names), None
        return True

    def release(self) -> None:
        """Nothing more comes into the open version: the script went on to something else."""
        opened, self._open = self._open, None
        if opened is not None and not opened.has_failed:
            self._usual = len(opened.names)
            self.writer.release(opened.version)

    def flush(self) -> None:
        """Bring everything into storage."""
        opened = self._open
        if opened is not None and opened.version.count is None and not opened.is_explicit:
            self.release()
        self.writer.flush()
        committed, self._committed = self._committed, []
        until = time.monotonic() + _WAIT_S
        for version in committed:
            # What was dropped from memory, or could not be written, has no such record.
            while versions.is_released(version, ranks.rank()) and versions.read(version) is None:
                if time.monotonic() > until:
                    self.tell_once(
                        f"checkpoint `{version.tag}` is not whole after {_WAIT_S:g} s: a rank that "
                        "made it has not called `commit()`"
                    )
                    break
                time.sleep(_POLL_S)

    def close(self) -> None:
        opened = self._open
        if opened is not None and not self._may_release(opened):
            self._open = None
            self.tell_once(
                f"checkpoint `{opened.version.tag}` was not complete when the script ended, and "
                "is not kept"
            )
        self.release()
        self.writer.close()

    def tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _LOG.warning("%s", text)

    def _may_release(self, opened: _Open) -> bool:
        """At the script's end, which may have come in the middle of saving."""
        if self._crashed or (opened.is_explicit and (self._commits or not self._usual)):
            return False
        return len(opened.names) >= self._usual

    def _save_now(self, version: Version, name: str, value: Any) -> None:
        """Without memory for a copy, training waits until the object is durable."""
        self.tell_once(
            f"there is no memory for a copy of `{name}`: it is written while training waits"
        )
        self.writer.begin(Begin(version, True, time.time()))
        try:
            versions.add_object(version, name, lambda file: memory.save(value, file))
        except OSError as error:
            raise CheckpointError(
                f"`{name}` of checkpoint `{version.tag}` can't be written to {version.root}: "
                f"{error.strerror}",
                "free space, or name another folder with `nebulaml.init`",
            ) from error

    def _configuration(self) -> Configure:
        return Configure(
            ranks.rank(), self.settings.interval_s, self.settings.retention,
            settings.history_file(os.environ),
        )  # fmt: skip

    def _watch_crashes(self) -> None:
        report = sys.excepthook

        def note(*error: Any) -> None:
            self._crashed = True
            report(*error)

        sys.excepthook = note


_process: _Process | None = None


def init(
    persistent_storage_path: Any,
    persistent_time_interval: float = 100,
    num_of_version_in_retention: int = 2,
) -> None:
    """Say where checkpoints go; a later call replaces the settings.

    Args:
        persistent_storage_path: a folder, which all nodes reach.
        persistent_time_interval: seconds between checkpoints that go to storage. Those between
            them stay in memory, and are written when the script asks for them, ends or is killed.
        num_of_version_in_retention: how many checkpoints stay in memory so.

    Raises:
        CheckpointError: names the argument, or the variable, that can't be used.
    """
    global _process
    parsed = settings.parse(
        persistent_storage_path, persistent_time_interval, num_of_version_in_retention
    )
    if _process is None:
        _process = _Process(parsed)
    else:
        _process.configure(parsed)


class Checkpoint:
    """Named objects under a tag, of all ranks; to be saved, or found by the functions below."""

    def __init__(
        self,
        tag: Any = None,
        num_of_files: int = _UNTIL_RELEASED,
        *,
        persist_path: Any = None,
        is_best: bool = False,
    ) -> None:
        """Begin a checkpoint.

        Args:
            tag: its name, such as a step; without it, one is made.
            num_of_files: how many objects all ranks save together; -2 if each rank calls
                `commit`. Without it, it is whole when the script goes on to another checkpoint,
                looks for checkpoints, or ends.
            persist_path: the folder for this one, instead of the one of `init`.
            is_best: recorded with it.

        Raises:
            CheckpointError: a wrong argument, `init` was not called, or storage can't be written.
        """
        is_number = isinstance(num_of_files, int) and not isinstance(num_of_files, bool)
        if not is_number or num_of_files == 0 or num_of_files < _UNTIL_COMMIT:
            raise CheckpointError(
                f"`num_of_files` must be a number of objects >= 1, or -2, not {num_of_files!r}",
                "with -2, each rank calls `commit()` after its last `save`",
            )
        process = _require()
        self._whole: WholeVersion | None = None
        root = process.settings.root
        if persist_path is not None:
            root = settings.parse_path("persist_path", persist_path)
        self.tag = process.unnamed_tag() if tag is None or tag == "" else str(tag)
        self._opened: _Open | None = process.open(root, self.tag, num_of_files, is_best)
        if num_of_files == _UNTIL_RELEASED:
            weakref.finalize(self, _release_if_open, self._opened).atexit = False

    def save(self, name: str, value: Any) -> None:
        """Copy whatever torch.save takes to memory; it is written in the background.

        Raises:
            CheckpointError: the checkpoint is committed or was found, or the name is empty.
        """
        if not isinstance(name, str) or not name:
            raise CheckpointError(
                f"the name of an object must be a text, not {name!r}", 'such as "model"'
            )
        process = _require()
        if self._opened is None or self._opened is not process._open:
            raise CheckpointError(
                f"checkpoint `{self.tag}` takes no more objects: it was committed or loaded, or "
                "another one was begun",
                "make a new `nebulaml.Checkpoint` and save everything to it",
            )
        process.save(self._opened, name, value)

    def commit(self) -> bool:
        """Say that this rank has saved everything; False if one of its `save` failed."""
        if self._opened is None:
            raise CheckpointError(
                f"checkpoint `{self.tag}` is whole already", "only a new one is committed"
            )
        return _require().commit(self._opened)

    def load(self, name: str, map_location: Any = None) -> Any:
        """Load an object as it was saved.

        Checkpoints hold pickled objects: load only those that you trust.

        Raises:
            CheckpointError: there is none of this name, or it is damaged.
        """
        return torch.load(self._file(name), map_location=map_location, weights_only=False)

    def _file(self, name: str) -> Path:
        if self._whole is not None:
            return versions.verify(self._whole, name)
        assert self._opened is not None
        version, process = self._opened.version, _require()
        process.writer.flush()
        if name in self._opened.names and version.file(name).exists():
            return version.file(name)
        complete = versions.whole_versions(version.root, self.tag)
        if not complete:
            raise CheckpointError(
                f"checkpoint `{self.tag}` in {version.root} has no `{name}`",
                "save it first, or load a checkpoint that `list_checkpoints()` names",
            )
        return versions.verify(complete[-1], name)


def list_checkpoints(persist_path: Any = None) -> list[Checkpoint]:
    """Every whole checkpoint, from the oldest to the newest."""
    return [_found(complete) for complete in versions.whole_versions(_root(persist_path))]


def get_latest_checkpoint(persist_path: Any = None) -> Checkpoint | None:
    """The newest whole checkpoint, None without one."""
    complete = versions.whole_versions(_root(persist_path))
    return _found(complete[-1]) if complete else None


def get_checkpoint(tag: Any = None, persist_path: Any = None) -> Checkpoint | None:
    """The newest whole checkpoint of a tag, None without one; without a tag, the newest of all."""
    if tag is None or tag == "":
        return get_latest_checkpoint(persist_path)
    complete = versions.whole_versions(_root(persist_path), str(tag))
    return _found(complete[-1]) if complete else None


def get_latest_checkpoint_path(name: str, persist_path: Any = None) -> str | None:
    """The file of an object, for torch.load, in the newest whole checkpoint that has it."""
    root = _root(persist_path)
    for complete in reversed(versions.whole_versions(root)):
        if name in complete.objects:
            return str(versions.verify(complete, name))
    _LOG.warning("no whole checkpoint in %s has an object `%s`", root, name)
    return None


def remove_checkpoint(tag: str, persist_path: Any = None) -> None:
    """Delete every version of a tag; what is being written is waited for."""
    versions.remove(_root(persist_path), tag)


def _found(complete: WholeVersion) -> Checkpoint:
    checkpoint = Checkpoint.__new__(Checkpoint)
    checkpoint.tag = complete.version.tag
    checkpoint._whole, checkpoint._opened = complete, None
    return checkpoint


def _root(persist_path: Any) -> Path:
    """The folder to look in, after everything that this process saved is in storage."""
    if _process is not None:
        _process.flush()
    if persist_path is None:
        return _require().settings.root
    return settings.parse_path("persist_path", persist_path)


def _release_if_open(opened: _Open) -> None:
    if _process is not None and _process._open is opened:
        _process.release()


def _require() -> _Process:
    """
    Raises:
        CheckpointError: `init` was not called.
    """
    if _process is None:
        raise CheckpointError(
            "nebulaml is not initialized", "call `nebulaml.init(persistent_storage_path)` first"
        )
    return _process
