"""Deliver checkpoints while the ranks run, from a node whose disk may be lost with it.

Owns: which folders below `./outputs/checkpoints` are whole checkpoints, and which of their files
the server has.
Leaves: everything else below `./outputs` to delivery.py, when the ranks have ended.
Always: a checkpoint's manifest is sent last, so that the server never holds one that looks whole
and is not; what a script deletes is deleted on the server. It never fails or holds up a job.

`torchyard.train` renames `step-N/manifest.json` into place when all else in the folder is durable;
a script that does the same has its checkpoints delivered as well.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from torchyard.shared.connection import Connection, Refused
from torchyard.worker.files.uploads import files_below, upload_file, utf8_path

FOLDER = "checkpoints"
MANIFEST = "manifest.json"
_EVERY_S = 2.0
_END_S = 1.0


class _State(NamedTuple):
    """What of a file tells whether it was written again."""

    size_bytes: int
    written_ns: int


class CheckpointDelivery:
    """Works in a thread between `start` and `close`.

    Args:
        outputs: the ranks' `./outputs`.
    """

    def __init__(self, link: Connection, outputs: Path, every_s: float = _EVERY_S) -> None:
        self._link = link
        self._folder = outputs / FOLDER
        self._every_s = every_s
        self._ending = threading.Event()
        self._sent: dict[Path, _State] = {}
        self._refused: set[Path] = set()
        # What an earlier attempt left came from the server.
        for checkpoint in self.complete_checkpoints():
            for file in files_below(checkpoint):
                self._sent[file] = _state(file)
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End soon; what was not sent is left to the delivery of all outputs."""
        self._ending.set()
        self._thread.join(_END_S)

    def is_sent(self, file: Path) -> bool:
        """Whether the server has the file as it is."""
        state = self._sent.get(file)
        try:
            return state is not None and state == _state(file)
        except OSError:
            return False

    def deliver(self) -> None:
        """One look at all checkpoints.

        Raises:
            OSError: the server is unreachable; try again later.
        """
        checkpoints = self.complete_checkpoints()
        for checkpoint in checkpoints:
            if not self._ending.is_set():
                self._send(checkpoint)
        removed = {file.parent for file in self._sent} - set(checkpoints)
        for checkpoint in sorted(folder for folder in removed if not folder.exists()):
            self._delete(checkpoint)

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self.deliver()
            except OSError as error:
                print(f"checkpoints wait: {error}", file=sys.stderr, flush=True)
        self._link.close()

    def complete_checkpoints(self) -> list[Path]:
        """The folders of whole checkpoints, by name."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return []
        folders = [self._folder / name for name in names if not name.startswith(".")]
        return [folder for folder in folders if (folder / MANIFEST).is_file()]

    def _send(self, checkpoint: Path) -> None:
        manifest = checkpoint / MANIFEST
        files = [file for file in files_below(checkpoint) if file != manifest]
        for file in [*files, manifest]:
            if self._ending.is_set() or file in self._refused:
                return
            if self.is_sent(file):
                continue
            try:
                state = _state(file)
                upload_file(self._link, file, self._target(file))
            except FileNotFoundError:
                return  # it was deleted meanwhile
            except Refused as refusal:
                print(f"{file}: {refusal.status} {refusal.body}", file=sys.stderr, flush=True)
                self._refused.add(file)
                return
            self._sent[file] = state

    def _delete(self, checkpoint: Path) -> None:
        try:
            self._link.call("DELETE", self._target(checkpoint))
        except Refused as refusal:
            print(f"{checkpoint}: {refusal.status} {refusal.body}", file=sys.stderr, flush=True)
        for file in [file for file in self._sent if file.parent == checkpoint]:
            del self._sent[file]

    def _target(self, path: Path) -> str:
        return target_of(path.relative_to(self._folder))


def target_of(path: Path) -> str:
    """Where a file goes on the server; `path` is relative to the folder of all checkpoints."""
    return f"/files/outputs/{FOLDER}/{quote(utf8_path(path))}"


def _state(file: Path) -> _State:
    status = os.stat(file)
    return _State(status.st_size, status.st_mtime_ns)
