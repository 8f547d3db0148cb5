"""Servers of one home: who lives, who is taken for dead, what the files say; no process runs."""

from __future__ import annotations

import errno
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from torchyard.app import application
from torchyard.base import machine
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.settings import Settings
from torchyard.client import embedded
from torchyard.server import hold_home
from torchyard.servers import sharing, store
from torchyard.servers.files import ServerFiles
from torchyard.servers.lease import TERM_S, Lease
from torchyard.servers.types import LeaseLost, Server
from torchyard.shared import locks

HERE, THERE = "here boot-1 1", "there boot-9 9"


class Yard:
    """A home whose servers' clock, processes and machines are the test's."""

    def __init__(self, home: Path, db: Database, clock: FakeClock) -> None:
        self.home, self.db, self.clock = home, db, clock
        self.dead: set[str] = set()
        self.changes: list[str] = []

    def server(self, url: str, here: str = HERE) -> Lease:
        def now(connection: Connection) -> datetime:
            return self.clock.now()

        def is_alive(pid: int, start_time: int) -> bool:
            return not self.dead

        lease = Lease(
            self.db,
            ServerFiles(self.home),
            url,
            lambda: self.changes.append(url),
            here,
            now,
            is_alive,
            lambda: self.clock.now().timestamp(),
        )
        lease.take()
        return lease

    def passes(self, seconds: int, *renewing: Lease) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            for lease in renewing:
                lease.renew()

    def living(self) -> list[str]:
        with self.db.read() as connection:
            return sorted(server.url for server in store.all_of(connection))

    def url_in_file(self) -> str:
        url: str = json.loads((self.home / "server.json").read_text())["url"]
        return url


@pytest.fixture
def yard(tmp_path: Path, db: Database, clock: FakeClock) -> Yard:
    return Yard(tmp_path, db, clock)


def test_the_newest_server_is_named_until_it_ends(yard: Yard) -> None:
    first, second = yard.server("a"), yard.server("b")
    yard.passes(20, first, second)
    assert yard.living() == ["a", "b"] and yard.url_in_file() == "b"
    second.stop()
    assert yard.living() == ["a"] and yard.url_in_file() == "a"
    first.stop()
    assert not yard.living() and not (yard.home / "server.json").exists()
    assert not list((yard.home / "servers").iterdir())


def test_a_suspended_server_loses_its_lease_and_registers_again(yard: Yard) -> None:
    still, other = yard.server("still"), yard.server("other")
    yard.passes(10, still, other)
    before = still.id
    yard.passes(int(TERM_S), other)
    assert yard.living() == ["other", "still"], "its term is not over yet"
    with pytest.raises(LeaseLost):
        still.confirm()
    yard.passes(1, other)
    assert yard.living() == ["other"] and yard.changes == ["other"]
    assert not (yard.home / "servers" / f"{before}.json").exists()
    with yard.db.write() as connection, pytest.raises(LeaseLost):
        still.check(connection)
    still.renew()
    assert still.id != before and not still.owns(before)
    still.confirm()
    assert yard.living() == ["other", "still"] and yard.changes == ["other", "still"]


def test_a_process_that_has_ended_needs_no_term(yard: Yard) -> None:
    yard.server("killed")
    other = yard.server("other")
    yard.dead.add("killed")
    other.renew()
    assert yard.living() == ["other"] and yard.url_in_file() == "other"


def test_only_the_term_ends_a_server_of_another_machine(yard: Yard) -> None:
    yard.server("far", THERE)
    other = yard.server("other")
    yard.dead.add("far")
    yard.passes(int(TERM_S), other)
    assert yard.living() == ["far", "other"]
    yard.passes(1, other)
    assert yard.living() == ["other"]


def test_a_machine_that_was_started_again_has_none_of_its_old_processes(yard: Yard) -> None:
    yard.server("before", "here boot-0 1")
    after = yard.server("after")
    after.renew()
    assert yard.living() == ["after"]


def test_a_server_that_was_suspended_declares_nobody_dead_at_once(yard: Yard) -> None:
    first, second = yard.server("a"), yard.server("b")
    yard.passes(10, first, second)
    yard.clock.advance(600)  # both: the database was unreachable, or a laptop slept
    first.renew()
    second.renew()
    yard.passes(10, first, second)
    assert yard.living() == ["a", "b"] and not yard.changes


def test_a_lease_that_was_renewed_since_it_was_read_stays(yard: Yard) -> None:
    lease = yard.server("a")
    with yard.db.read() as connection:
        (read,) = store.all_of(connection)
    yard.passes(1, lease)
    with yard.db.write() as connection:
        assert not store.drop(connection, read)


def test_processes_are_visible_on_their_own_machine_only() -> None:
    assert machine.is_seen("", HERE) and machine.is_seen(HERE, HERE)
    assert machine.is_seen("here boot-0 1", HERE), "all its processes are gone"
    assert not machine.is_seen(THERE, HERE)
    assert not machine.is_seen("here boot-1 2", HERE), "a container beside this one"
    assert machine.is_seen(machine.here())


# Alone or shared


def test_shared_and_single_servers_do_not_mix(tmp_path: Path) -> None:
    with hold_home(tmp_path, shared=True), hold_home(tmp_path, shared=True):
        with pytest.raises(Conflict, match="servers that share it serve") as caught:
            hold_home(tmp_path)
        assert "--shared" in caught.value.hint
    with hold_home(tmp_path), pytest.raises(Conflict, match="does not share it"):
        hold_home(tmp_path, shared=True)
    hold_home(tmp_path).close()


def test_a_home_whose_file_system_has_no_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(file: Any, shared: bool = False) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks, "try_lock", without_locks)
    with pytest.raises(InvalidInput, match="no file can be locked in"):
        hold_home(tmp_path)


def test_a_file_can_not_be_shared(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="`--shared` needs PostgreSQL") as caught:
        application.build(tmp_path, "http://127.0.0.1:1", {}, shared=True)
    assert "--database" in caught.value.hint


def test_a_single_server_waits_until_the_shared_ones_end(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = yard.server("http://far", THERE)
    monkeypatch.setattr(store, "now", lambda connection: yard.clock.now())
    with pytest.raises(Conflict, match="http://far on there shares this database"):
        sharing.claim_alone(yard.db, yard.home)
    assert (yard.home / "servers" / f"{far.id}.json").exists()
    yard.clock.advance(TERM_S + 1)
    sharing.claim_alone(yard.db, yard.home)
    assert not yard.living() and not (yard.home / "servers").exists()


# Commands


def test_a_command_finds_a_server_that_is_alive(yard: Yard) -> None:
    settings = Settings(yard.home)
    first, second = yard.server("http://a", machine.here()), yard.server("http://b", machine.here())
    assert next(embedded.living(settings)).url == "http://b"
    # This very process is both of them: what differs is what the files say.
    record = json.loads((yard.home / "servers" / f"{second.id}.json").read_text()) | {"pid": 2**22}
    (yard.home / "server.json").write_text(json.dumps(record))
    (yard.home / "servers" / f"{second.id}.json").write_text(json.dumps(record))
    server = embedded.find(settings)
    assert server is not None and server.url == "http://a"
    first.stop()
    assert embedded.find(settings) is None


def test_the_file_of_a_single_server_does_not_mention_sharing(yard: Yard) -> None:
    now = yard.clock.now()
    ServerFiles(yard.home).name(Server("", "http://x", "", 7, 8, now, now))
    contents = json.loads((yard.home / "server.json").read_text())
    assert set(contents) == {"url", "pid", "start_time", "version"}
