"""A folder that is opened as a Unix account, where jobs run as other users than the server.

Owns: the folder's tasks, asked of the runner.
Leaves: who may use which account to runner/accounts.py, who may still have it opened to its
caller's check, what a task does to shared/beneath.py.
Always: the server opens nothing there itself: it gets open files from a process of the account;
each task is checked again.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.data.folders import OpenFolder
from torchyard.executors.runner_client import RunnerClient, RunnerRefused, RunnerSession
from torchyard.shared import beneath
from torchyard.shared.beneath import Found


@dataclass(frozen=True)
class AccountFolder:
    """
    Args:
        person: who named the account; they must be let by the runner's configuration.
        check: raises where the person may have nothing opened any more.
        is_own: it is the account that the person's own jobs run as.
    """

    runner: RunnerClient
    person: str
    account: str
    path: Path
    check: Callable[[], None]
    is_own: bool = False

    @contextmanager
    def opened(self, make: bool = False) -> Iterator[OpenFolder]:
        with self._session(make) as session:
            yield _Opened(session)

    @contextmanager
    def _session(self, make: bool) -> Iterator[RunnerSession]:
        self.check()
        asked: dict[str, Any] = {
            "person": self.person,
            "account": self.account,
            "root": str(self.path),
        }
        with self.runner.start("folder", **asked, make=make) as running:
            try:
                first = running.answer()
            except RunnerRefused as refusal:
                if refusal.code == "no_folder":
                    raise FileNotFoundError(
                        errno.ENOENT, os.strerror(errno.ENOENT), str(self.path)
                    ) from refusal
                raise
            yield RunnerSession(running.connection, first)

    def real(self) -> Path:
        """The folder's path without links, as the account finds it.

        Raises:
            FileNotFoundError: it is no folder.
            RunnerRefused: the account may not be used, or may not open the folder.
        """
        with self._session(make=False) as session:
            return Path(str(session.first["real"]))

    def local(self, person: str) -> Path | None:
        return self.path if self.is_own and person == self.person else None


class _Opened:
    def __init__(self, session: RunnerSession) -> None:
        self._session = session

    def look(self, path: str) -> Found | None:
        found = self._ask("look", path=path)
        return None if found is None else Found(*found)

    def names(self, path: str) -> list[Found]:
        found: list[Found] = []
        while page := self._ask("names", path=path, after=found[-1].path if found else ""):
            found += [Found(*each) for each in page]
        return found

    def open_file(self, path: str) -> int:
        descriptor = self._descriptor("open_file", path=path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise beneath.NotRegular(path)
        return descriptor

    def begin(self, path: str, draft: str, folder_mode: int, file_mode: int) -> int:
        modes = {"folder_mode": folder_mode, "file_mode": file_mode}
        return self._descriptor("begin", path=path, draft=draft, **modes)

    def finish(self, path: str, draft: str) -> None:
        self._ask("finish", path=path, draft=draft)

    def discard(self, path: str, draft: str) -> None:
        self._ask("discard", path=path, draft=draft)

    def remove(self, path: str) -> None:
        self._ask("remove", path=path)

    def _descriptor(self, task: str, **body: Any) -> int:
        _, descriptors = self._answer(task, body)
        [descriptor] = descriptors
        return descriptor

    def _ask(self, task: str, **body: Any) -> Any:
        value, descriptors = self._answer(task, body)
        for descriptor in descriptors:
            os.close(descriptor)
        return value

    def _answer(self, task: str, body: dict[str, Any]) -> tuple[Any, list[int]]:
        answer, descriptors = self._session.ask(task, **body)
        if "ok" in answer:
            return answer["ok"], descriptors
        error = answer.get("error") or {}
        path = str(body["path"])
        if error.get("kind") == "link":
            raise beneath.LeadsOut(path)
        if error.get("kind") == "irregular":
            raise beneath.NotRegular(path)
        number = int(error.get("errno") or 0)
        raise OSError(number, os.strerror(number), path)
