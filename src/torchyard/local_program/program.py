"""The program that runs a script in the user's own Python, on the user's own machine.

Owns: the script's process, sending what it prints, its exit code and its files.
Leaves: what the run is then to azureml/sdk_v1/local_runs.py.
Always: it outlives the client and its terminal; an unreachable server is waited for, and the script
never waits for it. It is one file with the standard library, for Python 3.9 and later.

Source: azureml-core 1.61, `azureml/core/script_run.py`: `cancel` makes the file `killfile`.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

LOG, TASK = "torchyard.log", "task.json"
_KILL_FILE, _PRINTED, _LOG_NAME = "killfile", "std_log.txt", "user_logs/std_log.txt"
_SECRETS = {"MSI_ENDPOINT": "MSI_SECRET", "IDENTITY_ENDPOINT": "IDENTITY_HEADER"}
_PIECE_BYTES, _LAST_BYTES = 1 << 18, 1 << 12
_START_WAIT_S, _END_WAIT_S, _RETRY_S = 600.0, 86_400.0, 1.0
_SEND_S, _HEARTBEAT_S, _POLL_S, _GRACE_S = 1.0, 10.0, 0.3, 5.0
# The run is gone, or its person may not change it any more.
_OVER = (401, 403, 404)


def main(folder: str) -> int:
    """
    Args:
        folder: `azureml-setup` in the run's own folder.
    """
    setup = Path(folder)
    if os.fork():
        return 0
    # Neither Ctrl-C in the client's terminal nor its end is the run's.
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(setup / LOG, "ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        return _run(setup)
    except BaseException:
        traceback.print_exc()
        return 1


def token_for(server: str, variables: Mapping[str, str]) -> str:
    """The user's token, as `yard client-env` has put it there; empty when it has not.

    Args:
        server: as the client named it, `https://host:port`.
    """
    for address, secret in _SECRETS.items():
        if variables.get(address, "").startswith(f"{server}/"):
            return variables.get(secret, "")
    return ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is never followed, so that a token goes to no other server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Server:
    """The server as the program of one run asks it."""

    def __init__(self, task: Mapping[str, Any], token: str) -> None:
        self._task, self._token = task, token
        self._open = urllib.request.build_opener(_NoRedirect).open

    def call(self, method: str, path: str, body: Any = None, wait_s: float = 0.0) -> dict[str, Any]:
        """Ask below the run, again for `wait_s` while the server is unreachable.

        Raises:
            HTTPError: the server refuses it.
            OSError: the server is unreachable.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return self._again(wait_s, method, self._task["run"] + path, content, headers)

    def put_file(self, name: str, file: Path) -> None:
        """As `call`, with a file of the run."""
        path = f"{self._task['files']}/{quote(name)}"
        with open(file, "rb") as content:
            headers = {"Content-Length": str(os.fstat(content.fileno()).st_size)}
            self._again(_END_WAIT_S, "PUT", path, content, headers)

    def _again(
        self, wait_s: float, method: str, path: str, content: Any, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        until = time.monotonic() + wait_s
        headers = {**headers, "Authorization": f"Bearer {self._token}"}
        while True:
            if hasattr(content, "seek"):
                content.seek(0)
            request = urllib.request.Request(
                self._task["server"] + path, content, headers, method=method
            )
            try:
                with self._open(request, timeout=60) as response:
                    answer: dict[str, Any] = json.loads(response.read() or b"{}")
                    return answer
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                    raise
                if time.monotonic() > until:
                    raise OSError(str(error)) from error
            time.sleep(_RETRY_S)


class _Printed:
    """What the script has printed, on its way to the server."""

    def __init__(self, server: _Server, file: Path) -> None:
        self._server, self._file, self._offset = server, file, 0

    @property
    def is_sent(self) -> bool:
        return self._offset == self._file.stat().st_size

    def send(self, last: bool = False, wait_s: float = 0.0) -> str:
        """Send whole lines, or none, or what is there if it is the last; the run's status."""
        with open(self._file, "rb") as file:
            file.seek(self._offset)
            piece = file.read(_PIECE_BYTES)
        is_full = len(piece) == _PIECE_BYTES
        if is_full or not last:
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
            piece = piece[:end] if end or not is_full else piece
        content = base64.b64encode(piece).decode()
        body = {"path": _LOG_NAME, "offset": self._offset, "content": content}
        answer = self._server.call("PUT", "/logs", body, wait_s)
        self._offset += len(piece)
        return str(answer["status"])

    def last_line(self) -> str:
        with open(self._file, "rb") as file:
            file.seek(max(0, self._file.stat().st_size - _LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _run(setup: Path) -> int:
    task = json.loads((setup / TASK).read_text(encoding="utf-8"))
    token = token_for(task["server"], os.environ)
    if not token:
        print(f"the environment holds no token for {task['server']}: run `yard client-env`")
        return 1
    server = _Server(task, token)
    variables = server.call("POST", "", {}, _START_WAIT_S)["variables"]
    for name in ("outputs", "logs"):
        (setup.parent / name).mkdir(exist_ok=True)
    (setup / _PRINTED).touch()
    printed = _Printed(server, setup / _PRINTED)
    end = _script(task, setup, printed, {**os.environ, "PYTHONUNBUFFERED": "1", **variables})
    try:
        while not printed.is_sent:
            printed.send(True, _END_WAIT_S)
        for name, file in _files(setup.parent) if task["keeps_outputs"] else ():
            server.put_file(name, file)
    except OSError as error:
        message = f"what the script wrote could not be sent: {error}"
        print(message)
        if end["status"] == "Completed":
            end = {**end, "status": "Failed", "message": message}
    server.call("PUT", "/end", end, _END_WAIT_S)
    return 0


def _script(
    task: Mapping[str, Any], setup: Path, printed: _Printed, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Run it; how it ended."""
    with open(setup / _PRINTED, "ab") as output:
        process = subprocess.Popen(
            ["/bin/bash", "-c", task["command"]],
            cwd=setup.parent,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    canceled, over = threading.Event(), threading.Event()
    sender = threading.Thread(target=_send, args=(printed, canceled, over), daemon=True)
    sender.start()
    began, message = time.monotonic(), ""
    while process.poll() is None:
        if canceled.is_set() or (setup / _KILL_FILE).exists():
            canceled.set()
            _end(process)
        elif task["limit_s"] and time.monotonic() - began > task["limit_s"]:
            message = f"the run took longer than its limit of {task['limit_s']} seconds"
            _end(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
    over.set()
    sender.join()
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if canceled.is_set():
        return {"status": "Canceled", "exit_code": code}
    if code and not message:
        message = f"the script ended with exit code {code}: {printed.last_line()}"
    return {"status": "Failed" if message else "Completed", "exit_code": code, "message": message}


def _send(printed: _Printed, canceled: threading.Event, over: threading.Event) -> None:
    """Send what is printed, and notice a cancel from elsewhere."""
    due_at = 0.0
    while not over.wait(_SEND_S):
        if printed.is_sent and time.monotonic() < due_at:
            continue
        due_at = time.monotonic() + _HEARTBEAT_S
        try:
            if printed.send() == "Canceled":
                canceled.set()
        except OSError as error:
            print(f"{time.ctime()}: {error}")
            if isinstance(error, urllib.error.HTTPError) and error.code in _OVER:
                canceled.set()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the script and what it has started."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signum)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _files(work: Path) -> Iterator[tuple[str, Path]]:
    """What the run keeps, by its path in the run."""
    for top in ("outputs", "logs"):
        for file in sorted((work / top).rglob("*")):
            if file.is_file():
                yield file.relative_to(work).as_posix(), file


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
