"""Builds that users request, besides those of jobs.

Owns: a thread for them, reading their log while they run.
Leaves: the build itself, and that there is one at a time, to build/builds.py.
Always: a build continues when nobody follows it; its log stays with the environment.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torchyard.base.errors import NotFound, TorchyardError
from torchyard.environments.assembly import Environments
from torchyard.environments.types import EnvironmentSpec

_log = logging.getLogger(__name__)
_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 1 << 18


class RequestedBuilds:
    """The builds requested since the server started.

    Args:
        secrets: values that a build's log must not show.
    """

    def __init__(
        self, environments: Environments, secrets: Callable[[EnvironmentSpec], Mapping[str, int]]
    ) -> None:
        self._environments = environments
        self._secrets = secrets
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="requested-build")
        self._lock = threading.Lock()
        self._running: dict[str, EnvironmentSpec] = {}
        self._stopping = threading.Event()

    def begin(self, spec: EnvironmentSpec) -> dict[str, Any]:
        """Start it unless it runs or is built; `offset` is where its log begins."""
        offset = _size(self._environments.folders.log_path(spec.hash))
        is_built = (
            self._environments.folders.find(spec) is not None
            and self._environments.records.last(spec.hash) is not None
        )
        with self._lock:
            begun = spec.hash in self._running or is_built
            if not begun:
                self._running[spec.hash] = spec
            others = [each for each in self._running if each != spec.hash]
        if not begun:
            if others:
                self._say_waiting(spec, others)
            self._threads.submit(self._build, spec)
        return {**self.show(spec.hash, offset), "offset": offset, "notices": list(spec.notices)}

    def show(self, hash: str, offset: int) -> dict[str, Any]:
        """Its status, and its log from `offset` on.

        Raises:
            NotFound: the build does not exist.
        """
        if not _HASH.fullmatch(hash):
            raise NotFound(f"environment `{hash[:80]}` does not exist")
        # Read in this order, so that a build that ends in between has its whole log.
        with self._lock:
            running = hash in self._running
        last = self._environments.records.last(hash)
        text = _piece(self._environments.folders.log_path(hash), max(0, offset))
        if last is None and not running:
            raise NotFound(f"environment `{hash[:12]}` was never built")
        status = "building" if running else last.status if last else "building"
        return {
            "hash": hash,
            "status": status,
            "log": text.decode("utf-8", "replace"),
            "next_offset": max(0, offset) + len(text),
            "error": "" if running or last is None else last.error,
            "hint": "" if running or last is None else last.hint,
        }

    def close(self) -> None:
        """Cancel the running build."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _say_waiting(self, spec: EnvironmentSpec, others: Sequence[str]) -> None:
        """In the log, which is shown to the person who requested the build."""
        names = ", ".join(name[:12] for name in others[:3]) + ("…" if len(others) > 3 else "")
        log_path = self._environments.folders.log_path(spec.hash)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(log_path, "ab") as log:
            log.write(f"Waiting for builds that were requested before: {names}\n".encode())

    def _build(self, spec: EnvironmentSpec) -> None:
        try:
            self._environments.builds.run(spec, self._stopping.is_set, lambda: self._secrets(spec))
        except TorchyardError as error:
            _log.info("environment %s: %s", spec.hash[:12], error.message)
        except Exception:
            _log.exception("the build of %s failed", spec.hash)
        finally:
            with self._lock:
                self._running.pop(spec.hash, None)


def _size(log: Path) -> int:
    """In bytes, over all builds of the environment."""
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _piece(log: Path, offset: int) -> bytes:
    try:
        with open(log, "rb") as file:
            file.seek(offset)
            return file.read(_MOST_BYTES)
    except FileNotFoundError:
        return b""
