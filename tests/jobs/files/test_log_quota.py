"""How much of what a job prints is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import support
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.files import log_quota
from torchyard.jobs.records import store
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.logs import Logs

_LAST = b"[torchyard] logs beyond 1 MB are dropped; raise `torchyard.log_quota_mb`\n"
_PATH = "user_logs/std_log.txt"


def test_a_log_is_cut_once(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    for _ in range(2):  # a repeated chunk changes nothing
        assert logs.append_within("w", "j", 1, _PATH, 0, b"0123\n", 8, _LAST) == 5
    assert logs.append_within("w", "j", 1, _PATH, 5, b"56789", 8, _LAST) == -1
    assert logs.append_within("w", "j", 1, _PATH, 5, b"56789", 8, _LAST) == -1
    assert logs.append_within("w", "j", 1, _PATH, 999, b"", 8, _LAST) == -1
    assert logs.file("w", "j", 1, _PATH).read_bytes() == b"0123\n567\n" + _LAST
    # Another log of the job, and a server that was started again.
    assert Logs(tmp_path).append_within("w", "j", 1, "logs/b", 0, b"x", 8, _LAST) == -1
    assert logs.file("w", "j", 1, "logs/b").read_bytes() == _LAST
    assert logs.append_within("w", "other", 1, _PATH, 0, b"x" * 8, 8, _LAST) == 8
    assert logs.append_within("w", "other", 1, _PATH, 8, b"x", 8, _LAST) == -1
    assert logs.file("w", "other", 1, _PATH).read_bytes() == b"x" * 8 + b"\n" + _LAST


def test_the_job_tells_of_it_once(tmp_path: Path, db: Database, clock: FakeClock) -> None:
    services = support.make_services(tmp_path, db, clock)
    job = support.submit(services, properties={"torchyard.log_quota_mb": "1"})
    mega = 1 << 20
    assert log_quota.answer(services, job, 1, _PATH, 0, b"x" * mega) == (200, {"size": mega})
    for _ in range(2):
        full = {"size": mega, "full": True}
        assert log_quota.answer(services, job, 1, _PATH, mega, b"y") == (200, full)
    with db.read() as connection:
        notices = notices_of(store.events_after(connection, job.id, 0))
    message = "logs beyond 1 MB are dropped; raise `torchyard.log_quota_mb`"
    assert notices == [message]


@pytest.mark.parametrize("value", ["0", "1.5", "many"])
def test_refused(tmp_path: Path, db: Database, clock: FakeClock, value: str) -> None:
    services = support.make_services(tmp_path, db, clock)
    with pytest.raises(InvalidSpec, match="log_quota_mb"):
        support.submit(services, properties={"torchyard.log_quota_mb": value})
