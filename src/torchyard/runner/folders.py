"""A folder that a person named, opened as an account of theirs for the server.

Owns: answering one server's task on it, message by message, until it hangs up.
Leaves: which account to accounts.py, opening below the folder to shared/beneath.py.
Always: this process is the account, and no more than it can be done for the server; it ends with
the connection, or when nothing is asked for long.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable
from typing import Any, NoReturn

from torchyard.runner.config import Refused
from torchyard.shared import beneath
from torchyard.shared import runner_messages as messages

_IDLE_LIMIT_S = 300
_MOST_NAMES = 4_000

Answer = tuple[Any, list[int]]


def serve(connection: socket.socket, path: str, make: bool) -> NoReturn:
    """Open the folder, and do with it what each message says. Called as the account.

    Args:
        make: the folder, if it is missing.

    Raises:
        Refused: it can't be opened; before anything was answered.
    """
    root = _open(path, make)
    real = os.path.realpath(path)
    messages.send(connection, {"ok": {"real": real}})
    try:
        while True:
            signal.alarm(_IDLE_LIMIT_S)
            body, received = messages.receive(connection)
            for descriptor in received:
                os.close(descriptor)
            answer, descriptors = _answer(root, body)
            messages.send(connection, answer, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
    except (messages.BadMessage, OSError):
        os._exit(0)  # the server has what it wanted


def _open(path: str, make: bool) -> int:
    if not path.startswith("/"):
        raise Refused("bad_request", "the folder has no absolute path")
    # Links on the way to it are the choice of who named it; none comes into the path after this.
    real = os.path.realpath(path)
    try:
        if make and not os.path.isdir(real):
            os.makedirs(real, mode=0o700, exist_ok=True)
        root = beneath.open_root(real)
        # To have it open says nothing yet: this fails where the account may not go into it.
        os.stat(".", dir_fd=root)
        return root
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Refused("no_folder", f"`{path}` is no folder") from error
    except OSError as error:
        raise Refused(
            "folder_closed", f"`{path}` can't be opened as the account: {error.strerror}"
        ) from error


def _answer(root: int, body: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    try:
        value, descriptors = _TASKS[str(body.get("task"))](root, body)
    except OSError as error:
        is_link = isinstance(error, beneath.LeadsOut)
        kind = "link" if is_link else "irregular" if isinstance(error, beneath.NotRegular) else ""
        return {"error": {"errno": error.errno or 0, "kind": kind}}, []
    except (KeyError, TypeError, ValueError):
        return {"error": {"errno": 22, "kind": ""}}, []
    return {"ok": value}, descriptors


def _look(root: int, body: dict[str, Any]) -> Answer:
    found = beneath.look(root, _text(body, "path"))
    return (None if found is None else list(found)), []


def _names(root: int, body: dict[str, Any]) -> Answer:
    """One page: what sorts after `after`."""
    after = _text(body, "after")
    found = sorted(beneath.names(root, _text(body, "path")))
    page = [list(each) for each in found if each.path > after][:_MOST_NAMES]
    return page, []


def _open_file(root: int, body: dict[str, Any]) -> Answer:
    return None, [beneath.open_file(root, _text(body, "path"))]


def _begin(root: int, body: dict[str, Any]) -> Answer:
    folder_mode, file_mode = (
        stat.S_IMODE(int(body[key])) & 0o777 for key in ("folder_mode", "file_mode")
    )
    path, draft = _text(body, "path"), _text(body, "draft")
    return None, [beneath.begin(root, path, draft, folder_mode, file_mode)]


def _finish(root: int, body: dict[str, Any]) -> Answer:
    beneath.finish(root, _text(body, "path"), _text(body, "draft"))
    return None, []


def _discard(root: int, body: dict[str, Any]) -> Answer:
    beneath.discard(root, _text(body, "path"), _text(body, "draft"))
    return None, []


def _remove(root: int, body: dict[str, Any]) -> Answer:
    beneath.remove(root, _text(body, "path"))
    return None, []


def _text(body: dict[str, Any], key: str) -> str:
    value = body[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


_TASKS: dict[str, Callable[[int, dict[str, Any]], Answer]] = {
    "look": _look,
    "names": _names,
    "open_file": _open_file,
    "begin": _begin,
    "finish": _finish,
    "discard": _discard,
    "remove": _remove,
}
