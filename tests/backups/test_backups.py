"""Backups: taken while jobs run, restored into either database, refused when not whole."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import torchyard.server  # noqa: F401  (the tables of every package)
from jobs import support
from jobs.support import WORKSPACE, Worker, attempt_of
from postgres_server import NewDatabase, PostgresServer
from torchyard.backups import actions, archive, records
from torchyard.base.clock import FakeClock
from torchyard.base.db import SCHEMA_VERSION
from torchyard.base.errors import TorchyardError
from torchyard.base.home import home_database
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions as job_actions
from torchyard.jobs.history.history_records import Metric, Param, Tag
from torchyard.jobs.records import progress
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests import job_queries
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.server import hold_home

Open = Callable[[Path, str], Services]


@pytest.fixture
def open_home(clock: FakeClock) -> Iterator[Open]:
    """Opens a home, and closes its database at the end."""
    opened: list[Services] = []

    def opening(home: Path, database: str = "") -> Services:
        home.mkdir(exist_ok=True)
        db = home_database.open_for(home, home_database.chosen(home, database))
        opened.append(support.make_services(home, db, clock))
        return opened[-1]

    yield opening
    for services in opened:
        services.db.close()


@pytest.fixture
def services(open_home: Open, tmp_path: Path, new_database: NewDatabase) -> Services:
    """A home with a job that has ended, one that runs and one that waits."""
    services = open_home(tmp_path / "home", new_database(tmp_path))
    scheduler = Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")
    jobs = {name: support.submit(services, name=name) for name in ("ended", "running")}
    scheduler.run_round()
    Worker(services, attempt_of(services, jobs["ended"])).whole_life()
    worker = Worker(services, attempt_of(services, jobs["running"]))
    worker.tell("node_started", hostname="h", pid=1, addresses=[])
    worker.tell("ranks_started", ranks=[])
    support.submit(services, name="waits")
    for job in jobs.values():
        points = [Metric("loss", step, step, step / 7) for step in range(3000)]
        bad = [Metric("odd", 0, 0, float("nan")), Metric("odd", 1, 1, float("inf"))]
        services.history.append(job.id, [*points, *bad, Param("lr", "0.1"), Tag("ä b%", "☃")])
    services.logs.append(WORKSPACE, "running", 1, "user_logs/std_log.txt", 0, b"hello\n")
    services.blobs.of("default").put_bytes(b"a blob")
    stored = services.datastores.root(WORKSPACE, "workspaceblobstore") / "folder" / "x.bin"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(os.urandom(100_000))
    stored.chmod(0o755)
    return services


def rows(services: Services, scratch: Path) -> dict[str, list[Any]]:
    """Every row of every table."""
    file = scratch / f"rows-{len(list(scratch.iterdir()))}.db"
    records.save(services.db, file)
    table_rows = {}
    with closing(sqlite3.connect(file)) as saved:
        tables = saved.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if table != "installation":
                table_rows[table] = sorted(
                    saved.execute(f'SELECT * FROM "{table}"').fetchall(), key=repr
                )
    assert sum(map(len, table_rows.values())) > 20
    return table_rows


def contents(home: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(home).as_posix(): (path.read_bytes(), path.stat().st_mode)
        for folder in ("blobs", "datastores", "logs")
        for path in (home / folder).rglob("*")
        if path.is_file()
    }


def same(services: Services, restored: Services, scratch: Path) -> None:
    assert rows(restored, scratch) == rows(services, scratch)
    assert contents(restored.home) == contents(services.home) != {}
    before = [job.id for job in job_queries.list_in(restored, WORKSPACE)]
    assert support.submit(restored, name=f"after{len(before)}").id > max(before)


@pytest.mark.parametrize("name", ["b.tar", "b.tar.gz", "folder"])
def test_a_home_comes_back_as_it_was(
    services: Services, open_home: Open, tmp_path: Path, name: str
) -> None:
    done = actions.backup(services.home, "", tmp_path / name)
    assert done.schema == SCHEMA_VERSION and done.files == len(contents(services.home)) + 2
    again = tmp_path / "again"
    assert actions.restore(again, "", tmp_path / name).files == done.files
    same(services, open_home(again, ""), tmp_path)
    names = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert names == set()


@pytest.mark.parametrize("name", ["b.tar", "folder"])
def test_a_file_with_several_names_is_in_it_once(
    services: Services, open_home: Open, tmp_path: Path, name: str
) -> None:
    content = os.urandom(2 << 20)
    file = {"path": "x", "sha256": services.blobs.of(WORKSPACE).put_bytes(content), "size": 2 << 20}
    snapshot = services.blobs.of(WORKSPACE).put_snapshot({"files": [file]}).id
    services.blobs.lend(WORKSPACE, snapshot)
    services.blobs.of("vision").put_bytes(content)
    actions.backup(services.home, "", tmp_path / name)
    paths = [tmp_path / name, *(tmp_path / name).rglob("*")]
    packed = sum(path.stat().st_size for path in paths if path.is_file())
    assert len(content) < packed < 2 * len(content)
    again = tmp_path / "again"
    actions.restore(again, "", tmp_path / name)
    same(services, open_home(again, ""), tmp_path)


def test_records_go_into_an_empty_database(
    services: Services, open_home: Open, tmp_path: Path, new_empty_database: NewDatabase
) -> None:
    actions.backup(services.home, "", tmp_path / "b.tar")
    (tmp_path / "elsewhere").mkdir()
    url = new_empty_database(tmp_path / "elsewhere")
    again = tmp_path / "again"
    actions.restore(again, url, tmp_path / "b.tar")
    same(services, open_home(again, ""), tmp_path)
    assert not (again / "torchyard.db").exists()
    with pytest.raises(TorchyardError) as caught:
        actions.restore(tmp_path / "third", url, tmp_path / "b.tar")
    assert caught.value.code == "not_empty"
    assert not (tmp_path / "third").exists()


@pytest.mark.postgres
def test_from_sqlite_to_postgresql_and_back(
    open_home: Open, tmp_path: Path, postgres: PostgresServer, services: Services
) -> None:
    actions.backup(services.home, "", tmp_path / "b.tar")
    first = tmp_path / "first"
    actions.restore(first, "", tmp_path / "b.tar")
    on_sqlite = open_home(first, "")
    same(services, on_sqlite, tmp_path)
    actions.backup(first, "", tmp_path / "c.tar")
    second = tmp_path / "second"
    actions.restore(second, postgres.new_database(), tmp_path / "c.tar")
    same(on_sqlite, open_home(second, ""), tmp_path)


def test_restored_jobs_go_on_or_say_what_became_of_them(
    services: Services, open_home: Open, tmp_path: Path
) -> None:
    actions.backup(services.home, "", tmp_path / "b.tar")
    again = tmp_path / "again"
    actions.restore(again, "", tmp_path / "b.tar")
    restored = open_home(again, "")

    def status(name: str) -> Status:
        return job_actions.get(restored, WORKSPACE, name).status

    assert [status(name) for name in ("ended", "running", "waits")] == [
        Status.COMPLETED,
        Status.RUNNING,
        Status.NOT_STARTED,
    ]
    Scheduler(restored, FakeExecutor(), "http://127.0.0.1:1").run_round()
    assert [status(name) for name in ("ended", "running", "waits")] == [
        Status.COMPLETED,
        Status.FAILED,
        Status.STARTING,
    ]
    lost = job_actions.get(restored, WORKSPACE, "running").error
    assert lost is not None and lost.code == "worker_lost"


@pytest.mark.slow
def test_a_backup_is_one_instant_of_a_server_that_writes(
    services: Services, open_home: Open, tmp_path: Path
) -> None:
    job = support.submit(services, name="busy")
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            step = written
            with services.db.write() as connection:
                progress.notice(connection, job, str(step), services.clock.now())
            services.history.append(
                job.id, [Metric("a", step, step, 1.0), Metric("b", step, step, 2.0)]
            )
            written += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while written < 20:
            assert thread.is_alive()
        before = written
        actions.backup(services.home, "", tmp_path / "b.tar")
    finally:
        stop.set()
        thread.join()
    actions.restore(tmp_path / "again", "", tmp_path / "b.tar")
    restored = open_home(tmp_path / "again", "")
    a, b = (restored.history.series(job.id, key) for key in "ab")
    assert before <= len(a) == len(b) <= written
    assert [point.step for point in a] == [point.step for point in b] == list(range(len(a)))
    events = job_actions.events(restored.db, restored_job(restored, "busy"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    notices = [event for event in events if event.kind == "notice"]
    assert len(notices) in (len(a), len(a) + 1)


def restored_job(services: Services, name: str) -> Any:
    return job_actions.get(services, WORKSPACE, name)


@pytest.fixture
def backed_up(services: Services, tmp_path: Path) -> Path:
    actions.backup(services.home, "", tmp_path / "b.tar")
    return tmp_path / "b.tar"


def refused(home: Path, source: Path, code: str) -> str:
    """Nothing of a restore that is refused is left."""
    before = sorted(home.parent.iterdir())
    with pytest.raises(TorchyardError) as caught:
        actions.restore(home, "", source)
    assert sorted(home.parent.iterdir()) == before
    assert caught.value.code == code, caught.value.message
    return caught.value.message


def test_a_truncated_archive_is_refused(
    services: Services, backed_up: Path, tmp_path: Path
) -> None:
    content = backed_up.read_bytes()
    cut = tmp_path / "cut.tar"
    with tarfile.open(backed_up) as tar:
        manifest = tar.getmember(archive.MANIFEST).offset
    lengths = [*range(2000, manifest, manifest // 12), manifest, manifest + 600]
    for length in lengths:
        cut.write_bytes(content[:length])
        assert "not whole" in refused(tmp_path / "new", cut, "broken_backup")
    cut.write_bytes(b"")
    refused(tmp_path / "new", cut, "broken_backup")
    compressed = tmp_path / "cut.tar.gz"
    actions.backup(services.home, "", compressed)
    content = compressed.read_bytes()
    for length in (5000, len(content) // 2, len(content) - 300):
        compressed.write_bytes(content[:length])
        refused(tmp_path / "new", compressed, "broken_backup")
    compressed.write_bytes(content[: len(content) // 2] + bytes(len(content) // 2))
    refused(tmp_path / "new", compressed, "broken_backup")


def test_a_changed_byte_is_detected(backed_up: Path, tmp_path: Path) -> None:
    content = bytearray(backed_up.read_bytes())
    with tarfile.open(backed_up) as tar:
        offset = tar.getmember("torchyard.db").offset_data + 5000
    content[offset] ^= 1
    backed_up.write_bytes(content)
    message = refused(tmp_path / "new", backed_up, "broken_backup")
    assert "`torchyard.db` is not what was backed up" in message


def test_a_folder_with_a_missing_or_an_extra_file_is_refused(
    services: Services, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    actions.backup(services.home, "", folder)
    (folder / "extra").write_text("x")
    assert "`extra` does not belong" in refused(tmp_path / "new", folder, "broken_backup")
    (folder / "extra").unlink()
    next(path for path in (folder / "blobs").rglob("*") if path.is_file()).unlink()
    assert "is missing" in refused(tmp_path / "new", folder, "broken_backup")
    (folder / archive.MANIFEST).unlink()
    assert "cut off" in refused(tmp_path / "new", folder, "broken_backup")


def test_a_file_that_is_not_a_backup_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as tar:
        tar.add(__file__, "x.py")
    assert "not a torchyard backup" in refused(tmp_path / "new", other, "invalid_input")
    (tmp_path / "empty").mkdir()
    assert "not a torchyard backup" in refused(
        tmp_path / "new", tmp_path / "empty", "invalid_input"
    )
    assert "does not exist" in refused(tmp_path / "new", tmp_path / "nothing", "invalid_input")


def test_a_member_outside_the_folder_is_refused(backed_up: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    with tarfile.open(backed_up) as good, tarfile.open(bad, "w") as tar:
        tar.addfile(good.getmember(archive.ABOUT), good.extractfile(archive.ABOUT))
        tar.addfile(tarfile.TarInfo("../outside"))
    refused(tmp_path / "new", bad, "invalid_input")
    assert not (tmp_path / "outside").exists()


def test_a_backup_of_a_newer_schema_is_refused(backed_up: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    # Python 3.11 takes a filter from 3.11.4 on.
    more: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(backed_up) as tar:
        tar.extractall(folder, **more)
    about = (folder / archive.ABOUT).read_text()
    (folder / archive.ABOUT).write_text(about.replace(f'"{SCHEMA_VERSION}"', '"0999"'))
    refused(tmp_path / "new", folder, "newer_schema")


def test_a_home_in_use_is_not_restored_over(
    services: Services, backed_up: Path, tmp_path: Path
) -> None:
    refused(services.home, backed_up, "not_empty")
    lock = hold_home(services.home)
    refused(services.home, backed_up, "served")
    lock.close()


def test_a_backup_overwrites_nothing(services: Services, backed_up: Path, tmp_path: Path) -> None:
    for target in (backed_up, services.home, services.home / "inside.tar", tmp_path):
        with pytest.raises(TorchyardError):
            actions.backup(services.home, "", target)
    with pytest.raises(TorchyardError, match="not a torchyard home folder"):
        actions.backup(tmp_path / "nothing", "", tmp_path / "c.tar")
    assert not (tmp_path / "nothing").exists() and not (tmp_path / "c.tar").exists()


@pytest.mark.slow
def test_the_command_backs_up_and_restores(services: Services, tmp_path: Path) -> None:
    def yard(home: Path, *arguments: str, expect: int = 0) -> str:
        environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
        ended = subprocess.run(
            [Path(sys.executable).with_name("yard"), "server", *arguments],
            env={**environ, "TORCHYARD_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ended.returncode == expect, ended.stderr
        return ended.stdout + ended.stderr

    file = tmp_path / "b.tar.gz"
    assert f"saved to {file}" in yard(services.home, "backup", str(file))
    assert "exists already" in yard(services.home, "backup", str(file), expect=2)
    assert "`.zip` file" in yard(services.home, "backup", str(tmp_path / "b.zip"), expect=2)
    assert not (tmp_path / "b.zip").exists()
    assert "yard server start" in yard(tmp_path / "again", "restore", str(file))
    output = yard(tmp_path / "again", "restore", str(file), expect=2)
    assert output.startswith("error: ") and "hint: " in output
    shutil.rmtree(tmp_path / "again")
    secret = yard(
        tmp_path / "again", "restore", str(file), "--database", "postgresql://a:b@h/d", expect=2
    )
    assert "holds a password" in secret
