"""The server's end of a bridge process: opened when it is needed, opened again when it died.

Owns: one process per cluster, which Ray it runs on, time limits, what is wrong in people's words.
Leaves: what requests mean to cluster.py, Ray to bridge_program.py.
Always: a call ends within its time, whatever Ray does; a killed bridge costs no job, for the next
one finds everything in Ray; jobs never see the cluster's token; nothing that a bridge says is
believed unread: who holds the cluster may have written it.
"""

from __future__ import annotations

import itertools
import json
import queue
import socket
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import BuildFailed
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.ray import bridge_answers, ray_variables
from torchyard.executors.ray.programs import RayPrograms, Running
from torchyard.executors.ray.ray_environment import RayEnvironments, RayVersion

_PROGRAM = Path(__file__).with_name("bridge_program.py")
_CONNECT_S = 3.0
_IMPORT_S = 60.0
_FIND_S = 8.0
_JOIN_S = 45.0
# After a failure the next attempt to open waits so long, and who asks gets the same answer.
_RETRY_S = 2.0
# A bridge that lets so many calls in a row run out of time is opened again.
_MOST_TIMEOUTS = 3
_LOG_BYTES = 1 << 20
_KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "RAY_USE_TLS",
    "RAY_TLS_SERVER_CERT",
    "RAY_TLS_SERVER_KEY",
    "RAY_TLS_CA_CERT",
)


@dataclass(frozen=True)
class ClusterAddress:
    """Where a cluster's head is, and what it asks for.

    `token_file` is empty where it asks for none. `version` is what is tried first: the cluster's
    own is found out.
    """

    address: str
    token_file: str
    version: RayVersion

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What a bridge gets; it is told the token, and writes it into a file of its own."""
    inherited = {name: environ[name] for name in _KEPT_VARIABLES if name in environ}
    return {**inherited, **ray_variables.common(None)}


class Bridge:
    """
    Args:
        cluster: the one it leads to.
        server_id: keeps the servers apart that use one cluster.
        folder: for its log.
        programs: as whom it runs.
        bootstrap: the program that each node runs.
    """

    def __init__(
        self,
        cluster: ClusterAddress,
        server_id: str,
        environments: RayEnvironments,
        environ: Mapping[str, str],
        folder: Path,
        programs: RayPrograms,
        bootstrap: str,
    ) -> None:
        self._cluster = cluster
        self._programs = programs
        self._bootstrap = bootstrap
        self._server_id = server_id
        self._environments = environments
        self._environ = variables(environ)
        self._log = folder / f"bridge-{cluster.address.replace(':', '-').replace('/', '-')}.log"
        self._lock = threading.Lock()
        self._opening: threading.Thread | None = None
        self._process: Running | None = None
        self._error: EngineUnreachable | None = None
        self._failed_at = 0.0
        self._stage = ""
        self._answers: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._timeouts = 0
        self._closed = False
        self.version = cluster.version

    @property
    def pid(self) -> int | None:
        """The process's, once it is connected."""
        return self._process.pid if self._process is not None else None

    def ask(self, do: str, limit_s: float, wait_s: float = 0.0, **request: Any) -> Any:
        """
        Args:
            limit_s: for the answer.
            wait_s: for a bridge that is being opened.

        Raises:
            EngineUnreachable: with what is wrong, and the next step.
        """
        process = self._opened(wait_s)
        number, answer = next(self._numbers), Future[Any]()
        self._answers[number] = answer
        line = json.dumps({"id": number, "do": do, **request}) + "\n"
        try:
            with self._lock:
                process.stdin.write(line)
                process.stdin.flush()
            result = bridge_answers.checked(do, answer.result(limit_s))
        except FutureTimeout:
            self._note_timeout(process)
            raise self._unreachable(f"does not answer within {limit_s:g} s") from None
        except bridge_answers.BadAnswer as error:
            self._forget(process)
            process.kill()
            raise self._unreachable(f"answers what no cluster says: {error}") from None
        except (OSError, ValueError):
            self._forget(process)
            raise self._unreachable("lost its connection; it is opened again") from None
        finally:
            self._answers.pop(number, None)
        self._timeouts = 0
        return result

    def close(self) -> None:
        """End the process; jobs go on."""
        self._closed = True
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            _end(process)
        opening = self._opening
        if opening is not None:
            opening.join(_CONNECT_S)

    def _opened(self, wait_s: float) -> Running:
        with self._lock:
            if self._closed:
                raise self._unreachable("is not asked any more: the server is shutting down")
            process = self._process
            if process is not None and process.poll() is None:
                return process
            self._process = None
            if self._opening is None or not self._opening.is_alive():
                if self._error is not None and time.monotonic() - self._failed_at < _RETRY_S:
                    raise EngineUnreachable(self._error.message, self._error.hint)
                self._error = None
                self._opening = threading.Thread(target=self._open, daemon=True)
                self._opening.start()
            opening = self._opening
        opening.join(wait_s)
        process = self._process
        if process is not None:
            return process
        if self._error is not None:
            raise EngineUnreachable(self._error.message, self._error.hint)
        raise self._unreachable(f"is not ready yet: {self._stage}", "try again in a moment")

    def _note_timeout(self, process: Running) -> None:
        self._timeouts += 1
        if self._timeouts >= _MOST_TIMEOUTS:
            self._timeouts = 0
            self._forget(process)
            process.kill()

    def _forget(self, process: Running) -> None:
        with self._lock:
            if self._process is process:
                self._process = None

    # Opening, in a thread of its own

    def _open(self) -> None:
        try:
            process = self._connect()
        except EngineUnreachable as error:
            self._error, self._failed_at = error, time.monotonic()
            return
        except Exception as error:
            self._error = self._unreachable(f"can't be reached: {error}")
            self._failed_at = time.monotonic()
            return
        with self._lock:
            if not self._closed:
                self._process = process
                return
        _end(process)

    def _connect(self) -> Running:
        self._check_port()
        token = self._read_token()
        tried = set()
        while True:
            tried.add(self.version)
            self._stage = f"Ray {self.version.ray} for Python {self.version.python} is installed"
            try:
                environment = self._environments.get(self.version)
            except BuildFailed as error:
                raise self._unreachable(f"can't be used: {error.message}", error.hint) from error
            self._stage = "the bridge to it starts"
            process, lines = self._start(environment.python, token)
            other = self._follow_start(process, lines)
            if other is None:
                return process
            if other in tried:
                raise self._unreachable(
                    f"runs Ray {other.ray} on Python {other.python}, and so does the bridge, but "
                    "Ray refuses it"
                )
            self.version = other

    def _check_port(self) -> None:
        self._stage = "its head is looked for"
        try:
            socket.create_connection(self._cluster.host_and_port, _CONNECT_S).close()
        except OSError as error:
            reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or error
            raise EngineUnreachable(
                f"nothing answers at the Ray address `{self._cluster.address}`: {reason}",
                "check the address and port of Ray's head (`ray status` prints it there, the port "
                "is 6379 by default), and that this machine reaches it",
            ) from error

    def _read_token(self) -> str:
        """Empty where the cluster asks for none."""
        name, token, reason = self._cluster.token_file, "", "it is empty"
        if not name:
            return ""
        try:
            token = Path(name).read_text().strip()
        except (OSError, ValueError) as error:
            reason = str(error)
        if not token:
            raise self._unreachable(
                f"needs the token in `{name}`, which can't be read: {reason}",
                "write the cluster's token into it, readable by this server's user alone",
            )
        return token

    def _start(self, python: str, token: str) -> tuple[Running, queue.Queue[dict[str, Any]]]:
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_long = self._log.exists() and self._log.stat().st_size > _LOG_BYTES
        with open(self._log, "w" if is_long else "a") as log:
            process = self._programs.open([python, "-I", str(_PROGRAM)], self._environ, log)
        cluster = {
            "address": self._cluster.address,
            "namespace": f"torchyard-{self._server_id}",
            "server_id": self._server_id,
            "bootstrap": self._bootstrap,
            "token": token,
        }
        with suppress(OSError, ValueError):
            process.stdin.write(json.dumps(cluster) + "\n")
            process.stdin.flush()
        lines: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, args=(process, lines), daemon=True).start()
        return process, lines

    def _read(self, process: Running, stages: queue.Queue[dict[str, Any]]) -> None:
        with process.stdout as lines:
            while line := lines.readline(bridge_answers.MOST_BYTES):
                try:
                    message = bridge_answers.read(line)
                except bridge_answers.BadAnswer as error:
                    print(f"a bridge of Ray is ended: {error}", file=sys.stderr, flush=True)
                    process.kill()
                    break
                if "stage" in message:
                    stages.put(message)
                else:
                    self._resolve(message)
        process.wait()
        with self._lock, suppress(OSError, ValueError):
            process.stdin.close()
        stages.put({"stage": "failed", "kind": "ended", "message": "the bridge ended"})
        if self._process is process:
            self._forget(process)
            for answer in list(self._answers.values()):
                with suppress(Exception):
                    answer.set_exception(OSError("the bridge ended"))

    def _resolve(self, message: Mapping[str, Any]) -> None:
        answer = self._answers.get(message["id"])
        if answer is None:
            return
        with suppress(Exception):  # it may have run out of time just now
            if "error" in message:
                reason = message["error"]["message"] or message["error"]["kind"]
                answer.set_exception(self._unreachable(f"answers with an error: {reason}"))
            else:
                answer.set_result(message["result"])

    def _follow_start(
        self, process: Running, lines: queue.Queue[dict[str, Any]]
    ) -> RayVersion | None:
        """None once it is ready, or the version that the cluster runs."""
        limit_s, doing = _IMPORT_S, "Ray can't be imported"
        while True:
            try:
                message = lines.get(timeout=limit_s)
            except queue.Empty:
                _end(process)
                raise self._unreachable(doing) from None
            stage = message["stage"]
            if stage == "ready":
                return None
            if stage == "imported":
                limit_s, doing = _FIND_S, "answers, but not as the head of a Ray cluster"
            elif stage == "found":
                limit_s, doing = _JOIN_S, "does not let this machine join"
            else:
                _end(process)
                return self._other_version(message)

    def _other_version(self, failure: Mapping[str, Any]) -> RayVersion:
        if failure["kind"] == "version":
            runs = failure["cluster"]
            try:
                return RayVersion(runs["ray"], runs["python"])
            except ValueError as error:
                raise self._unreachable(f"runs a Ray that can't be used: {error}") from None
        raise self._failure(failure["kind"], str(failure.get("message", "")))

    def _failure(self, kind: str, message: str) -> EngineUnreachable:
        lowered = message.lower()
        if kind == "AuthenticationError" or "unauthenticated" in lowered or "token" in lowered:
            return self._unreachable(
                "refuses this server's token",
                "name the file with the cluster's token in `token_file` of the compute; only this "
                "server's user may be able to read it (mode 0600)",
            )
        if kind == "no_raylet":
            return self._unreachable(
                "does not let this machine join, which a driver of Ray needs",
                f"Ray's ports must be open in both directions; the log is {self._log}",
            )
        reason = f": {message.strip().splitlines()[0][:200]}" if message.strip() else ""
        return self._unreachable(f"can't be used{reason}", f"the log is {self._log}")

    def _unreachable(self, fault: str, hint: str = "") -> EngineUnreachable:
        message = f"the Ray cluster at `{self._cluster.address}` {fault}"
        return EngineUnreachable(message, hint or f"see `ray status` there; the log is {self._log}")


def _end(process: Running) -> None:
    """A bridge ends when its standard input does; one that hangs is killed."""
    with suppress(OSError, ValueError):
        process.stdin.close()
    try:
        process.wait(5)
    except TimeoutError:
        process.kill()
