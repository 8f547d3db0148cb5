"""Proofs: a backup is restored and compared, and what is wrong with one is named."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

import torchyard.server  # noqa: F401  (the tables of every package)
from jobs import support
from postgres_server import NewDatabase
from torchyard.backups import actions, archive, proving, records
from torchyard.base.clock import FakeClock
from torchyard.base.db import metadata
from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.base.home import backup_record, home_database
from torchyard.base.home.secrets_keys import STATE_FILE, KeyRing
from torchyard.jobs.services import Services

PASSPHRASE = "correct horse battery"
SECRET = "hf_abcdefghijklmnop"
Damage = Callable[[Path], str]


@pytest.fixture
def services(tmp_path: Path, new_database: NewDatabase, clock: FakeClock) -> Iterator[Services]:
    """A home with three jobs, a secret and two blobs."""
    home = tmp_path / "home"
    home.mkdir()
    url = home_database.chosen(home, new_database(tmp_path))
    with closing(home_database.open_for(home, url)) as db:
        services = support.make_services(home, db, clock)
        for name in ("a", "b", "c"):
            variables = {"HF_TOKEN": SECRET, "A": "plain"}
            support.submit(services, name=name, environment_variables=variables)
        for content in (b"one", b"two" * 1000):
            services.blobs.of("default").put_bytes(content)
        yield services


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where backups are written, with nothing else in it."""
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _live_rows(services: Services) -> dict[str, int]:
    with services.db.read() as connection:
        return {
            table.name: connection.execute(
                sa.select(sa.func.count()).select_from(table)
            ).scalar_one()
            for table in metadata.sorted_tables
            if table.name != "installation"
        }


@pytest.mark.parametrize("name", ["b.tar", "b.tgz", "b"])
def test_a_backup_is_proved_against_what_the_home_had(
    services: Services, folder: Path, name: str
) -> None:
    done = actions.backup(services.home, "", folder / name, PASSPHRASE)
    before = backup_record.read(services.home)
    assert before.backup is not None and before.backup.path == str(folder / name)
    assert before.proof is None
    proof = proving.prove(services.home, folder / name, PASSPHRASE)
    live = _live_rows(services)
    assert live["jobs"] == 3
    assert (proof.rows, proof.tables) == (sum(live.values()), len(live))
    assert (proof.files, proof.size_bytes) == (done.files, done.size_bytes)
    assert proof.missing == [] and proof.made_at == before.backup.at.isoformat(timespec="seconds")
    noted = backup_record.read(services.home).proof
    assert noted is not None and noted.held and noted.secrets
    assert (noted.rows, noted.files, noted.error) == (proof.rows, proof.files, "")
    assert _names(folder) == [name]
    # The home that was backed up goes on as it was.
    assert _live_rows(services) == live


def test_without_the_passphrase_the_secrets_are_not_proved(
    services: Services, folder: Path
) -> None:
    actions.backup(services.home, "", folder / "b.tar", PASSPHRASE)
    assert len(proving.prove(services.home, folder / "b.tar").missing) == 3
    noted = backup_record.read(services.home).proof
    assert noted is not None and noted.held and not noted.secrets


def test_a_backup_of_another_home_is_not_noted(
    services: Services, folder: Path, tmp_path: Path
) -> None:
    actions.backup(services.home, "", folder / "b.tar")
    other = tmp_path / "other"
    other.mkdir()
    assert proving.prove(other, folder / "b.tar").rows > 0
    assert _names(other) == []


def test_a_backup_that_says_no_rows_is_proved_by_its_files(
    services: Services, folder: Path
) -> None:
    actions.backup(services.home, "", folder / "b")
    manifest = json.loads((folder / "b" / archive.MANIFEST).read_text())
    del manifest["rows"]
    (folder / "b" / archive.MANIFEST).write_text(json.dumps(manifest))
    assert proving.prove(services.home, folder / "b").rows > 0


def _flip(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)


def _blob(folder: Path) -> Path:
    return max((folder / "blobs").rglob("??/*"), key=lambda path: path.stat().st_size)


def _flipped_in_a_file(backup: Path) -> str:
    blob = _blob(backup)
    _flip(blob, 2000)
    return f"`{blob.relative_to(backup)}` is not what was backed up"


def _flipped_in_the_database(backup: Path) -> str:
    _flip(backup / "torchyard.db", 9000)
    return "`torchyard.db` is not what was backed up"


def _missing_file(backup: Path) -> str:
    blob = _blob(backup)
    blob.unlink()
    return f"`{blob.relative_to(backup)}` is missing"


def _missing_database(backup: Path) -> str:
    (backup / "torchyard.db").unlink()
    return "`torchyard.db` is missing"


def _extra_file(backup: Path) -> str:
    (backup / "extra").write_text("x")
    return "`extra` does not belong to it"


def _missing_manifest(backup: Path) -> str:
    (backup / archive.MANIFEST).unlink()
    return "it is cut off"


def _change_records(backup: Path, *statements: str) -> None:
    """As a program would that writes wrong records, with their checksum."""
    file = backup / "torchyard.db"
    with closing(sqlite3.connect(file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    manifest = json.loads((backup / archive.MANIFEST).read_text())
    entry = next(each for each in manifest["files"] if each["path"] == "torchyard.db")
    content = file.read_bytes()
    entry |= {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    (backup / archive.MANIFEST).write_text(json.dumps(manifest))


def _lost_row(backup: Path) -> str:
    _change_records(backup, "DELETE FROM jobs WHERE name = 'b'")
    return "the table `jobs` had 3 rows when it was backed up, and has 2 rows"


def _lost_table(backup: Path) -> str:
    _change_records(backup, "DROP TABLE models")
    return "the table `models` had 0 rows when it was backed up, and has no rows, being absent"


def _rotten_blob(backup: Path) -> str:
    """Backed up as it was read: its checksum is that of what is there."""
    blob = _blob(backup)
    _flip(blob, 1)
    manifest = json.loads((backup / archive.MANIFEST).read_text())
    path = blob.relative_to(backup).as_posix()
    entry = next(each for each in manifest["files"] if each["path"] == path)
    entry["sha256"] = hashlib.sha256(blob.read_bytes()).hexdigest()
    (backup / archive.MANIFEST).write_text(json.dumps(manifest))
    return f"`{path}` was damaged in the home already"


@pytest.mark.parametrize(
    "damage",
    [
        _flipped_in_a_file,
        _flipped_in_the_database,
        _missing_file,
        _missing_database,
        _extra_file,
        _missing_manifest,
        _lost_row,
        _lost_table,
        _rotten_blob,
    ],
)
def test_what_is_wrong_with_a_backup_is_named(
    services: Services, folder: Path, damage: Damage
) -> None:
    actions.backup(services.home, "", folder / "b")
    expected = damage(folder / "b")
    with pytest.raises(InvalidInput) as caught:
        proving.prove(services.home, folder / "b")
    assert caught.value.code == "broken_backup"
    assert expected in caught.value.message
    noted = backup_record.read(services.home).proof
    assert noted is not None and not noted.held and noted.error == caught.value.message
    assert _names(folder) == ["b"]


@pytest.mark.parametrize("name", ["b.tar", "b.tgz"])
def test_a_cut_or_changed_archive_does_not_hold(
    services: Services, folder: Path, name: str
) -> None:
    actions.backup(services.home, "", folder / name)
    content = (folder / name).read_bytes()
    for damaged in (content[: len(content) // 2], content.rstrip(b"\0")[:-300], b""):
        (folder / name).write_bytes(damaged)
        with pytest.raises(InvalidInput) as caught:
            proving.prove(services.home, folder / name)
        noted = backup_record.read(services.home).proof
        if damaged:
            assert caught.value.code == "broken_backup" and noted is not None and not noted.held
        assert _names(folder) == [name]


def test_a_flipped_byte_in_an_archive_is_named(services: Services, folder: Path) -> None:
    actions.backup(services.home, "", folder / "b.tar")
    with tarfile.open(folder / "b.tar") as tar:
        blob = next(member for member in tar if member.name.startswith("blobs/"))
    _flip(folder / "b.tar", blob.offset_data)
    with pytest.raises(InvalidInput, match=f"`{blob.name}` is not what was backed up"):
        proving.prove(services.home, folder / "b.tar")


def test_a_blob_that_rotted_in_the_home_is_found(services: Services, folder: Path) -> None:
    blob = _blob(services.home)
    _flip(blob, 1)
    actions.backup(services.home, "", folder / "b.tar")
    with pytest.raises(InvalidInput, match=f"`blobs/.*{blob.name}` was damaged in the home"):
        proving.prove(services.home, folder / "b.tar")


def test_a_wrong_passphrase_is_refused_and_says_nothing_of_the_backup(
    services: Services, folder: Path
) -> None:
    actions.backup(services.home, "", folder / "b.tar", PASSPHRASE)
    proving.prove(services.home, folder / "b.tar", PASSPHRASE)
    before = backup_record.read(services.home)
    with pytest.raises(InvalidInput) as caught:
        proving.prove(services.home, folder / "b.tar", PASSPHRASE + "x")
    assert caught.value.code == "wrong_passphrase"
    assert backup_record.read(services.home) == before
    assert _names(folder) == ["b.tar"]


def test_a_backup_with_the_key_of_another_home_does_not_hold(
    services: Services, folder: Path
) -> None:
    KeyRing(services.home).secrets()
    (services.home / STATE_FILE).unlink()  # the next one makes another key
    KeyRing(services.home).ensure()
    actions.backup(services.home, "", folder / "b.tar", PASSPHRASE)
    with pytest.raises(InvalidInput, match="opens none of its secrets") as caught:
        proving.prove(services.home, folder / "b.tar", PASSPHRASE)
    assert caught.value.code == "broken_backup"


def test_what_is_no_backup_is_refused(services: Services, folder: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        proving.prove(services.home, folder / "none.tar")
    with pytest.raises(InvalidInput, match="not a torchyard backup"):
        proving.prove(services.home, folder)
    assert _names(folder) == []


@contextmanager
def _small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "tmpfs", str(folder)]
    made = subprocess.run(command, capture_output=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("share", [1.2, 1.95])
def test_a_proof_that_fills_the_disk_says_so_and_leaves_nothing(
    services: Services, folder: Path, tmp_path: Path, share: float
) -> None:
    actions.backup(services.home, "", tmp_path / "b.tar")
    proving.prove(services.home, tmp_path / "b.tar")
    before = backup_record.read(services.home)
    with _small_disk(folder, int((tmp_path / "b.tar").stat().st_size * share)):
        shutil.copyfile(tmp_path / "b.tar", folder / "b.tar")
        with pytest.raises(TorchyardError) as caught:
            proving.prove(services.home, folder / "b.tar")
        assert _names(folder) == ["b.tar"]
    message = caught.value.message.lower()
    assert "no space left" in message or "disk is full" in message
    assert caught.value.code != "broken_backup"
    # It says nothing of whether the backup is good.
    assert backup_record.read(services.home) == before


_HOLDING = """
import sys
from pathlib import Path
from torchyard.backups import scratch
with scratch.beside(Path(sys.argv[1])) as folder:
    (folder / "torchyard.db").write_text("x")
    print("begun", flush=True)
    sys.stdin.read()
"""


def _holding(target: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDING, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


def test_what_a_killed_proof_left_is_removed_by_the_next(services: Services, folder: Path) -> None:
    actions.backup(services.home, "", folder / "b.tar")
    with _holding(folder / "b.tar") as killed:
        killed.kill()
        killed.communicate()
    assert len(_names(folder)) == 2
    with _holding(folder / "b.tar") as living:
        proving.prove(services.home, folder / "b.tar")
        assert len(_names(folder)) == 2  # that of the living one
        living.communicate("")
    assert _names(folder) == ["b.tar"]


def test_a_record_of_a_home_that_is_damaged_is_none(tmp_path: Path) -> None:
    for text in ("", "[]", '{"backup": {"at": 7}}', '{"proof": {"at": "2026-01-01"}}'):
        (tmp_path / backup_record.FILE).write_text(text)
        assert backup_record.read(tmp_path) == backup_record.Record()


def test_rows_are_counted_in_the_copy_itself(services: Services, tmp_path: Path) -> None:
    saved = records.save(services.db, tmp_path / "copy.db")
    assert saved.rows == records.count_rows(tmp_path / "copy.db") == _live_rows(services)
    assert records.check(tmp_path / "copy.db") == ""
