"""uv as a process: its words into the build log, line by line.

Owns: where uv is, its environment, ending it, reading the culprit out of its words.
Leaves: which command to run to lock.py and build/builder.py.
Always: what reaches the log names no index, path or host of the machine's configuration, and no
secret that `masker` knows.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torchyard.base import disk
from torchyard.base.errors import BuildFailed
from torchyard.environments.packages.machine_config import MachineConfig
from torchyard.environments.types import BuildCanceled
from torchyard.shared import masking
from torchyard.shared.masking import Masker

_POLL_S = 0.25
# uv, and what a package's build runs, end with the thread that builds, even when that is killed,
# and so never write while the next builder does. A small program sees to it: code between fork
# and exec is unsafe in a server with threads, and only uv itself would hear of its parent's end.
_LEASHED = """
import ctypes, os, signal, sys
def ends_with_parent(by, parent):
    ctypes.CDLL(None).prctl(1, int(by), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
ends_with_parent(signal.SIGTERM, int(sys.argv[1]))
own = os.getpid()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ends_with_parent(signal.SIGKILL, own)
    os.execv(sys.argv[2], sys.argv[2:])
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os._exit(code if code >= 0 else 128 - code)
"""
_KEPT_LINES = 400


class Log(Protocol):
    """What takes a build's words."""

    def write(self, words: bytes, /) -> Any: ...
    def flush(self) -> Any: ...


@dataclass(frozen=True)
class Both:
    """Two logs that get the same words."""

    own: Log
    other: Log

    def write(self, words: bytes, /) -> None:
        self.own.write(words)
        self.other.write(words)

    def flush(self) -> None:
        self.own.flush()
        self.other.flush()


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `words` is what it said on standard error."""

    code: int
    words: str


class Uv:
    """Runs uv for one build.

    Args:
        log: the build's log, open for appending bytes.
        cancelled: asked a few times a second while uv runs.
        cache: where uv keeps what it downloads; None leaves that to uv.
        masker: asked for anew before each command: who waits for the build may have changed.
        may_link: whether the environment's files may be the cache's own.
    """

    def __init__(
        self,
        config: MachineConfig,
        log: Log,
        cancelled: Callable[[], bool],
        cache: Path | None,
        masker: Callable[[], Masker] = lambda: masking.TOKENS,
        may_link: bool = True,
    ) -> None:
        self.config = config
        self._cache = cache
        self._find_masker = masker
        self._masker = masker()
        self.log = log
        self._cancelled = cancelled
        self._variables = dict(config.variables)
        self.may_link = may_link
        if may_link:
            self._variables.setdefault("UV_LINK_MODE", "hardlink")
        else:
            self._variables["UV_LINK_MODE"] = "copy"
        self._variables.setdefault("UV_COMPILE_BYTECODE_TIMEOUT", "900")
        self._variables["NO_COLOR"] = "1"
        self._variables["UV_NO_PROGRESS"] = "1"
        if cache is not None:
            self._variables.setdefault("UV_CACHE_DIR", str(cache))

    def say(self, line: str) -> None:
        """Write a line of our own into the log."""
        self.log.write((self.clean(line) + "\n").encode())
        self.log.flush()

    def clean(self, words: str) -> str:
        """The words without what nobody who waits for the build may read."""
        # Secrets first: what is cut out of a line could be a part of one.
        return self.config.scrub(self._masker.text(words))

    @property
    def conda_cache(self) -> Path:
        """Where conda packages are kept: beside uv's, else where py-rattler itself has them."""
        if self._cache is not None:
            return self._cache / "conda"
        if self._variables.get("RATTLER_CACHE_DIR"):
            return Path(self._variables["RATTLER_CACHE_DIR"])
        shared = self._variables.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(shared) / "rattler" / "cache"

    def run(self, arguments: Sequence[str], folder: Path, shown: str) -> Outcome:
        """Run uv in `folder`; `shown` is the command as the log shows it.

        Raises:
            BuildCanceled: uv was ended, since nobody wants the build any more.
        """
        return self.run_program([find_uv(), *arguments], folder, shown)

    def run_program(
        self,
        words: Sequence[str],
        folder: Path,
        shown: str,
        variables: Mapping[str, str] | None = None,
    ) -> Outcome:
        """As `run`, of another program, with variables of its own."""
        self._masker = self._find_masker()
        self.say(f"$ {shown}")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LEASHED, str(os.getpid()), *words],
            cwd=folder,
            env={**self._variables, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            said = self._follow(process)
            return Outcome(process.wait(), said)
        finally:
            _end(process)

    def _follow(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stderr is not None
        lines: list[str] = []
        rest = b""
        with selectors.DefaultSelector() as waiting, process.stderr as stream:
            waiting.register(stream, selectors.EVENT_READ)
            next_look = 0.0
            while True:
                if time.monotonic() >= next_look and self._cancelled():
                    self.say("cancelled")
                    raise BuildCanceled("the build was cancelled")
                next_look = max(next_look, time.monotonic() + _POLL_S)
                data = b""
                if waiting.select(_POLL_S):
                    data = os.read(stream.fileno(), 65536)
                elif process.poll() is None:
                    continue
                # Else it is over: what it has left running may hold on to the pipe for ever.
                *whole, rest = (rest + data).split(b"\n")
                if not data and rest:
                    whole.append(rest)
                for line in whole:
                    text = self.clean(line.decode("utf-8", "replace"))
                    self.say(text)
                    lines.append(text)
                if not data:
                    return "\n".join(lines[-_KEPT_LINES:])


def find_uv() -> str:
    """The uv that came with torchyard, else the one on the PATH."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
        if found is None:
            raise BuildFailed("`uv` is not installed", "install it with `pip install uv`") from None
        return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill uv and what it started, when it is not over by itself."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


# How uv says which package is to blame; the first that matches names it.
_CULPRITS = tuple(
    re.compile(pattern)
    for pattern in (
        r"Because (?P<name>[\w.-]+) was not found",
        r"there (?:is|are) no versions? of (?P<name>[\w.-]+)",
        r"Failed to (?:build|download(?: and build)?|fetch|prepare|extract) "
        r"`?(?P<name>[\w.-]+)(?:==|`| @)",
        r"Because only (?P<name>[\w.-]+)(?:\[[^\]]*\])?[<>=!~]",
        r"you require (?P<name>[\w.-]+)",
        r"Because (?:all versions of )?(?P<name>[\w.-]+)(?:\[[^\]]*\])?[<>=!~ ]",
    )
)
_FRAME = re.compile(r"[│├╰─▶\u00d7╭]|^\s*(error|cause|hint):", re.MULTILINE)
_FULL = ("No space left on device", "os error 28", "Disk quota exceeded")
_NETWORK = ("error sending request", "Could not connect", "dns error", "network connectivity")
_LONGEST = 400


def failure(outcome: Outcome, doing: str) -> BuildFailed:
    """uv's words as one short error that names the package."""
    words = " ".join(_FRAME.sub(" ", outcome.words).split())
    if is_full(words):
        return no_space()
    name = culprit(outcome.words)
    reason = _reason(words)
    message = f"package `{name}` can't be installed: {reason}" if name else f"{doing}: {reason}"
    return BuildFailed(message, _hint(words, name))


def no_space() -> BuildFailed:
    """The disk is full: nothing is wrong with the packages."""
    found = disk.full("`environments`")
    return BuildFailed(
        found.message, "make room with `yard gc`, then submit again", code="disk_full"
    )


def is_full(words: str) -> bool:
    """Whether a program's words say that the disk is full."""
    return any(sign in words for sign in _FULL)


def is_unreachable(words: str) -> bool:
    """Whether uv's words say that a server did not answer."""
    return any(sign in words for sign in _NETWORK)


def culprit(words: str) -> str:
    """The package that uv's words blame, or an empty string."""
    flat = " ".join(words.split())
    for pattern in _CULPRITS:
        found = pattern.search(flat)
        if found and found["name"].lower() not in ("your", "the", "python"):
            return found["name"].rstrip(".")
    return ""


def _reason(words: str) -> str:
    for start in ("Because ", "Failed to "):
        place = words.find(start)
        if place >= 0:
            words = words[place:]
            break
    if words.startswith("Because "):
        words = words.split(", we can conclude")[0].removeprefix("Because ")
    words = words.split(" hint: ")[0].rstrip(" .")
    return words if len(words) <= _LONGEST else words[:_LONGEST].rstrip() + "…"


def _hint(words: str, name: str) -> str:
    if is_unreachable(words):
        return "check this machine's network and package configuration; the build log says more"
    if name:
        return f"check the name and version of `{name}`; the resolver's words are in the build log"
    return "the resolver's words are in the build log"
