"""The control socket: what the server asks the router, and how.

Owns: the socket `control.sock` in the router's folder, both its ends.
Leaves: the answers' content to routes.py and program.py.
Always: one JSON line is asked, one answered, on a connection of its own; the socket is its owner's.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchyard.shared import descriptors, unix_sockets

SOCKET = "control.sock"
_LONGEST = 64 << 10
_ANSWER_MOST_BYTES = 256 << 20
_ASK_LIMIT_S = 10.0
Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class RouterAway(OSError):
    """No router answers."""


def ask(folder: Path, question: dict[str, Any], timeout_s: float = 5.0) -> dict[str, Any]:
    """Ask the router of `folder`.

    Raises:
        RouterAway: it does not run, or did not answer in time.
    """
    try:
        with _connected(folder, timeout_s) as connection:
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as reader:
                answer = json.loads(reader.readline(_ANSWER_MOST_BYTES))
    except (OSError, ValueError) as error:
        raise RouterAway(f"the router of `{folder}` does not answer: {error}") from error
    if not isinstance(answer, dict):
        raise RouterAway(f"the router of `{folder}` answered something else")
    return answer


def _connected(folder: Path, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        unix_sockets.connect(connection, str(folder / SOCKET))
    except BaseException:
        connection.close()
        raise
    return connection


def take_over(folder: Path, timeout_s: float = 5.0) -> socket.socket | None:
    """The listening socket of the router of `folder`, which stops after its requests at work.

    Connections that wait to be accepted stay in the socket: none is refused.

    Returns:
        None when no router gives it.
    """
    try:
        with _connected(folder, timeout_s) as connection:
            connection.sendall(json.dumps({"ask": "handover"}).encode() + b"\n")
            _, passed, _ = descriptors.receive_message(connection, _LONGEST, 1)
    except OSError:
        return None
    return socket.socket(fileno=passed[0]) if passed else None


async def listen(
    folder: Path, answer: Answer, hand_over: Callable[[socket.socket], None]
) -> asyncio.AbstractServer:
    """Answer at the folder's socket.

    Args:
        answer: gets a question; a ValueError becomes the answer's `error`.
        hand_over: sends the listener through the connection that asked for it, and stops.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.TimeoutError):
            await _serve(reader, writer, answer, hand_over)
        writer.close()

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A socket's path has at most 107 bytes, a home may have more.
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{opened}/{SOCKET}"
        with suppress(FileNotFoundError):
            os.unlink(path)
        mask = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
    finally:
        os.close(opened)
    return await asyncio.start_unix_server(serve, sock=listener, limit=_LONGEST)


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: Answer,
    hand_over: Callable[[socket.socket], None],
) -> None:
    line = await asyncio.wait_for(reader.readline(), _ASK_LIMIT_S)
    try:
        question = json.loads(line)
        if not isinstance(question, dict):
            raise ValueError("not an object")
        if question.get("ask") == "handover":
            descriptor = os.dup(writer.get_extra_info("socket").fileno())
            with socket.socket(fileno=descriptor) as connection:
                hand_over(connection)
            return
        answered = await answer(question)
    except (ValueError, RecursionError) as error:
        answered = {"error": str(error)}
    writer.write(json.dumps(answered).encode() + b"\n")
    await asyncio.wait_for(writer.drain(), _ASK_LIMIT_S)
