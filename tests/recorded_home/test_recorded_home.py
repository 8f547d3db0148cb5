"""The home of a released version, opened by this one: nothing in it is lost or changed.

`make record-home` makes it again until the first release is tagged; it never changes afterwards.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import torchyard.server  # noqa: F401  (every package's tables)
from base import next_migration
from base.schema_dump import describe, rows
from end_to_end.yard_under_test import Yard, running_server, wait_until
from postgres_server import NewDatabase
from recorded_home import answers, home_as_text
from torchyard.base.db import SCHEMA_VERSION, Database, metadata
from torchyard.base.home import home_database
from torchyard.base.migrations import run
from torchyard.base.sealed_columns import SealedJson, SealedText

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/rows.jsonl"))
MIGRATIONS = Path(run.__file__).parent
NEXT = next_migration.revision
KILLS = 50
# An index of an expression can't be described, and rows need none.
pytestmark = pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")


@pytest.fixture(params=FOLDERS, ids=lambda folder: str(folder.name))
def recorded(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def url(recorded: Path, home: Path, new_empty_database: NewDatabase) -> str:
    """Of the database of the recorded home, which lies at `home`."""
    home.mkdir(mode=0o700)
    url = new_empty_database(home)
    home_as_text.restore(recorded, home, url)
    return url


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    """torchyard's migrations and one more, as the next version may bring it."""
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(str(next_migration.__file__), folder / "versions" / f"{NEXT}_next.py")
    return folder


def test_every_record_and_every_file_is_as_it_was(recorded: Path, home: Path, url: str) -> None:
    db = Database(url)
    db.upgrade()
    assert db.schema_version() == SCHEMA_VERSION
    _check_rows(db, recorded)
    db.close()
    for path, content in home_as_text.files(recorded).items():
        assert (home / path).read_bytes() == content, path


def _check_rows(db: Database, recorded: Path) -> None:
    tables = sa.MetaData()
    with db.read() as connection:
        tables.reflect(connection)
        for name, then in home_as_text.rows(recorded).items():
            if name != "alembic_version":
                now = _rows_now(connection, tables.tables[name], list(then[0]))
                typed = [_comparable(home_as_text.typed_row(tables.tables[name], r)) for r in then]
                assert now == Counter(typed), name


def _rows_now(connection: sa.Connection, table: sa.Table, columns: list[str]) -> Counter[str]:
    found = connection.execute(sa.select(*(table.columns[name] for name in columns)))
    return Counter(_comparable(dict(row._mapping)) for row in found)


def _comparable(row: dict[str, Any]) -> str:
    plain = {key: None if isinstance(value, sa.Null) else value for key, value in row.items()}
    return json.dumps(plain, sort_keys=True, default=bytes.hex)


def test_the_server_answers_as_it_did(recorded: Path, home: Path, url: str) -> None:
    at, then = answers.recorded(recorded)
    now = answers.ask(home, url, at)
    assert len(then) >= 150
    differences = [answers.difference(answer, now[path], path) for path, answer in then.items()]
    assert [text for text in differences if text] == []


def test_a_home_has_what_users_have(recorded: Path) -> None:
    jobs = home_as_text.rows(recorded)["jobs"]
    assert {job["type"] for job in jobs} >= {"command", "sweep", "pipeline", "run"}
    states = {job["status"] for job in jobs}
    assert states >= {"Completed", "Failed", "Canceled", "Running", "Queued"}
    assert len(home_as_text.rows(recorded)) >= 50


def test_secrets_are_read_with_the_homes_key_alone(recorded: Path, home: Path, url: str) -> None:
    text = (recorded / "rows.jsonl").read_text() + (recorded / "files.jsonl").read_text()
    assert "planted-secret" not in text
    assert _planted_in(home, url) == {"a-component", "a-connection", "a-datastore", "a-deployment",
                                      "a-job", "a-webhook"}  # fmt: skip


def _planted_in(home: Path, url: str) -> set[str]:
    db = home_database.open_for(home, sa.make_url(url))
    try:
        with db.read() as connection:
            found = [
                str(connection.execute(sa.select(column)).all())
                for table in metadata.sorted_tables
                for column in table.columns
                if isinstance(column.type, SealedJson | SealedText)
            ]
    finally:
        db.close()
    return set(re.findall(r"planted-secret-of-([a-z-]+)", "".join(found)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_kill_in_an_upgrade_leaves_the_old_or_the_new_home(
    url: str, migrations: Path, copy_of: Callable[[str, int], str]
) -> None:
    old = _state(url)
    whole = copy_of(url, 0)
    moments = _upgrade_in_a_process(whole, migrations, 0)
    new = _state(whole)
    assert new != old and moments >= 5
    seen = Counter[str]()
    for kill in range(KILLS):
        victim = copy_of(url, kill + 1)
        _upgrade_in_a_process(victim, migrations, 1 + kill * moments // KILLS)
        state = _state(victim)
        assert state in (old, new)
        seen["old" if state == old else "new"] += 1
        _upgrade_in_a_process(victim, migrations, 0)
        assert _state(victim) == new
    assert seen["old"] and seen.total() == KILLS


@pytest.fixture
def copy_of(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str, int], str]:
    """Another database with the same content."""

    def copied(url: str, number: int) -> str:
        target = sa.make_url(url)
        if target.get_backend_name() == "sqlite":
            file = tmp_path / f"copy-{number}.db"
            shutil.copy(str(target.database), file)
            return f"sqlite:///{file}"
        server = request.getfixturevalue("postgres")
        return str(server.new_database(str(target.database)))

    return copied


def _upgrade_in_a_process(url: str, migrations: Path, moment: int) -> int:
    """Upgrade a database; the process kills itself at a moment, counted from 1.

    Returns:
        How many moments there were.
    """
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_upgrade, args=(url, migrations, moment, sender))
    process.start()
    process.join()
    assert process.exitcode == (-signal.SIGKILL if moment else 0)
    count = receiver.recv() if receiver.poll() else 0
    receiver.close()
    sender.close()
    return int(count)


def _upgrade(url: str, migrations: Path, moment: int, sender: Any) -> None:
    moments = 0

    def passes(*_: Any) -> None:
        nonlocal moments
        moments += 1
        if moments == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    db = Database(url)
    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        sa.event.listen(db.engine, name, passes)
    db.upgrade(NEXT, migrations)
    passes()
    db.close()
    sender.send(moments)


def _state(url: str) -> Any:
    db = Database(url)
    with db.read() as connection:
        state = describe(connection), rows(connection)
    db.close()
    return state


@pytest.mark.end_to_end
@pytest.mark.timeout(600)
def test_a_real_server_goes_on_with_the_home(recorded: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    home_as_text.restore(recorded, home, f"sqlite:///{home}/torchyard.db")
    with running_server(Yard(home)) as yard:
        assert yard.completed("waiting")["status"] == "Completed"
        lost = yard.wait("running")
        assert lost["error"]["code"] == "worker_lost"
        assert yard.logs("running") and yard.job("trained")["status"] == "Completed"
        request = tmp_path / "request.json"
        request.write_text('{"data": [[1, 2]]}')
        sums = ["online-endpoint", "invoke", "-n", "sums", "--request-file", str(request)]
        wait_until(lambda: _printed(yard, *sums) == "[3]", 240, "the deployment answers again")
        yard("online-endpoint", "delete", "-n", "sums", "--yes")
        wait_until(lambda: not yard.get("online-endpoints")["value"], 120, "the endpoint is gone")


def _printed(yard: Yard, *arguments: str) -> str:
    with yard.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        return process.communicate()[0].decode().strip()
