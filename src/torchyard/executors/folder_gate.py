"""The server's end of a shared folder: requests that nodes left there, each passed on once.

Owns: looking for requests, which of them are next, what a killed server had begun, removing what
attempts left.
Leaves: a request's way to folder_requests.py, which attempts run to folder_gates.py, what the token
permits to the server's routes.
Always: a request that the server has got is never passed on again: who asked is told that there is
no response, as when a connection breaks, and asks again where that does no harm. Requests that came
while no server ran are passed on when one runs. Out of turn, repeated or not signed by the
attempt's tokens, none is.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.executors import shared_folders
from torchyard.executors.folder_requests import BadRequest, Exchange, Gone
from torchyard.shared.folder_link import blocks
from torchyard.shared.folder_link.blocks import BlockId

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25
_ADDED = 0.05
_CONNECT_PAUSE_S = 0.2
_TIMEOUT_S = 600.0
# The server tells a worker that its attempt is over, as long as it asks at least so often.
_LINGER_S = 60.0
_QUIET_S = 5.0
_TIDY_EVERY_S = 5.0
_MOST_AT_ONCE = 256
_BEGUN, _DONE = "begun", "ended"
# Of the last request of a connection: its number, how far it is, which token has signed it.
_MARK = re.compile(r"(\d{8}) (begun|ended) (\d)\Z")
_log = logging.getLogger(__name__)

Connect = Callable[[float], http.client.HTTPConnection]
"""A connection to the server itself, not connected yet; takes a timeout in seconds."""


@dataclass
class _Attempt:
    """`requests` are the last ones begun, by connection. `heard_at` is when the last one came, or
    when the attempt was seen to run, if that was later.
    """

    tokens: tuple[str, ...]
    marks: Path
    requests: dict[str, int] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    heard_at: float = 0.0


class FolderGate:
    """
    Args:
        folder: the server's part of the shared folder.
        marks: a folder of the server's own disk; says which requests it has got.
        connect: to the server.
    """

    def __init__(self, folder: Path, marks: Path, connect: Connect) -> None:
        self.folder = folder
        self._marks = marks
        self._connect = connect
        self._attempts: dict[str, _Attempt] = {}
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._tidied_at = 0.0

    def start(self, attempts: Callable[[], Mapping[str, tuple[str, ...]]]) -> None:
        """
        Args:
            attempts: the tokens of those that run with this folder, by id.
        """
        args = (attempts,)
        self._thread = threading.Thread(
            target=self._run, args=args, name="folder-gate", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """What is not answered yet is left to the next server."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(2 * _LONGEST_PAUSE_S)

    def _run(self, attempts: Callable[[], Mapping[str, tuple[str, ...]]]) -> None:
        last_at, failure = time.monotonic(), ""
        while not self._stopped.is_set():
            try:
                if self.scan(attempts):
                    last_at = time.monotonic()
                failure = ""
            except Exception as error:
                if str(error) != failure:
                    _log.exception("the shared folder `%s` can't be read", self.folder)
                failure = str(error)
            idle_s = time.monotonic() - last_at
            self._stopped.wait(min(max(_ADDED * idle_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))

    def scan(self, attempts: Callable[[], Mapping[str, tuple[str, ...]]]) -> int:
        """Begin the requests that are next; how many.

        Raises:
            OSError: the folder can't be read.
        """
        is_due = time.monotonic() - self._tidied_at > _TIDY_EVERY_S
        # Listed before the attempts are: a folder that is made in between is not removed.
        listed = blocks.names(self.folder) if is_due else []
        running = attempts()
        for id, tokens in running.items():
            if id not in self._attempts and (self.folder / id).exists():
                self._attempts[id] = self._opened(id, tokens)
        count = sum(self._scan_attempt(id, self._attempts[id]) for id in list(self._attempts))
        if is_due:
            self._tidied_at = time.monotonic()
            self._tidy(listed, running)
        return count

    def _opened(self, id: str, tokens: tuple[str, ...]) -> _Attempt:
        """An attempt as it was left, with resets of what the last server had begun."""
        attempt = _Attempt(tokens, self._marks / id, heard_at=time.monotonic())
        attempt.marks.mkdir(mode=0o700, parents=True, exist_ok=True)
        for mark in attempt.marks.iterdir():
            match = _MARK.match(mark.read_text())
            if match is None or not blocks.is_connection(mark.name):
                continue
            attempt.requests[mark.name] = int(match[1])
            if match[2] == _BEGUN:
                block_id = BlockId(id, mark.name, int(match[1]), 0, False)
                self._exchange(block_id, tokens[int(match[3])]).reset()
                _note(mark, block_id, _DONE, int(match[3]))
        return attempt

    def _exchange(self, block_id: BlockId, token: str) -> Exchange:
        folder = self.folder / block_id.attempt
        return Exchange(folder, block_id, token, self._stopped.is_set)

    def _scan_attempt(self, id: str, attempt: _Attempt) -> int:
        requests = self.folder / id / blocks.REQUESTS
        try:
            names = blocks.names(requests)
        except FileNotFoundError:
            return 0
        count = 0
        for name in names:
            block_id = blocks.request_of(id, name)
            if block_id is None or block_id.connection in attempt.active:
                continue
            last = attempt.requests.get(block_id.connection, 0)
            if not (self.folder / id / block_id.connection).exists() or block_id.request <= last:
                blocks.remove(requests, block_id)
            elif block_id.number == 0 and block_id.request == last + 1:
                count += self._begin(attempt, block_id)
        return count

    def _begin(self, attempt: _Attempt, block_id: BlockId) -> bool:
        if not self._slots.acquire(blocking=False):
            return False
        attempt.heard_at = time.monotonic()
        with self._lock:
            attempt.active.add(block_id.connection)
        threading.Thread(
            target=self._carry, args=(attempt, block_id), name="folder-request", daemon=True
        ).start()
        return True

    def _carry(self, attempt: _Attempt, block_id: BlockId) -> None:
        try:
            self._pass_on(attempt, block_id)
        except Gone:
            pass
        except blocks.Forged as error:
            _log.warning("a request in `%s` was refused: %s", self.folder / block_id.attempt, error)
            # Somebody else has put it there: out of the way, and nobody is answered.
            blocks.remove(self.folder / block_id.attempt / blocks.REQUESTS, block_id)
        except Exception:
            _log.exception("a request in `%s` failed", self.folder / block_id.attempt)
        finally:
            with self._lock:
                attempt.active.discard(block_id.connection)
            self._slots.release()

    def _pass_on(self, attempt: _Attempt, block_id: BlockId) -> None:
        signer = self._signer(attempt, block_id)
        connection = self._connected(block_id)
        mark = attempt.marks / block_id.connection
        # From here on the server may have got it, whatever happens to this process.
        _note(mark, block_id, _BEGUN, signer)
        attempt.requests[block_id.connection] = block_id.request
        exchange = self._exchange(block_id, attempt.tokens[signer])
        try:
            exchange.pass_on(connection, exchange.head())
        except Exception as error:
            if self._stopped.is_set():
                return  # the next server resets it
            if isinstance(error, BadRequest | blocks.Forged):
                _log.warning("a node of attempt `%s` sent %s", block_id.attempt, error)
            elif not isinstance(error, OSError | http.client.HTTPException):
                _log.exception("a request in `%s` failed", self.folder / block_id.attempt)
            exchange.reset()
        finally:
            connection.close()
        _note(mark, block_id, _DONE, signer)

    def _signer(self, attempt: _Attempt, block_id: BlockId) -> int:
        """Which of the attempt's tokens it is.

        Raises:
            Forged: none of the attempt's tokens has signed the request.
        """
        requests = self.folder / block_id.attempt / blocks.REQUESTS
        last = len(attempt.tokens) - 1
        for index, token in enumerate(attempt.tokens[:last]):
            with contextlib.suppress(blocks.Forged):
                blocks.read(requests, block_id, blocks.key_of(token))
                return index
        blocks.read(requests, block_id, blocks.key_of(attempt.tokens[last]))
        return last

    def _connected(self, block_id: BlockId) -> http.client.HTTPConnection:
        """A connection to the server, once it listens.

        Raises:
            Gone: it ends, or who asked has left.
        """
        while True:
            connection = self._connect(_TIMEOUT_S)
            try:
                connection.connect()
                return connection
            except OSError:
                connection.close()
            if not (self.folder / block_id.attempt / block_id.connection).exists():
                raise Gone("the connection is closed")
            if self._stopped.wait(_CONNECT_PAUSE_S):
                raise Gone("the server is ending")

    def _tidy(self, listed: list[str], running: Mapping[str, tuple[str, ...]]) -> None:
        """Forget closed connections, and remove the folders of attempts that are over."""
        now = time.monotonic()
        for id in [*self._attempts]:
            attempt, folder = self._attempts[id], self.folder / id
            try:
                connections = {name for name in blocks.names(folder) if blocks.is_connection(name)}
            except FileNotFoundError:
                connections = set()
            for name in set(attempt.requests) - connections - attempt.active:
                del attempt.requests[name]
                (attempt.marks / name).unlink(missing_ok=True)
            if id in running or attempt.active:
                attempt.heard_at = now
            if now - attempt.heard_at > (_LINGER_S if connections else _QUIET_S):
                del self._attempts[id]
                self._remove(id)
        for id in listed:
            if id not in running and id not in self._attempts and id != blocks.WORKERS:
                self._remove(id)

    def _remove(self, id: str) -> None:
        shared_folders.remove_attempt(self.folder, id)
        shutil.rmtree(self._marks / id, ignore_errors=True)


def _note(mark: Path, block_id: BlockId, state: str, signer: int) -> None:
    """In one write of a length that is always the same, so that a killed server leaves none cut."""
    descriptor = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, b"%08d %b %d" % (block_id.request, state.encode(), signer))
    finally:
        os.close(descriptor)
