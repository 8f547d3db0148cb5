"""Copy this node's checkpoints to a peer node until the server has them.

Owns: which checkpoints are copied, telling the peer which copies are still needed.
Leaves: which checkpoints are whole and what the server has to checkpoint_delivery.py, keeping
copies to peer_keeper.py.
Always: it works in a thread of low priority beside the delivery, after a checkpoint is committed,
and costs no job anything when the peer is silent, full or gone.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torchyard.worker.files.uploads import files_below
from torchyard.worker.node.peer_channel import Channel

MANIFEST = "manifest.json"
MOST_CHECKPOINTS = 2
"""How many have a copy at once: the newest of those that the server lacks."""
KEEP, FILE, DONE = "keep", "file", "done"
_EVERY_S = 1.0
_END_S = 5.0
_LOWER_PRIORITY = 10
_MOST_FAILURES = 3
# What of a file tells whether it was written again: its size, and when it was, in ns.
_State = tuple[int, int]


class Source(Protocol):
    """The checkpoints of this node."""

    def complete_checkpoints(self) -> list[Path]:
        """Folders of those that are committed."""

    def is_sent(self, file: Path) -> bool:
        """Whether the server has the file as it is."""


class PeerSender:
    """Works in a thread between `start` and `finish`.

    Args:
        connect: to the peer; raises OSError.
        notify: shows a sentence to the user; said once each.
    """

    def __init__(
        self,
        source: Source,
        connect: Callable[[], Channel],
        notify: Callable[[str], None],
        every_s: float = _EVERY_S,
    ) -> None:
        self._source = source
        self._connect = connect
        self._notify = notify
        self._every_s = every_s
        self._ending = threading.Event()
        self._channel: Channel | None = None
        self._was_connected = self._was_told = False
        # By checkpoint and file, what the peer has, as it was.
        self._copied: dict[tuple[str, str], _State] = {}
        # By checkpoint, the manifest of those that the peer has whole.
        self._complete: dict[str, _State] = {}
        self._refused: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._is_keeping = False
        self._thread = threading.Thread(target=self._run, name="peer-copies", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, delivered: bool) -> None:
        """End soon; the peer drops its copies if this node has `delivered` all by itself."""
        self._ending.set()
        self._thread.join(_END_S)
        if self._thread.is_alive() and self._channel is not None:
            self._channel.close()
            self._thread.join(_END_S)
        if delivered and self._is_keeping and not self._thread.is_alive():
            try:
                self._ask({"kind": DONE})
            except (OSError, ValueError) as error:
                _log(error)
        self._drop()

    def copy(self) -> None:
        """One look at all checkpoints.

        Raises:
            OSError, ValueError: the peer can't be reached, or does not answer as one.
        """
        checkpoints = self._unsent_checkpoints()
        if not checkpoints and not self._is_keeping:
            return
        names = [folder.name for folder in checkpoints]
        stored = self._ask({"kind": KEEP, "names": names}).get("held")
        self._is_keeping = bool(checkpoints)
        self._copied = {key: state for key, state in self._copied.items() if key[0] in names}
        self._complete = {name: state for name, state in self._complete.items() if name in names}
        # What it has dropped for want of space is not sent again.
        self._refused |= set(self._complete) - set(stored if isinstance(stored, list) else [])
        for folder in checkpoints:
            if folder.name not in self._refused:
                self._copy(folder)

    def _run(self) -> None:
        lower_priority()
        while not self._ending.wait(self._every_s):
            try:
                self.copy()
            except (OSError, ValueError) as error:
                self._drop()
                if self._ending.is_set():
                    return
                _log(error)
                if not self._was_connected:
                    self._tell(f"its peer can't be reached: {error}")

    def _unsent_checkpoints(self) -> list[Path]:
        """The newest that the server lacks, the newest last."""
        lacking = []
        for folder in self._source.complete_checkpoints():
            try:
                written_ns = os.stat(folder / MANIFEST).st_mtime_ns
            except OSError:
                continue  # deleted meanwhile
            if not all(self._source.is_sent(file) for file in files_below(folder)):
                lacking.append((written_ns, folder))
        return [folder for _, folder in sorted(lacking)[-MOST_CHECKPOINTS:]]

    def _copy(self, folder: Path) -> None:
        manifest = folder / MANIFEST
        try:
            state = _state(os.stat(manifest))
            if self._complete.get(folder.name) == state:
                return
            files = [file for file in files_below(folder) if file != manifest]
            for file in [*files, manifest]:
                if self._ending.is_set() or not self._send(folder, file):
                    return
        except FileNotFoundError:
            return  # deleted meanwhile
        except OSError:
            self._failures[folder.name] += 1
            if self._failures[folder.name] >= _MOST_FAILURES and not self._ending.is_set():
                self._refused.add(folder.name)
                self._tell(f"{folder.name} could not be copied, see worker.log")
            raise
        self._complete[folder.name] = state

    def _send(self, folder: Path, file: Path) -> bool:
        """False if the peer does not take it."""
        path = file.relative_to(folder).as_posix()
        with open(file, "rb") as opened:
            status = os.fstat(opened.fileno())
            is_there = self._copied.get((folder.name, path)) == _state(status)
            if path != MANIFEST and (is_there or self._source.is_sent(file)):
                return True
            answer = self._ask(
                {"kind": FILE, "name": folder.name, "path": path, "size": status.st_size}
            )
            if answer.get("refused"):
                self._refused.add(folder.name)
                self._tell(str(answer["refused"]))
                return False
            channel = self._channel
            assert channel is not None
            channel.send_file(opened, status.st_size, self._ending.is_set)
            channel.receive()
        self._copied[folder.name, path] = _state(status)
        return True

    def _ask(self, message: dict[str, object]) -> dict[str, object]:
        if self._channel is None:
            self._channel = self._connect()
            self._was_connected = True
        self._channel.send(message)
        return self._channel.receive()

    def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _tell(self, reason: str) -> None:
        if not self._was_told:
            self._was_told = True
            self._notify(reason)


def _state(status: os.stat_result) -> _State:
    return status.st_size, status.st_mtime_ns


def lower_priority() -> None:
    """Of this thread: what trains goes first."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWER_PRIORITY)
    except OSError:
        pass


def _log(error: Exception) -> None:
    print(f"copies of checkpoints: {error}", file=sys.stderr, flush=True)
