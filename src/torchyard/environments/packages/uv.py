"""uv as a process: its output goes into the build log, line by line.

Owns: its environment, ending it, finding the package at fault in its output.
Leaves: which command to run to lock.py and build/builder.py.
Always: the log names no index, path or host of the machine's configuration, and no secret that
`masker` knows.
"""

from __future__ import annotations

import copy
import io
import os
import re
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torchyard.base import disk, leash
from torchyard.base.errors import BuildFailed
from torchyard.base.home.uv import find_uv as find_uv
from torchyard.base.terminal_text import coloured
from torchyard.environments.packages.machine_config import MachineConfig
from torchyard.environments.types import BuildCanceled
from torchyard.shared import masking
from torchyard.shared.masking import Masker

_POLL_S = 0.25
# At the start of an output, and at its end.
_KEPT_LINES = 200
DISK_FULL = "disk_full"


class Log(Protocol):
    """What a build's output is written to."""

    def write(self, words: bytes, /) -> Any: ...
    def flush(self) -> Any: ...


@dataclass(frozen=True)
class Both:
    """Two logs that get the same output."""

    first: Log
    second: Log

    def write(self, words: bytes, /) -> None:
        self.first.write(words)
        self.second.write(words)

    def flush(self) -> None:
        self.first.flush()
        self.second.flush()


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `words` is its output on standard error."""

    code: int
    words: str


class PackagesFailed(BuildFailed):
    """Packages could not be resolved or installed; `words` is uv's output."""

    words = ""


class Uv:
    """Runs uv for one build.

    Args:
        log: the build's log, open for appending bytes.
        canceled: called a few times a second while uv runs.
        cache: uv's cache folder; None leaves that to uv.
        masker: called before each command, since jobs with other secrets may join the build.
        may_link: whether the environment's files may be hard links into the cache.
        builds_nothing: nothing of a package is run, so what has no wheel can't be installed.
        shared_wheels: those of build/shared_wheels.py, which this build only reads.
        silence_s: how long a program may print nothing before the log says that it still runs.
    """

    def __init__(
        self,
        config: MachineConfig,
        log: Log,
        canceled: Callable[[], bool],
        cache: Path | None,
        masker: Callable[[], Masker] = lambda: masking.TOKENS,
        may_link: bool = True,
        silence_s: float = 15.0,
        shared_wheels: Path | None = None,
        builds_nothing: bool = False,
    ) -> None:
        self.config = config
        self.shared_wheels = shared_wheels
        self._builds_nothing = builds_nothing
        self._silence_s = silence_s
        self._cache = cache
        self._find_masker = masker
        self._masker = masker()
        self.log = log
        self._canceled = canceled
        self._variables = dict(config.variables)
        self.may_link = may_link
        if may_link:
            self._variables.setdefault("UV_LINK_MODE", "hardlink")
        else:
            self._variables["UV_LINK_MODE"] = "copy"
        self._variables["NO_COLOR"] = "1"
        self._variables["UV_NO_PROGRESS"] = "1"
        if cache is not None:
            self._variables.setdefault("UV_CACHE_DIR", str(cache))

    def quiet(self) -> Uv:
        """This one with a log that nobody reads, for questions that many runs answer."""
        silent = copy.copy(self)
        silent.log = io.BytesIO()
        return silent

    def is_canceled(self) -> bool:
        """Whether the caller wants the build to end."""
        return self._canceled()

    def say(self, line: str) -> None:
        """Write a line into the log."""
        self.log.write((self.clean(line) + "\n").encode())
        self.log.flush()

    def clean(self, words: str) -> str:
        """The text without secrets, the machine's configuration and control characters."""
        # Secrets first: scrubbing could cut one in two.
        return coloured(self.config.scrub(self._masker.text(words)))

    @property
    def conda_cache(self) -> Path:
        """The cache of conda packages: beside uv's, else py-rattler's own."""
        if self._cache is not None:
            return self._cache / "conda"
        if self._variables.get("RATTLER_CACHE_DIR"):
            return Path(self._variables["RATTLER_CACHE_DIR"])
        return self._users_caches / "rattler" / "cache"

    @property
    def _users_caches(self) -> Path:
        return Path(self._variables.get("XDG_CACHE_HOME") or Path.home() / ".cache")

    def run(self, arguments: Sequence[str], folder: Path, shown: str) -> Outcome:
        """Run uv in `folder`; `shown` is the command as the log shows it.

        Raises:
            BuildCanceled: `canceled` returned True, and uv was killed.
        """
        words = list(arguments)
        if self._builds_nothing and words[:1] == ["pip"]:
            words[2:2] = ["--only-binary", ":all:"]
        return self.run_program([find_uv(), *words], folder, shown)

    def run_program(
        self,
        words: Sequence[str],
        folder: Path,
        shown: str,
        variables: Mapping[str, str] | None = None,
    ) -> Outcome:
        """As `run`, for another program, with additional variables."""
        self._masker = self._find_masker()
        self.say(f"$ {shown}")
        process = subprocess.Popen(
            leash.command(words),
            cwd=folder,
            env={**self._variables, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            words_written = self._follow(process, shown)
            return Outcome(process.wait(), words_written)
        finally:
            leash.end(process)

    def _follow(self, process: subprocess.Popen[bytes], shown: str) -> str:
        """Write its output into the log, and a sign of life where there is none for long."""
        assert process.stderr is not None
        lines: list[str] = []
        rest = b""
        with selectors.DefaultSelector() as waiting, process.stderr as stream:
            waiting.register(stream, selectors.EVENT_READ)
            next_look = 0.0
            began = last = time.monotonic()
            while True:
                if time.monotonic() >= next_look and self._canceled():
                    self.say("canceled")
                    raise BuildCanceled("the build was canceled")
                next_look = max(next_look, time.monotonic() + _POLL_S)
                data = b""
                if waiting.select(_POLL_S):
                    data = os.read(stream.fileno(), 65536)
                elif process.poll() is None:
                    now = time.monotonic()
                    if now - last >= self._silence_s:
                        self.say(f"… {shown}: {now - began:.0f} s so far")
                        last = now
                    continue
                last = time.monotonic()
                # The process has ended, but its children may keep the pipe open forever.
                *complete_lines, rest = (rest + data).split(b"\n")
                if not data and rest:
                    complete_lines.append(rest)
                for line in complete_lines:
                    text = self.clean(line.decode("utf-8", "replace"))
                    self.say(text)
                    lines.append(text)
                if not data:
                    # A failed build is named first, and may have printed thousands of lines.
                    summary = (
                        lines
                        if len(lines) <= 2 * _KEPT_LINES
                        else (lines[:_KEPT_LINES] + lines[-_KEPT_LINES:])
                    )
                    return "\n".join(summary)


# How uv names the package at fault; the first pattern that matches counts.
_BLAMING = tuple(
    re.compile(pattern)
    for pattern in (
        r"Because (?P<name>[\w.-]+) was not found",
        r"there (?:is|are) no versions? of (?P<name>[\w.-]+)",
        r"Failed to (?:build|download(?: and build)?|fetch|prepare|extract) "
        r"`?(?P<name>[\w.-]+)(?:==|`| @)",
        r"Because only (?P<name>[\w.-]+)(?:\[[^\[\]]*\])?[<>=!~]",
        r"you require (?P<name>[\w.-]+)",
        r"Because (?:all versions of )?(?P<name>[\w.-]+)(?:\[[^\[\]]*\])?[<>=!~ ]",
    )
)
_FRAME = re.compile(r"[│├╰─▶\u00d7╭]|^[ \t]*(error|cause|hint):", re.MULTILINE)
_FULL = ("No space left on device", "os error 28", "Disk quota exceeded")
_NETWORK = ("error sending request", "Could not connect", "dns error", "network connectivity")
_LONGEST = 400


def failure(outcome: Outcome, doing: str) -> BuildFailed:
    """uv's output as one short error that names the package."""
    words = " ".join(_FRAME.sub(" ", outcome.words).split())
    if is_full(words):
        return no_space()
    name = package_at_fault(outcome.words)
    reason = _reason(words)
    message = f"package `{name}` can't be installed: {reason}" if name else f"{doing}: {reason}"
    error = PackagesFailed(message, _hint(words, name))
    error.words = outcome.words
    return error


def no_space() -> BuildFailed:
    """The disk is full: nothing is wrong with the packages."""
    full = disk.full("`environments`")
    return BuildFailed(full.message, "free space with `yard gc`, then submit again", code=DISK_FULL)


def is_full(words: str) -> bool:
    """Whether a program's output says that the disk is full."""
    return any(sign in words for sign in _FULL)


def is_unreachable(words: str) -> bool:
    """Whether uv's output says that a server did not answer."""
    return any(sign in words for sign in _NETWORK)


def package_at_fault(words: str) -> str:
    """The package that uv's output blames, or an empty string."""
    flat = " ".join(words.split())
    for pattern in _BLAMING:
        match = pattern.search(flat)
        if match and match["name"].lower() not in ("your", "the", "python"):
            return match["name"].rstrip(".")
    return ""


def _reason(words: str) -> str:
    for start in ("Because ", "Failed to "):
        position = words.find(start)
        if position >= 0:
            words = words[position:]
            break
    if words.startswith("Because "):
        words = words.split(", we can conclude")[0].removeprefix("Because ")
    words = words.split(" hint: ")[0].rstrip(" .")
    return words if len(words) <= _LONGEST else words[:_LONGEST].rstrip() + "…"


def _hint(words: str, name: str) -> str:
    if "invalid peer certificate" in words:
        return (
            "where a proxy signs with a certificate authority of its own, name its file as `cert` "
            "in pip's configuration, or in SSL_CERT_FILE, then `yard server stop` and submit again"
        )
    if is_unreachable(words):
        return "check this machine's network and package configuration; see the build log"
    if name:
        return f"check the name and version of `{name}`; the build log has the resolver's output"
    return "the build log has the resolver's output"
