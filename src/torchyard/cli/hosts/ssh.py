"""One host's program over the person's own ssh.

Owns: ssh's command line, the lines between here and there, what ssh's own failures mean.
Leaves: what the program does to node_agent/host_program.py.
Always: ssh asks for nothing (BatchMode), and its own settings, keys and checks of host keys hold; a
secret goes by standard input only; when the session is closed before its end the host undoes what
it did.

Source: ssh(1): 255 is ssh's own failure, any other exit code the command's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, Any

from torchyard.base.errors import InvalidInput
from torchyard.base.home.ray_archive import RayArchives
from torchyard.cli.hosts import carried
from torchyard.cli.hosts.addresses import Host

_CONNECT_S = 15
_MARK = b"torchyard "
_LONGEST_LINE = 1 << 16
_BLOCK_BYTES = 1 << 20
_OWN_FAILURE, _NO_PYTHON = 255, 41
# The person's shell there may be any: one command, in quotes that all of them read alike.
_START = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
_OLDEST = "import sys; sys.exit(sys.version_info < (3, 9))"
_SCRIPT = (
    'PATH="$PATH:$HOME/.local/bin:$HOME/.cargo/bin"; '
    "for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9; do "
    f'if "$p" -I -c "{_OLDEST}" 2>/dev/null; then exec "$p" -I -c "{_START}"; fi; done; '
    'if p=$(uv python find --no-project ">=3.9" 2>/dev/null || '
    '{ uv python install -q ">=3.9" && uv python find --no-project ">=3.9"; } 2>/dev/null); '
    f'then exec "$p" -I -c "{_START}"; fi; exit {_NO_PYTHON}'
)
COMMAND = f"exec sh -c '{_SCRIPT}'"


class HostFailed(Exception):
    """A host could not do what it was asked to; `hint` says what to type."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def find() -> str:
    """
    Raises:
        InvalidInput: this machine has no ssh.
    """
    program = shutil.which("ssh")
    if program is None:
        raise InvalidInput(
            "this machine has no `ssh`", "install it: on Debian `apt-get install openssh-client`"
        )
    return program


def words(program: str, host: Host) -> list[str]:
    """The command line of a session."""
    options = ["-T", "-a", "-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}"]
    options += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    options += ["-o", "ClearAllForwardings=yes"]
    if host.port:
        options += ["-p", str(host.port)]
    return [program, *options, "--", host.target, COMMAND]


class Session:
    """A program that runs on a host; at its end it is over on both sides.

    Args:
        request: without what is sent beside it.
        archives: of this machine's Ray.
        say: called with each line for the person who waits.
    """

    def __init__(
        self,
        program: str,
        host: Host,
        request: Mapping[str, Any],
        archives: RayArchives,
        say: Callable[[str], object],
    ) -> None:
        self._host = host
        self._archives = archives
        self._say = say
        agent = carried.agent_zip()
        first = carried.host_program()
        line = json.dumps({**request, "agent_bytes": len(agent)}).encode()
        self._begin = b"%d\n%b%b\n%b" % (len(first), first, line, agent)
        self._process = subprocess.Popen(
            words(program, host),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def __enter__(self) -> Session:
        self._send(self._begin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closing its input ends it there; what it undoes may take a while."""
        with suppress(OSError):
            self._input.close()
        for _ in self._output:
            pass
        self._process.wait()
        self._output.close()
        self._reader.join()

    def wait_for(self, key: str) -> Any:
        """What the host says next below this key.

        Raises:
            HostFailed: it fails, or the connection does.
        """
        while True:
            line = self._output.readline(_LONGEST_LINE)
            if not line:
                raise self._failure()
            if not line.startswith(_MARK):
                continue
            try:
                message = json.loads(line[len(_MARK) :])
            except ValueError:
                continue
            if key in message:
                return message[key]
            if "say" in message:
                self._say(_printable(message["say"]))
            elif "need" in message:
                self._hand_over(message)
            elif "error" in message:
                raise HostFailed(_printable(message["error"]), _printable(message.get("hint", "")))

    def keep(self) -> None:
        self._send(b"keep\n")

    def undo(self) -> str:
        """Let the host undo all; what it says of it."""
        self._send(b"undo\n")
        try:
            self.wait_for("undone")
        except HostFailed as failure:
            return failure.message
        return ""

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _send(self, content: bytes) -> None:
        with suppress(OSError):  # it has ended, and what it said is read next
            self._input.write(content)
            self._input.flush()

    def _hand_over(self, request: Mapping[str, Any]) -> None:
        """Send what the host lacks, or that there is none here for its system."""
        file = None
        if request.get("system") == carried.own_system():
            name, version, python = (str(request.get(key)) for key in ("need", "version", "python"))
            file = self._archives.get(version, python) if name == "ray" else carried.uv_program()
        self._send(json.dumps({"bytes": file.stat().st_size if file else 0}).encode() + b"\n")
        if file is not None:
            self._say(f"it can't get {request['need']} itself, and gets this machine's")
            with open(file, "rb") as content:
                for block in iter(lambda: content.read(_BLOCK_BYTES), b""):
                    self._send(block)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            for line in errors:
                self._errors = [*self._errors, line.decode(errors="replace").strip()][-20:]

    def _failure(self) -> HostFailed:
        code = self._process.wait()
        self._reader.join()
        return failure(self._host, code, [line for line in self._errors if line])


def failure(host: Host, code: int, errors: list[str]) -> HostFailed:
    """What the end of ssh means.

    Args:
        code: ssh's exit code.
        errors: the last lines that it, or the program there, wrote.
    """
    command = by_hand(host)
    if code == _NO_PYTHON:
        return HostFailed(
            "it has no Python 3.9 or later, and no uv that could bring one",
            f"install one there: `{command} sudo apt-get install python3`, or uv: "
            "https://docs.astral.sh/uv/getting-started/installation",
        )
    text = _printable(" / ".join(errors[-3:])) or f"ssh ended with exit code {code}"
    if code != _OWN_FAILURE:
        return HostFailed(f"the program there ended with exit code {code}: {text}", f"`{command}`")
    for words_of_ssh, message, hint in _MEANINGS:
        if any(words_of_ssh in line for line in errors):
            return HostFailed(message, hint.format(command=command, target=_copy_id(host)))
    return HostFailed(f"ssh failed: {text}", f"try `{command} true`")


_MEANINGS = (
    (
        "Could not resolve hostname",
        "its name is not known here",
        "check the name, or write it into ~/.ssh/config; then `{command} true` works",
    ),
    (
        "Host key verification failed",
        "its host key is not known here, or has changed",
        "run `{command}` once, and compare the fingerprint with the host's own",
    ),
    (
        "Permission denied",
        "it does not accept your key, and passwords are not asked for",
        "give it your key with `ssh-copy-id {target}`, or load it with `ssh-add`; then "
        "`{command} true` works",
    ),
    (
        "Connection refused",
        "no ssh server answers there",
        "start one there, or name its port: `host:2222`; then `{command} true` works",
    ),
    (
        "No route to host",
        "it can't be reached",
        "see that it is switched on, and in your network: `{command} true`",
    ),
    (
        "timed out",
        "it does not answer",
        "see that it is switched on, and that its firewall lets ssh in: `{command} true`",
    ),
)  # fmt: skip


def by_hand(host: Host) -> str:
    """What a person types to see the same."""
    port = f" -p {host.port}" if host.port else ""
    return f"ssh{port} {host.target}"


def _copy_id(host: Host) -> str:
    return f"-p {host.port} {host.target}" if host.port else host.target


def _printable(text: object) -> str:
    """On one line, without what would steer a terminal."""
    line = " ".join(str(text).split())
    return "".join(character for character in line if character.isprintable())[:1000]
