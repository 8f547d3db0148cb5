"""A node's own disk that is full."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest

from torchyard.shared import disk
from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.server.control import Control
from torchyard.worker.server.events import Events


class _Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_not_mistaken_for_an_unreachable_server() -> None:
    def write() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/x/node-0/work/big")

    with pytest.raises(OSError) as caught:
        retry(write, lambda: False)
    failure = disk.failure(caught.value)
    assert failure is not None and failure.code == "disk_full"
    assert failure.message == "no space left on `scratch`, in the node's folder `work`"
    assert disk.failure(OSError("server not reached")) is None


def test_messages_that_cannot_be_written_are_ignored() -> None:
    print("traceback", file=disk.LogStream(_Full()), flush=True)


def test_a_known_cause_is_not_replaced(tmp_path: Path) -> None:
    known_failure = Failure("import_failed", "no module")
    assert disk.suspected(known_failure, tmp_path) is known_failure
    unknown = Failure("rank_failed", "rank 0 exited")
    assert disk.suspected(unknown, tmp_path) is unknown  # this disk has room


def test_an_event_is_stored_once_there_is_space(tmp_path: Path) -> None:
    events = Events(
        Connection.of_attempt(ServerAddress("http://127.0.0.1:9"), "t", "a"), 0, tmp_path, Control()
    )
    spool = events._spool
    events._spool = open("/dev/full", "ab", buffering=0)
    events.post("notice", message="first")
    events._spool.close()
    events._spool = spool
    events.post("notice", message="second")
    events.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert ["first" in lines[0], "second" in lines[1], len(lines)] == [True, True, 2]
