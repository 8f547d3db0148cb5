"""The key of the secrets: where it is, which one is refused, how another takes its place."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import torchyard.server  # noqa: F401  (the tables of every package)
from backups.test_planted_secrets import DOORS, PLANTED, _rows
from jobs import support
from postgres_server import NewDatabase
from torchyard.backups import actions, key_rotation
from torchyard.backups import secrets as secret_parts
from torchyard.base import sealed_columns, settings
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database, metadata
from torchyard.base.errors import Conflict, InvalidInput, TorchyardError
from torchyard.base.home import home_database, secrets_keys
from torchyard.base.home.secrets_keys import NOT_GIVEN, Given, KeyRing, State
from torchyard.jobs.requests import job_queries
from workspaces.served import HERE, Served, served

PASSPHRASE = "correct horse battery"
TOKEN = "hf_abcdefghijklmnop"
VALUE = "f00d" * 16
OTHER = "beef" * 16
Open = Callable[..., Database]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


@pytest.fixture
def url(home: Path, new_database: NewDatabase) -> str:
    """Of a database that is this home's."""
    return home_database.chosen(home, new_database(home.parent)).render_as_string(False)


@pytest.fixture
def open_db(home: Path, url: str) -> Iterator[Open]:
    """Opens the home's database as a server does that starts."""
    opened: list[Database] = []

    def open_db(given: Given = NOT_GIVEN) -> Database:
        opened.append(home_database.open_for(home, home_database.chosen(home, url), given=given))
        return opened[-1]

    yield open_db
    for db in opened:
        db.close()


def submit(home: Path, db: Database, *names: str) -> None:
    services = support.make_services(home, db, FakeClock())
    for name in names:
        variables = {"HF_TOKEN": TOKEN, "A": "plain"}
        support.submit(services, name=name, environment_variables=variables)


def tokens(home: Path, db: Database) -> dict[str, str]:
    """The secret variable of each job."""
    services = support.make_services(home, db, FakeClock())
    return {
        job.name: job.document["environment_variables"]["HF_TOKEN"]
        for job in job_queries.list_in(services, "default")
    }


def state_of(home: Path) -> State:
    state = KeyRing(home).state()
    assert state is not None
    return state


def key_files(home: Path) -> list[Path]:
    return sorted(home.parent.glob("home-*.key"))


def sealed_texts(database_url: str) -> list[str]:
    """Every sealed value, as it is stored."""
    texts = []
    with closing(Database(database_url)) as db, db.read() as connection:
        for table in metadata.sorted_tables:
            after: Any = ()
            while True:
                values, after = sealed_columns.sealed_values(connection, table, after)
                texts += [value.text for value in values]
                if not after:
                    break
    return texts


def opened_by(secret: bytes, texts: list[str]) -> int:
    seal = sealed_columns.Seal(lambda: [secrets_keys._derived(secret, "records")])
    return sum(seal.unseal(text) is not None for text in texts)


def all_files(home: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(home.parent.rglob("*"))
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def test_the_first_start_makes_the_key_beside_the_home(home: Path, open_db: Open) -> None:
    submit(home, open_db(), "a")
    (file,) = key_files(home)
    assert file.stat().st_mode & 0o777 == 0o600
    assert state_of(home).current.file == str(file)
    secret = file.read_bytes().strip()
    assert not any(secret in path.read_bytes() for path in home.rglob("*") if path.is_file())
    # Another start finds it.
    assert tokens(home, open_db()) == {"a": TOKEN}
    assert key_files(home) == [file]


def test_servers_that_start_at_once_make_one_key(home: Path) -> None:
    states: list[State] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        states.append(KeyRing(home).ensure())

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 8 and len(set(states)) == 1 and len(key_files(home)) == 1


def test_a_home_that_is_moved_with_its_key_goes_on(home: Path, tmp_path: Path) -> None:
    secret = KeyRing(home).secrets()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (file,) = key_files(home)
    file.rename(elsewhere / file.name)
    home.rename(elsewhere / "renamed")
    assert KeyRing(elsewhere / "renamed").secrets() == secret


def test_a_home_alone_on_its_disk_has_the_key_in_it(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(home)])
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        file = Path(KeyRing(home).ensure().current.file)
        assert file.parent == home and "TORCHYARD_SECRETS_KEY_FILE" in caplog.text
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def _given(environ: dict[str, str]) -> Given:
    return secrets_keys.given_by(settings.read({"TORCHYARD_HOME": "/h", **environ}))


def test_the_key_comes_by_variable_file_or_credential(
    home: Path, open_db: Open, tmp_path: Path
) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    assert _given({"CREDENTIALS_DIRECTORY": str(credentials)}) == NOT_GIVEN
    (credentials / "secrets-key").write_text(VALUE + "\n")
    (credentials / "secrets-key").chmod(0o400)
    by_credential = _given({"CREDENTIALS_DIRECTORY": str(credentials)})
    assert by_credential.file == credentials / "secrets-key"
    named = {"TORCHYARD_SECRETS_KEY_FILE": "/k", "CREDENTIALS_DIRECTORY": str(credentials)}
    assert _given(named).file == Path("/k")
    by_value = _given({"TORCHYARD_SECRETS_KEY": VALUE, **named})
    assert by_value.value == VALUE and VALUE not in repr(by_value)
    submit(home, open_db(by_credential), "a")
    assert tokens(home, open_db(by_value)) == {"a": TOKEN}
    assert key_files(home) == []
    assert settings.for_jobs({"TORCHYARD_SECRETS_KEY": VALUE, "A": "b"}) == {"A": "b"}


def test_a_file_that_is_named_is_made_at_the_first_start(
    home: Path, open_db: Open, tmp_path: Path
) -> None:
    given = Given(file=tmp_path / "the.key", source="`the.key`")
    submit(home, open_db(given), "a")
    assert (tmp_path / "the.key").stat().st_mode & 0o777 == 0o600
    assert tokens(home, open_db(given)) == {"a": TOKEN} and key_files(home) == []


def test_a_wrong_key_is_refused_and_nothing_is_changed(home: Path, open_db: Open) -> None:
    given = Given(VALUE, source="`TORCHYARD_SECRETS_KEY`")
    db = open_db(given)
    submit(home, db, "a")
    db.close()
    before = all_files(home)
    for wrong, code in ((replace(given, value=OTHER), "wrong_key"), (NOT_GIVEN, "key_missing")):
        with pytest.raises(InvalidInput) as caught:
            open_db(wrong)
        assert caught.value.code == code and caught.value.hint
        assert state_of(home).current.id in caught.value.message
        assert VALUE not in caught.value.message + caught.value.hint
        assert all_files(home) == before
    assert tokens(home, open_db(given)) == {"a": TOKEN}


def test_a_home_from_before_keeps_its_key_until_it_is_replaced(
    home: Path, url: str, open_db: Open
) -> None:
    (home / "secrets.key").write_bytes(os.urandom(31) + b"\n")
    (home / "secrets.key").chmod(0o600)
    old = (home / "secrets.key").read_bytes()
    db = open_db()
    submit(home, db, "a")
    assert key_files(home) == [] and opened_by(old, sealed_texts(url)) == 1
    with pytest.raises(InvalidInput) as caught:
        open_db(Given(VALUE, source="`TORCHYARD_SECRETS_KEY`"))
    assert caught.value.code == "wrong_key"
    key_rotation.rotate(home, url, NOT_GIVEN)
    assert not (home / "secrets.key").exists() and len(key_files(home)) == 1
    assert opened_by(old, sealed_texts(url)) == 0
    assert tokens(home, db) == {"a": TOKEN}


def test_a_key_that_others_can_read_or_that_is_short_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "k"
    file.write_text(VALUE)
    file.chmod(0o644)
    with pytest.raises(InvalidInput, match="others can read"):
        secrets_keys.read_file(file)
    file.chmod(0o600)
    assert secrets_keys.read_file(file) == VALUE.encode()
    file.write_text("short\n")
    with pytest.raises(InvalidInput, match="shorter than 32"):
        secrets_keys.read_file(file)
    with pytest.raises(InvalidInput, match="can't be read"):
        secrets_keys.read_file(tmp_path / "none")


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path / "home", database_url) as made:
        yield made


def _dump(database_url: str) -> bytes:
    """What a copy of it holds: SQLite's files with their log, or every row."""
    if database_url.startswith("sqlite"):
        file = Path(str(sa.make_url(database_url).database))
        return b"".join(path.read_bytes() for path in sorted(file.parent.glob(file.name + "*")))
    return _rows(database_url)


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based")
def test_no_bytes_of_the_database_hold_a_secret_before_or_after(
    site: Served, database_url: str, tmp_path: Path
) -> None:
    planted = []
    for name, plant in DOORS.items():
        planted.append(PLANTED.format(name))
        plant(site, planted[-1])
    home = site.parts.services.home
    (old,) = KeyRing(home).secrets()
    texts = sealed_texts(database_url)
    before = _dump(database_url)
    keys_before = site.ok("carl", "POST", f"{HERE}/online-endpoints/digits/keys", {})
    assert len(texts) >= 9 and opened_by(old, texts) == len(texts)
    assert all(text.encode() in before for text in texts) and b"planted-sweep" in before
    done = key_rotation.rotate(home, database_url, NOT_GIVEN)
    assert (done.resealed, done.lost, done.resumed) == (len(texts), 0, False)
    (new,) = KeyRing(home).secrets()
    after, texts_after = _dump(database_url), sealed_texts(database_url)
    assert opened_by(new, texts_after) == len(texts_after) == len(texts)
    assert opened_by(old, texts_after) == 0
    # Neither free pages nor the log have what the old key opens.
    assert [text for text in texts if text.encode() in after] == []
    for content in (before, after):
        assert [secret for secret in planted if secret.encode() in content] == []
        assert b"planted-sweep" in content
        for secret in (old, new):
            assert secret not in content and base64.b64encode(secret) not in content
    (file,) = (path for path in home.parent.glob("*.key"))
    assert file.read_bytes().strip() == new
    # The server, which has gone on, reads what there is and seals with the new key.
    keys = site.ok("carl", "POST", f"{HERE}/online-endpoints/digits/keys", {})
    assert keys == keys_before and keys["primaryKey"].startswith("pLanted-endpoint-key")
    job = {"name": "later", "command": "true", "environment": "python"}
    site.ok("dan", "POST", f"{HERE}/jobs", {**job, "environment_variables": {"HF_TOKEN": TOKEN}})
    assert opened_by(new, sealed_texts(database_url)) == len(texts) + 1


def test_a_server_writes_secrets_meanwhile(home: Path, url: str, open_db: Open) -> None:
    db = open_db()
    submit(home, db, *(f"before{number}" for number in range(250)))
    (old,) = KeyRing(home).secrets()
    written: list[str] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            submit(home, db, f"meanwhile{len(written)}")
            written.append(f"meanwhile{len(written)}")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while len(written) < 3:
            assert thread.is_alive()
        done = key_rotation.rotate(home, url, NOT_GIVEN)
        count = len(written)
        while len(written) < count + 3:
            assert thread.is_alive()
    finally:
        stop.set()
        thread.join()
    assert done.resealed >= 253 and done.lost == 0
    texts = sealed_texts(url)
    assert opened_by(old, texts) == 0 and len(texts) == 250 + len(written)
    assert set(tokens(home, db).values()) == {TOKEN}


_KILLED = """
import os, signal, sys
from pathlib import Path
from torchyard.backups import key_rotation
from torchyard.base.home.secrets_keys import NOT_GIVEN, Given
home, url, given_file, last = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
given = Given(file=Path(given_file), source=given_file) if given_file else NOT_GIVEN
steps = 0
def on_step(step):
    global steps
    steps += 1
    print(step, flush=True)
    if steps == last:
        os.kill(os.getpid(), signal.SIGKILL)
key_rotation.rotate(home, url, given, on_step=on_step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_given", [False, True])
def test_a_run_that_is_killed_at_any_step_is_finished_by_the_next(
    home: Path, url: str, open_db: Open, tmp_path: Path, is_given: bool
) -> None:
    given_file = str(tmp_path / "given.key") if is_given else ""
    given = Given(file=Path(given_file), source="it") if is_given else NOT_GIVEN
    server = open_db(given)
    submit(home, server, "a", "b", "c")
    expected = dict.fromkeys("abc", TOKEN)
    killed_at: list[str] = []
    while True:
        (old,) = KeyRing(home, given).secrets()
        command = [sys.executable, "-c", _KILLED, str(home), url, given_file]
        ended = subprocess.run(
            [*command, str(len(killed_at) + 1)], capture_output=True, text=True, timeout=100
        )
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        killed_at.append(ended.stdout.splitlines()[-1])
        # The server that runs, and one that starts now, read everything and write more.
        assert tokens(home, server) == expected
        starting = open_db(given)
        name = f"after{len(killed_at)}"
        submit(home, starting, name)
        expected[name] = TOKEN
        starting.close()
        done = key_rotation.rotate(home, url, given)
        assert done.lost == 0
        # Killed at the very first step, or behind the last one, it begins anew.
        (new,) = KeyRing(home, given).secrets()
        texts = sealed_texts(url)
        assert opened_by(old, texts) == 0 and opened_by(new, texts) == len(texts) == len(expected)
        assert tokens(home, server) == expected
        state = state_of(home)
        assert state.old is None and state.next is None and new != old
        assert Path(state.current.file).read_bytes().strip() == new
        files = [path for path in tmp_path.iterdir() if ".key" in path.name]
        assert files == [Path(state.current.file)]
    steps = ["next key noted", "next key written", "next key in use", "rows of jobs", "resealed"]
    steps += ["old key removed", *(["named"] if is_given else []), "done"]
    assert killed_at == steps


def test_two_runs_at_once_are_refused(home: Path, url: str, open_db: Open) -> None:
    submit(home, open_db(), "a")
    seen: list[TorchyardError] = []

    def on_step(step: str) -> None:
        with pytest.raises(Conflict, match="is being replaced already") as caught:
            key_rotation.rotate(home, url, NOT_GIVEN)
        seen.append(caught.value)

    key_rotation.rotate(home, url, NOT_GIVEN, on_step=on_step)
    assert len(seen) > 3


def test_a_key_from_outside_is_replaced_by_the_file_that_is_named(
    home: Path, url: str, open_db: Open, tmp_path: Path
) -> None:
    given = Given(VALUE, source="`TORCHYARD_SECRETS_KEY`")
    server = open_db(given)
    submit(home, server, "a")
    state = state_of(home)
    with pytest.raises(InvalidInput, match="comes from outside") as caught:
        key_rotation.rotate(home, url, given)
    assert "--to FILE" in caught.value.hint and state_of(home) == state
    new_file = tmp_path / "new.key"
    done = key_rotation.rotate(home, url, given, to=new_file)
    assert (done.resealed, done.file) == (1, str(new_file))
    assert opened_by(VALUE.encode(), sealed_texts(url)) == 0
    # The running server goes on; the next one needs the new key.
    submit(home, server, "b")
    with pytest.raises(InvalidInput) as caught:
        open_db(given)
    assert caught.value.code == "wrong_key" and str(new_file) in caught.value.message
    new = Given(new_file.read_text().strip(), source="`TORCHYARD_SECRETS_KEY`")
    assert tokens(home, open_db(new)) == {"a": TOKEN, "b": TOKEN}
    with pytest.raises(Conflict, match="has already"):
        key_rotation.rotate(home, url, new, to=new_file)


def test_secrets_of_a_lost_key_are_counted_and_left(home: Path, url: str, open_db: Open) -> None:
    db = open_db()
    submit(home, db, "a")
    db.close()
    (home / secrets_keys.STATE_FILE).unlink()
    submit(home, open_db(), "b")
    texts = sealed_texts(url)
    done = key_rotation.rotate(home, url, NOT_GIVEN)
    assert (done.resealed, done.lost) == (1, 1)
    assert len(set(texts) & set(sealed_texts(url))) == 1


def test_a_backup_taken_in_the_middle_has_both_keys(
    home: Path, url: str, open_db: Open, tmp_path: Path
) -> None:
    submit(home, open_db(), "a")
    (tmp_path / "backups").mkdir()
    restored_homes: list[Path] = []

    def on_step(step: str) -> None:
        number = len(restored_homes)
        target = tmp_path / "backups" / f"{number}.tar"
        assert actions.backup(home, url, target, PASSPHRASE).missing == []
        folder = tmp_path / f"restored{number}"
        folder.mkdir()
        restored_homes.append(folder / "home")
        actions.restore(folder / "home", "", target, PASSPHRASE)

    key_rotation.rotate(home, url, NOT_GIVEN, on_step=on_step)
    assert len(restored_homes) > 5
    for restored in restored_homes:
        # The keys are beside the home that was restored, not in it.
        assert list(restored.glob("*.key*")) == [] and key_files(restored)
        url_there = home_database.default_url(restored)
        with closing(home_database.open_for(restored, url_there)) as db:
            assert tokens(restored, db) == {"a": TOKEN}
        key_rotation.rotate(restored, "", NOT_GIVEN)
        assert len(key_files(restored)) == 1
        with closing(home_database.open_for(restored, url_there)) as db:
            assert tokens(restored, db) == {"a": TOKEN}


def test_a_backup_with_a_passphrase_needs_the_key(
    home: Path, url: str, open_db: Open, tmp_path: Path
) -> None:
    given = Given(VALUE, source="`TORCHYARD_SECRETS_KEY`")
    submit(home, open_db(given), "a")
    with pytest.raises(InvalidInput) as caught:
        actions.backup(home, url, tmp_path / "b.tar", PASSPHRASE)
    assert caught.value.code == "key_missing" and not (tmp_path / "b.tar").exists()
    assert len(actions.backup(home, url, tmp_path / "b.tar").missing) == 1
    actions.backup(home, url, tmp_path / "c.tar", PASSPHRASE, given)
    actions.restore(tmp_path / "again", "", tmp_path / "c.tar", PASSPHRASE)
    again = home_database.open_for(
        tmp_path / "again", home_database.default_url(tmp_path / "again")
    )
    with closing(again) as db:
        assert tokens(tmp_path / "again", db) == {"a": TOKEN}


def test_a_backup_from_before_brings_its_one_key(tmp_path: Path) -> None:
    """Their files were called as those of the home."""
    secret = os.urandom(32)
    files = (("secrets.key", base64.b64encode(secret).decode()), ("signing.key", "AAAA"))
    body = secret_parts.to_json(secret_parts.Secrets(files), PASSPHRASE)
    read, _ = secret_parts.from_json(body, PASSPHRASE, Path("b.tar"))
    assert read is not None and read.sealing == (secret,) and read.files == files[1:]


@pytest.mark.slow
def test_the_command_replaces_the_key(home: Path, url: str, open_db: Open) -> None:
    submit(home, open_db(), "a", "b")
    environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}

    def yard(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("yard"), "server", "rotate-key", *arguments],
            env={**environ, "TORCHYARD_HOME": str(home), **more},
            capture_output=True,
            text=True,
            timeout=100,
        )

    (before,) = key_files(home)
    ended = yard("-o", "json")
    assert ended.returncode == 0, ended.stderr
    done = json.loads(ended.stdout)
    assert (done["resealed"], done["lost"], [Path(done["file"])]) == (2, 0, key_files(home))
    assert not before.exists()
    assert "2 secrets are encrypted with the new key" in yard().stdout
    ended = yard(TORCHYARD_SECRETS_KEY=VALUE)
    assert ended.returncode == 2 and ended.stderr.startswith("error: the key of ")
    assert "hint: " in ended.stderr and VALUE not in ended.stderr
    assert tokens(home, open_db()) == {"a": TOKEN, "b": TOKEN}
