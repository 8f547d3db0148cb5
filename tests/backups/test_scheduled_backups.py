"""The backups that a server makes by itself: when, how many, by which server, what is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import torchyard.server  # noqa: F401  (the tables of every package)
from eventually import eventually
from jobs import support
from postgres_server import NewDatabase
from torchyard.backups import actions, proving
from torchyard.backups.keeper import Keeper, due_at
from torchyard.base.clock import FakeClock, SystemClock
from torchyard.base.errors import InvalidInput
from torchyard.base.home import backup_record, home_database
from torchyard.base.home.backup_record import Proof, Record, Scheduled
from torchyard.jobs.services import Services
from torchyard.servers import backup_settings
from torchyard.servers.backup_settings import BackupSettings
from workspaces.served import Served, served

NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
Write = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


@pytest.fixture
def write(tmp_path: Path, folder: Path) -> Write:
    """Writes the file of the setting."""

    def write(**keys: Any) -> Path:
        (tmp_path / "backups.json").write_text(json.dumps({"folder": "backups", **keys}))
        return tmp_path / "backups.json"

    return write


def test_the_file_says_where_and_how_often(write: Write, folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert backup_settings.read(None, home) is None
    file = write()
    assert backup_settings.read(file, home) == BackupSettings(folder, 7, 4, None, file)
    (tmp_path / "phrase").write_text("correct horse battery\n")
    (tmp_path / "phrase").chmod(0o600)
    file = write(days=1, keep=30, passphrase_file="phrase")
    settings = backup_settings.read(file, home)
    assert settings == BackupSettings(folder, 1, 30, tmp_path / "phrase", file)
    assert settings is not None and settings.files == [file, tmp_path / "phrase", folder]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"folder": "none"}, "is not a folder that the server can write to"),
        ({"folder": ""}, "has no `folder`"),
        ({"folder": "home"}, "is inside the home folder"),
        ({"days": 0}, "`days`"),
        ({"keep": "all"}, "`keep`"),
        ({"dayz": 7}, "`dayz`"),
        ({"passphrase_file": "none"}, "can't be read"),
    ],
)
def test_a_wrong_setting_is_refused_at_the_start(
    write: Write, tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    (tmp_path / "home").mkdir()
    with pytest.raises(InvalidInput) as caught:
        backup_settings.read(write(**keys), tmp_path / "home")
    assert message in caught.value.message


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="can't be read"):
        backup_settings.read(tmp_path / "none.json", tmp_path / "home")
    (tmp_path / "b.json").write_text("folder: x")
    with pytest.raises(InvalidInput, match="is not JSON"):
        backup_settings.read(tmp_path / "b.json", tmp_path / "home")


def test_a_backup_is_due_at_once_then_each_period_and_a_day_after_a_failure() -> None:
    settings = BackupSettings(Path("/b"), days=7)
    assert due_at(Record(), settings) is None
    assert due_at(Record(scheduled=Scheduled(NOW)), settings) == NOW + timedelta(days=7)
    failed = Record(scheduled=Scheduled(NOW, "the disk is full"))
    assert due_at(failed, settings) == NOW + timedelta(days=1)


@pytest.fixture
def services(tmp_path: Path, new_database: NewDatabase) -> Iterator[Services]:
    home = tmp_path / "home"
    home.mkdir()
    url = home_database.chosen(home, new_database(tmp_path))
    with closing(home_database.open_for(home, url)) as db:
        services = replace(support.make_services(home, db, FakeClock()), clock=SystemClock())
        support.submit(services, name="a")
        yield services


def _age(services: Services, days: int) -> None:
    """The last try is so many days ago."""
    last = backup_record.read(services.home).scheduled
    assert last is not None
    earlier = replace(last, at=last.at - timedelta(days=days, seconds=5))
    backup_record.note_scheduled(services.home, earlier)


@pytest.mark.slow
def test_a_server_backs_itself_up_when_it_is_due_and_proves_it(
    services: Services, folder: Path
) -> None:
    keeper = Keeper(services, BackupSettings(folder, days=7, keep=2))
    (folder / "torchyard-notes.tar").write_text("of somebody")
    assert keeper.run_due() and not keeper.run_due()
    record = backup_record.read(services.home)
    assert record.backup and record.proof and record.scheduled
    (first,) = folder.glob("torchyard-*Z.tar")
    assert record.proof.held and record.proof.path == record.backup.path == str(first)
    assert record.scheduled.error == ""
    # Of three, the oldest goes; what has another name stays.
    for _ in range(2):
        _age(services, 7)
        assert keeper.run_due()
    kept = sorted(folder.glob("torchyard-*Z.tar"))
    assert len(kept) == 2 and first not in kept
    assert (folder / "torchyard-notes.tar").exists()
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


@pytest.mark.slow
def test_a_failed_backup_removes_none_and_is_told(services: Services, folder: Path) -> None:
    keeper = Keeper(services, BackupSettings(folder, days=7, keep=1))
    assert keeper.run_due()
    (good,) = folder.glob("torchyard-*.tar")
    blob = services.blobs.of("default")
    rotten = blob.path(blob.put_bytes(b"content"))
    rotten.chmod(0o600)
    rotten.write_bytes(b"cOntent")
    _age(services, 7)
    assert keeper.run_due()
    record = backup_record.read(services.home)
    assert record.scheduled is not None and record.proof is not None
    assert "was damaged in the home already" in record.scheduled.error
    assert not record.proof.held and good.exists()
    # It counts for none, however often that happens, and is there to be looked at.
    (aside,) = folder.glob("torchyard-*.unproved")
    assert record.backup is not None and record.backup.path == str(aside)
    assert list(folder.glob("torchyard-*.tar")) == [good]
    assert not keeper.run_due()
    _age(services, 1)
    assert keeper.run_due() and good.exists()
    assert len(list(folder.glob("torchyard-*.unproved"))) == 1 and not aside.exists()
    _age(services, 1)
    rotten.write_bytes(b"content")
    assert keeper.run_due()
    record = backup_record.read(services.home)
    assert record.scheduled is not None and record.scheduled.error == ""
    assert len(list(folder.glob("torchyard-*"))) == 1 and not good.exists()


@pytest.mark.slow
def test_one_of_several_servers_makes_it(services: Services, folder: Path) -> None:
    keepers = [Keeper(services, BackupSettings(folder)) for _ in range(3)]
    for keeper in keepers:
        keeper.start()
    try:
        eventually(lambda: backup_record.read(services.home).scheduled, "a backup")
        # The one that had the lock ends, and the others look whether one is due.
        keepers[0].stop()
        keepers[1].stop()
    finally:
        for keeper in keepers:
            keeper.stop()
    assert len(list(folder.iterdir())) == 1


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path / "home", database_url) as made:
        yield made


def _metrics(site: Served) -> dict[str, float]:
    lines = site.ask("home", "GET", "/metrics").text.splitlines()
    pairs = (line.split() for line in lines if line.startswith("torchyard_backup"))
    return {name.removeprefix("torchyard_backup_"): float(value) for name, value in pairs}


def test_prometheus_reads_the_last_backup_and_its_proof(
    site: Served, tmp_path: Path, database_url: str
) -> None:
    home = site.parts.services.home
    never = {"timestamp_seconds": 0, "proof_timestamp_seconds": 0, "proof_held": 0, "failed": 0}
    assert _metrics(site) == never
    actions.backup(home, database_url, tmp_path / "b.tar")
    proving.prove(home, tmp_path / "b.tar")
    record = backup_record.read(home)
    assert record.backup and record.proof
    assert _metrics(site) == {
        "timestamp_seconds": record.backup.at.timestamp(),
        "proof_timestamp_seconds": record.proof.at.timestamp(),
        "proof_held": 1,
        "failed": 0,
    }
    backup_record.note_proof(home, Proof("b", NOW, held=False, error="a row is missing"))
    backup_record.note_scheduled(home, Scheduled(NOW, "no space left"))
    metrics = _metrics(site)
    assert (metrics["proof_held"], metrics["failed"]) == (0, 1)


@pytest.mark.slow
def test_the_command_proves_and_the_status_shows_it(services: Services, folder: Path) -> None:
    def yard(*arguments: str, expect: int = 0) -> str:
        environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
        ended = subprocess.run(
            [Path(sys.executable).with_name("yard"), "server", *arguments],
            env={**environ, "TORCHYARD_HOME": str(services.home)},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ended.returncode == expect, ended.stderr
        return ended.stdout + ended.stderr

    assert "last_backup" not in json.loads(yard("status", "-o", "json", expect=1))
    file = folder / "b.tar"
    assert "tables and " in yard("backup", str(file), "--prove")
    assert "come back as they were" in yard("prove", str(file))
    status = json.loads(yard("status", "-o", "json", expect=1))
    assert status["last_backup"]["path"] == status["last_backup_proof"]["path"] == str(file)
    assert status["last_backup_proof"]["held"] and status["last_backup_proof"]["rows"] > 0
    assert "held: " in yard("status", expect=1)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    output = yard("prove", str(file), expect=2)
    assert output.startswith("error: the backup `") and "hint: " in output
    assert "did not hold: the backup `" in yard("status", expect=1)
    backup_record.note_scheduled(services.home, Scheduled(NOW, "no space left"))
    assert "failed " in yard("status", expect=1)
