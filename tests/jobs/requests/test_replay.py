"""A stream that is opened late tells events and output in the order of time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.support import WORKSPACE
from torchyard.base.clock import FakeClock
from torchyard.jobs import actions
from torchyard.jobs.records import log_order, store
from torchyard.jobs.records.job_events import Notice
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import streams
from torchyard.jobs.requests.streams import Cursor
from torchyard.jobs.services import Services

LOG = "user_logs/std_log_process_{}.txt"


def say(services: Services, job: Job, message: str) -> None:
    with services.db.write() as connection:
        store.add_event(connection, job.id, services.clock.now(), Notice(message))


def ranks_print(services: Services, job: Job, texts: str, attempt: int = 1) -> None:
    """Each letter is printed by rank 0 when it is a capital one, and by rank 1 otherwise."""
    for text in texts:
        path = LOG.format(0 if text.isupper() else 1)
        size = services.logs.append(WORKSPACE, job.name, attempt, path, 0, b"")
        services.logs.append(WORKSPACE, job.name, attempt, path, size, text.encode())


def replayed(services: Services, job: Job, cursor: Cursor, limit: int = 1000) -> str:
    """Notices in brackets and output, until what is there has come or `most` frames have."""
    follower = streams._Follower(services, actions.get(services, WORKSPACE, job.name), cursor)
    output = ""
    more = True
    while more and limit > 0:
        _, blocks, more = follower.read_new()
        for block in blocks[:limit]:
            head, _, content = block.partition(b"\n")
            fields: dict[str, Any] = json.loads(head)
            output += f"[{fields['message']}]" if fields["kind"] == "notice" else content.decode()
            limit -= 1
    return output


@pytest.fixture
def job(services: Services, clock: FakeClock) -> Job:
    """Two ranks that print in turn, and are told of between; the second attempt after it."""
    made = support.submit(services)
    for step in ("Aa", "B", "[one]", "bC", "[two]", "Dd"):
        clock.advance(1)
        if step.startswith("["):
            say(services, made, step.strip("[]"))
            continue
        for letter in step:
            clock.advance(0.01)
            ranks_print(services, made, letter)
    clock.advance(1)
    say(services, made, "again")
    clock.advance(1)
    ranks_print(services, made, "E", attempt=2)
    return made


def test_events_and_output_of_ranks_come_in_the_order_of_time(services: Services, job: Job) -> None:
    assert replayed(services, job, Cursor()) == "AaB[one]bC[two]Dd[again]E"


def test_a_stream_that_was_cut_goes_on_where_it_was(services: Services, job: Job) -> None:
    complete: list[bytes] = streams._Follower(services, job, Cursor()).read_new()[1]
    for count in range(len(complete)):
        cursor = Cursor()
        for block in complete[:count]:
            fields = json.loads(block.partition(b"\n")[0])
            cursor.after = fields.get("seq", cursor.after)
            if fields["kind"] == "log":
                name = f"{fields['attempt']}/{fields['path']}"
                cursor.offsets[name] = fields["offset"] + fields["size"]
        assert streams._Follower(services, job, cursor).read_new()[1] == complete[count:]


def test_what_comes_later_is_streamed_as_it_comes(services: Services, job: Job) -> None:
    follower = streams._Follower(services, job, Cursor())
    while follower.read_new()[2]:
        pass
    ranks_print(services, job, "f")
    assert [block[-1:] for block in follower.read_new()[1]] == [b"f"]


def test_no_event_is_lost_where_the_clock_was_set_back(
    services: Services, clock: FakeClock, job: Job
) -> None:
    clock.set_by(-3600)
    say(services, job, "set back")
    ranks_print(services, job, "Z")
    assert replayed(services, job, Cursor()) == "AaB[one]bC[two]Dd[again][set back]EZ"


@pytest.mark.parametrize("damage", ["gone", "cut", "odd"])
def test_output_without_its_order_comes_after_the_events(
    services: Services, job: Job, damage: str
) -> None:
    order: Path = services.logs.folder(WORKSPACE, job.name) / log_order.NAME
    if damage == "gone":
        order.unlink()
        assert replayed(services, job, Cursor()).endswith("[one][two][again]ABCDabdE")
        return
    content = order.read_bytes()
    order.write_bytes(
        content[:-9] if damage == "cut" else b'x\n[1]\n\xff\n[9e99,1,"x",1]\n' + content
    )
    assert replayed(services, job, Cursor()) == "AaB[one]bC[two]Dd[again]E"


def test_the_order_of_endless_output_stays_small(
    services: Services, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_order, "_EXACT_BYTES", 1000)
    monkeypatch.setattr(log_order, "_MOST_BYTES", 2000)
    job = support.submit(services)
    for _ in range(300):
        clock.advance(0.5)
        ranks_print(services, job, "Xy")
    assert (services.logs.folder(WORKSPACE, job.name) / log_order.NAME).stat().st_size < 2100
    output = replayed(services, job, Cursor())
    assert output.startswith("XyXyXy") and sorted(output) == ["X"] * 300 + ["y"] * 300
