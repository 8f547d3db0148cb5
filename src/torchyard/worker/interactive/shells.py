"""A shell, or one command, beside a rank, at the other end of a channel.

Owns: the terminal or the pipes, what is typed and printed, resizing, the end.
Leaves: the process to launch/guests.py, the channel to tunnel.py.
Always: when the person's end is gone its session gets SIGHUP, and SIGKILL what stays of it;
output that a person does not read makes the program wait, and fills no memory.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torchyard.shared import channels
from torchyard.shared.channels import BadFrames, Decoder, Frame
from torchyard.worker.interactive.tunnel import Channel, ChannelClosed
from torchyard.worker.launch.guests import Guest, Guests

_READ_BYTES = channels.PIECE_BYTES
_POLL_MS = 500
_KILL_AFTER_S = 3.0
_SETTLE_S = 0.5
_MOST_CELLS = 10_000
_TERM = re.compile(r"[A-Za-z0-9+._-]{1,64}\Z")


@dataclass(frozen=True)
class ShellRequest:
    """What the server asks for; `command` is empty for an interactive shell."""

    local_rank: int
    command: tuple[str, ...]
    has_terminal: bool
    rows: int
    columns: int
    term: str

    @classmethod
    def read(cls, request: Mapping[str, Any]) -> ShellRequest:
        term = str(request.get("term", ""))
        return cls(
            int(request.get("local_rank", 0)),
            tuple(str(word) for word in request.get("command") or ()),
            request.get("terminal") is True,
            _cells(request.get("rows"), 24),
            _cells(request.get("columns"), 80),
            term if _TERM.match(term) else "xterm",
        )


def serve(channel: Channel, request: Mapping[str, Any], guests: Guests) -> None:
    """Run it until it ends, or until the other end is gone."""
    shell_request = ShellRequest.read(request)
    streams = _Terminal(shell_request) if shell_request.has_terminal else _Pipes()
    try:
        guest = Guest(
            shell_request.command or ("",),
            shell_request.local_rank,
            {"TERM": shell_request.term, "TORCHYARD_SHELL": "1"},
            streams.actions,
        )
        guests.start(guest)
        if not guest.wait_for_start():
            body = {"message": f"no shell can be opened: {guest.error}"}
            _send(channel, channels.REFUSED, json.dumps(body).encode())
            channel.end()
            return
        streams.given_away()
        _Session(channel, guest, guests, streams).run()
    finally:
        streams.close()


class _Terminal:
    """A pseudo-terminal, whose master side is here."""

    def __init__(self, request: ShellRequest) -> None:
        self._master, self._slave = os.openpty()
        self.resize(request.rows, request.columns)
        os.set_blocking(self._master, False)
        # A session leader without a terminal gets the first that it opens as its own.
        name = os.ttyname(self._slave)
        self.actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
        self.outputs = {self._master: channels.OUTPUT}
        self.input = self._master

    def given_away(self) -> None:
        os.close(self._slave)
        self._slave = -1

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end_input(self) -> None:
        """What Ctrl-D does."""
        with suppress(OSError):
            os.write(self._master, b"\x04")

    def close(self) -> None:
        for descriptor in (self._master, self._slave):
            if descriptor >= 0:
                os.close(descriptor)
        self._master = self._slave = -1


class _Pipes:
    """For a command whose input or output is not a terminal."""

    def __init__(self) -> None:
        stdin, self.input = os.pipe()
        output, stdout = os.pipe()
        errors, stderr = os.pipe()
        os.set_blocking(self.input, False)
        self._theirs = [stdin, stdout, stderr]
        self._lock = threading.Lock()
        self.actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ]
        self.outputs = {output: channels.OUTPUT, errors: channels.ERROR_OUTPUT}

    def given_away(self) -> None:
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs = []

    def resize(self, rows: int, columns: int) -> None:
        """Pipes have no size."""

    def end_input(self) -> None:
        with self._lock:
            if self.input >= 0:
                os.close(self.input)
                self.input = -1

    def close(self) -> None:
        self.given_away()
        self.end_input()
        for descriptor in self.outputs:
            os.close(descriptor)
        self.outputs = {}


class _Session:
    """A running process between its streams and the channel."""

    def __init__(
        self, channel: Channel, guest: Guest, guests: Guests, streams: _Terminal | _Pipes
    ) -> None:
        self._channel = channel
        self._guest = guest
        self._guests = guests
        self._streams = streams
        self._is_over = self._is_hung_up = False
        self._hanging_up = threading.Lock()

    def run(self) -> None:
        reader = threading.Thread(target=self._read_input, name="shell-input", daemon=True)
        reader.start()
        try:
            self._pass_output()
            if not self._guest.has_ended:
                self._hang_up()
            self._guest.wait_for_end(_KILL_AFTER_S)
            code = 1 if self._guest.exit_code is None else self._guest.exit_code
            _send(self._channel, channels.EXIT, json.dumps({"code": code}).encode())
            self._channel.end()
        except ChannelClosed:
            self._hang_up()
        finally:
            self._is_over = True
            # The descriptors are closed only when nobody writes to them any more.
            self._channel.cut()
            reader.join()

    def _pass_output(self) -> None:
        """Until the process has ended and its output is read, or nobody has the streams open.

        What it leaves running may keep them open; nobody waits for that.
        """
        poll = select.poll()
        for descriptor in self._streams.outputs:
            poll.register(descriptor, select.POLLIN)
        left = dict(self._streams.outputs)
        while left and not self._channel.is_over:
            had_ended = self._guest.has_ended
            ready = poll.poll(0 if had_ended else _POLL_MS)
            if had_ended and not ready:
                return
            for descriptor, _ in ready:
                data = _read(descriptor)
                if data:
                    _send(self._channel, left[descriptor], data)
                elif data is not None:
                    poll.unregister(descriptor)
                    del left[descriptor]
        if self._channel.is_over:
            raise ChannelClosed
        self._guest.wait_for_end()

    def _read_input(self) -> None:
        decoder = Decoder()
        try:
            while data := self._channel.read():
                for frame in decoder.feed(data):
                    self._take(frame)
            self._streams.end_input()
        except ChannelClosed:
            if not self._is_over:
                self._hang_up()
        except (BadFrames, ValueError, OSError) as error:
            self._channel.close(f"the shell's input failed: {error}")

    def _take(self, frame: Frame) -> None:
        if frame.kind == channels.INPUT:
            self._write(frame.payload)
        elif frame.kind == channels.INPUT_END:
            self._streams.end_input()
        elif frame.kind == channels.RESIZE:
            size = json.loads(frame.payload)
            self._streams.resize(_cells(size.get("rows"), 24), _cells(size.get("columns"), 80))

    def _write(self, data: bytes) -> None:
        """Returns when the process can read it; drops it when nobody will."""
        poll = select.poll()
        if self._streams.input < 0:
            return
        poll.register(self._streams.input, select.POLLOUT)
        at = 0
        while at < len(data) and not self._guest.has_ended and not self._channel.is_over:
            events = poll.poll(_POLL_MS)
            if events and events[0][1] & (select.POLLERR | select.POLLNVAL):
                return
            if events:
                try:
                    at += os.write(self._streams.input, data[at : at + _READ_BYTES])
                except BlockingIOError:
                    continue
                except OSError:
                    return  # its end is closed

    def _hang_up(self) -> None:
        with self._hanging_up:
            if self._is_hung_up:
                return
            self._is_hung_up = True
        self._guests.send(self._guest, signal.SIGHUP)
        self._guest.wait_for_end(_KILL_AFTER_S)
        time.sleep(_SETTLE_S)
        self._guests.send(self._guest, signal.SIGKILL)


def _send(channel: Channel, kind: int, payload: bytes) -> None:
    channel.write(Frame(0, kind, payload).to_bytes())


def _read(descriptor: int) -> bytes | None:
    """What is there; empty at the end, None for nothing yet."""
    try:
        return os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # nobody has the terminal open any more
            return b""
        raise


def _cells(value: Any, default: int) -> int:
    is_size = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_CELLS
    return int(value) if is_size else default
