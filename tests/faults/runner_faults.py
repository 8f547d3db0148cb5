"""A server with the runner and two people, each a Unix user, of which both may be killed.

Owns: killing the runner and starting it again as systemd does, whose job each is.
Leaves: the installation and its users to runner/shared_site.py, the faults to server_kills.py.
Always: nothing of it stays. Needs root.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from faults.fault_site import Site
from runner.shared_site import SharedSite, shared_site

KINDS = ("runner", "server", "runner and server")
_PEOPLE = ("anna", "berta")


class RunnerFaultSite(Site):
    """Its jobs are submitted by the people in turn."""

    def __init__(self, shared: SharedSite) -> None:
        super().__init__(shared.home)
        self._shared = shared
        self._people = itertools.cycle(_PEOPLE)
        self._person = ""
        self.files.mkdir()
        self.files.chmod(0o1777)

    @property
    def files(self) -> Path:
        return self._shared.folder / "files"

    @property
    def scratch(self) -> Path:
        return self._shared.node_folder / "scratch"

    def token(self) -> str:
        return self._shared.tokens[self._person] if self._person else super().token()

    def launch(self) -> tuple[subprocess.Popen[bytes], str]:
        number = self._shared.start_server()
        return self._shared.servers[number], self._shared.urls[number]

    def kill(self) -> None:
        self._shared.stop_servers(signal.SIGKILL)

    def submit(self, job: Mapping[str, Any]) -> str:
        self._person = next(self._people)
        try:
            return super().submit(job)
        finally:
            self._person = ""

    def kill_runner(self) -> None:
        self._shared.stop(signal.SIGKILL)

    def start_runner(self) -> None:
        self._shared.start()

    def end(self) -> None:
        """The shared site ends it all."""


@contextlib.contextmanager
def made_with_runner(
    options: tuple[str, ...] = (), environ: Mapping[str, str] | None = None
) -> Iterator[RunnerFaultSite]:
    with shared_site() as shared:
        site = RunnerFaultSite(shared)
        site.start()
        for person in _PEOPLE:
            shared.add_person(person)
        yield site
