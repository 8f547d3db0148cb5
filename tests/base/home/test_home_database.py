"""Which database a home has, and what is said when it can't be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchyard.server  # noqa: F401  (every package's tables)
from base.schema_dump import describe, rows
from postgres_server import NewDatabase, PostgresServer
from torchyard.base import postgres, settings
from torchyard.base.db import SCHEMA_VERSION
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.home import home_database
from torchyard.base.home.home_database import Choice, chosen, open_for, read_url, resolve

SECRET = "hunter2-hunter2"


def refused(home: Path, url: str = "", variable: str = "", first: str = "", **environ: str) -> str:
    """What `yard-server` says as it refuses to start.

    Args:
        url: given as an argument; `variable` as TORCHYARD_DATABASE.
        first: a folder whose modules come before the installed ones.
    """
    arguments = [sys.executable, "-m", "torchyard.server", "--home", str(home), "--port", "0"]
    if url:
        arguments += ["--database", url]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    plain |= {"TORCHYARD_DATABASE": variable, "PYTHONPATH": first, **environ}
    ended = subprocess.run(arguments, capture_output=True, text=True, env=plain, timeout=60)
    assert ended.returncode == 2, ended.stderr
    lines = ended.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"], ended.stderr
    assert SECRET not in ended.stderr
    return ended.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "can't be read"),
        ("mysql://me@host/db", "kind `mysql`"),
        ("postgresql://me@host", "names no database"),
        ("sqlite:///relative.db", "whole path"),
        ("sqlite://", "whole path"),
        (f"postgresql://me:{SECRET}@127.0.0.1/db", "holds a password"),
        (f"postgresql://me@127.0.0.1/db?password={SECRET}", "holds a password"),
        (f"postgresql://me:{SECRET}@host:port/db", "can't be read"),
    ],
)
def test_a_url_that_is_none(home: Path, url: str, message: str) -> None:
    assert message in refused(home, url)


@pytest.mark.slow
def test_a_file_that_is_no_database(home: Path) -> None:
    (home / "torchyard.db").write_text("x" * 5000)
    assert "file is not a database" in refused(home)


@pytest.mark.slow
def test_the_driver_is_missing(home: Path, tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')\n")
    message = refused(home, "postgresql://me@127.0.0.1:9/db", first=str(tmp_path))
    assert "pip install 'torchyard[postgres]'" in message


def test_the_server_keeps_its_secrets_from_jobs() -> None:
    from torchyard.base.settings import for_jobs, read

    environ = {
        "TORCHYARD_DATABASE": f"postgresql://me:{SECRET}@h/d",
        "PGPASSWORD": SECRET,
        "A": "b",
    }
    assert for_jobs(environ) == {"A": "b"}
    assert SECRET not in repr(read(environ))


def test_a_home_keeps_its_own_file_by_default(home: Path) -> None:
    assert chosen(home, "") == home_database.default_url(home)
    open_for(home, chosen(home, "")).close()
    assert not (home / "database.json").exists()
    elsewhere = f"sqlite:///{home.parent / 'other.db'}"
    with pytest.raises(Conflict, match="has its records in") as caught:
        open_for(home, read_url(elsewhere))
    assert caught.value.code == "records_elsewhere"


def test_a_home_remembers_its_database(home: Path, new_database: NewDatabase) -> None:
    url = new_database(home.parent)
    open_for(home, chosen(home, url)).close()
    again = open_for(home, chosen(home, ""))
    assert again.schema_version() == SCHEMA_VERSION
    assert again.url == read_url(url)
    again.close()
    with pytest.raises(Conflict, match="has its records in"):
        open_for(home, home_database.default_url(home))


def test_a_database_has_one_home(home: Path, new_database: NewDatabase) -> None:
    url = read_url(new_database(home.parent))
    open_for(home, url).close()
    other = home.parent / "other"
    other.mkdir()
    with pytest.raises(Conflict, match=f"belongs to the home `{home}`"):
        open_for(other, url)
    assert not (other / "database.json").exists()


def test_a_newer_schema_is_refused(home: Path, new_database: NewDatabase) -> None:
    url = new_database(home.parent)
    made = open_for(home, read_url(url))
    with made.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0999'")
    made.close()
    assert f"knows `{SCHEMA_VERSION}`" in refused(home)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0001", "0129"])
def test_a_home_of_a_development_version_is_refused(
    home: Path, new_database: NewDatabase, version: str
) -> None:
    # The schema of 0129 is the one that 0.1.0 starts with.
    url = read_url(new_database(home.parent))
    old = open_for(home, url)
    with old.write() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")
    with old.read() as connection:
        before = describe(connection), rows(connection)
    old.close()

    message = refused(home)
    assert f"error: the database `{postgres.redacted(url)}` was made by a development" in message
    assert f"before 0.1.0 (schema `{version}`)" in message
    assert "hint: start fresh: set TORCHYARD_HOME to a new folder, and `--database`" in message

    unchanged = home_database.connect(url)
    with pytest.raises(Conflict) as caught:
        unchanged.upgrade()
    assert caught.value.code == "development_schema"
    with unchanged.read() as connection:
        assert (describe(connection), rows(connection)) == before
    unchanged.close()


@pytest.mark.postgres
def test_nobody_answers(home: Path, postgres: PostgresServer) -> None:
    message = refused(home, "postgresql://me@/db?host=/nowhere")
    assert "see whether PostgreSQL runs" in message
    assert "Connection refused" in refused(home, "postgresql://me@127.0.0.1:9/db")
    assert "host's name" in refused(home, "postgresql://me@no-such-host.invalid/db")


@pytest.mark.postgres
def test_a_wrong_name_or_password(home: Path, postgres: PostgresServer) -> None:
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all locked scram-sha-256\n" + before)
    postgres.run(f"CREATE ROLE locked LOGIN PASSWORD '{SECRET}'", "SELECT pg_reload_conf()")
    assert "createdb" in refused(home, postgres.url("missing"))
    assert "passfile" in refused(home, postgres.url("postgres", "locked"))
    wrong = refused(home, variable=postgres.url("postgres", "locked", SECRET + "x"))
    assert "password authentication failed" in wrong

    # By each of the ways that the hint names, the right one is let in as far as the schema.
    passfile = home.parent / "pass"
    passfile.write_text(f"*:*:*:locked:{SECRET}\n")
    passfile.chmod(0o600)
    plain = postgres.url("postgres", "locked")
    for url, environ in (
        (f"{plain}&passfile={passfile}", {}),
        (plain, {"PGPASSWORD": SECRET}),
        (plain, {"PGPASSFILE": str(passfile)}),
    ):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            home_database.connect(read_url(url)).close()
    rules.write_text(before)
    postgres.run("SELECT pg_reload_conf()")


@pytest.mark.postgres
def test_a_password_is_not_written_down(home: Path, postgres: PostgresServer) -> None:
    url = read_url(postgres.new_database("template_torchyard")).set(password=SECRET)
    open_for(home, url).close()
    assert chosen(home, "").password is None
    open_for(home, chosen(home, "")).close()
    assert SECRET not in (home / "database.json").read_text()
    assert (home / "database.json").stat().st_mode & 0o077 == 0


@pytest.mark.postgres
def test_an_old_server_and_another_encoding(
    home: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    latin = "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'"
    postgres.run(latin)
    with pytest.raises(InvalidInput, match="needs UTF8"):
        open_for(home, read_url(postgres.url("latin")))
    monkeypatch.setattr("torchyard.base.postgres.OLDEST", 99)
    with pytest.raises(InvalidInput, match="needs 99 or later"):
        open_for(home, read_url(postgres.new_database()))


def test_what_is_shown_has_no_password() -> None:
    url = read_url(f"postgresql://me:{SECRET}@host/db?passfile=/x&sslpassword={SECRET}")
    assert postgres.redacted(url) == "postgresql://me@host/db?passfile=%2Fx"


def test_only_its_owner_reads_a_file_of_records(home: Path) -> None:
    before = os.umask(0o022)
    try:
        home.chmod(0o755)
        file = home / "torchyard.db"
        open_for(home, chosen(home, "")).close()
        assert file.stat().st_mode & 0o777 == 0o600
        file.chmod(0o644)  # as earlier versions have left it
        db = open_for(home, chosen(home, ""))
        with db.write() as connection:
            connection.exec_driver_sql("CREATE TABLE t (a)")
        modes = {file.name: file.stat().st_mode & 0o777 for file in home.glob("torchyard.db*")}
        db.close()
    finally:
        os.umask(before)
    assert len(modes) == 3 and set(modes.values()) == {0o600}


def _url_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "database"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_the_url_comes_from_a_file_that_others_cannot_read(home: Path) -> None:
    secret_url = f"postgresql://me:{SECRET}@127.0.0.1:9/db"
    file = _url_file(home.parent, f"{secret_url}\n")
    assert resolve(home, Choice(file=file)) == secret_url
    assert resolve(home, Choice("sqlite:////x.db", file)) == "sqlite:////x.db"
    for mode in (0o644, 0o604) + ((0o660,) if os.geteuid() == 0 else (0o640,)):
        file.chmod(mode)
        with pytest.raises(
            InvalidInput, match="others can read the file of the database's URL"
        ) as refusal:
            resolve(home, Choice(file=file))
        assert refusal.value.hint.startswith("type `chmod 06")
    for text in ("", "a\nb", " "):
        with pytest.raises(InvalidInput, match="one line with a URL"):
            resolve(home, Choice(file=_url_file(home.parent, text)))
    with pytest.raises(InvalidInput, match="can't be read: No such file"):
        resolve(home, Choice(file=home / "none"))
    assert SECRET not in repr(Choice("", file, SECRET))


def test_a_file_of_roots_may_be_the_services_groups(home: Path) -> None:
    file = _url_file(home.parent, "sqlite:////x.db", 0o640)
    if file.stat().st_uid != 0:
        pytest.skip("only root makes files of root")
    assert resolve(home, Choice(file=file)) == "sqlite:////x.db"


def test_the_file_is_found_again_without_being_named(home: Path) -> None:
    assert resolve(home, Choice()) == ""
    file = _url_file(home.parent, "sqlite:////x.db")
    home_database.remember_file(home, file)
    assert resolve(home, Choice()) == "sqlite:////x.db"
    home_database.remember_file(home, None)
    assert resolve(home, Choice()) == ""


def test_systemds_credential_names_the_database(tmp_path: Path) -> None:
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert settings.read(environ).database_file is None
    (tmp_path / "database").write_text("sqlite:////x.db")
    assert settings.read(environ).database_file == tmp_path / "database"
    configured = settings.read({**environ, "TORCHYARD_DATABASE_FILE": "/etc/torchyard/database"})
    assert configured.database_file == Path("/etc/torchyard/database")


def test_a_password_from_the_environment_is_for_urls_without_one(home: Path) -> None:
    plain = "postgresql://me@host/db"
    assert resolve(home, Choice(plain, password=SECRET)) == f"postgresql://me:{SECRET}@host/db"
    other = "postgresql://me:other@host/db"
    assert resolve(home, Choice(other, password=SECRET)) == other
    assert resolve(home, Choice(password=SECRET)) == ""


@pytest.mark.postgres
def test_a_backup_finds_the_password_where_the_guide_puts_it(
    home: Path, postgres: PostgresServer
) -> None:
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    database = postgres.new_database("template_torchyard")
    rules.write_text("local all keeper scram-sha-256\n" + before)
    name = database.partition("?")[0].rpartition("/")[2]
    postgres.run(
        f"CREATE ROLE keeper LOGIN SUPERUSER PASSWORD '{SECRET}'", "SELECT pg_reload_conf()"
    )
    file = _url_file(home.parent, postgres.url(name, "keeper", SECRET))
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    try:
        open_for(home, read_url(resolve(home, Choice(file=file)))).close()
        command = [sys.executable, "-m", "torchyard.backups", "backup", "--home", str(home)]
        target = home.parent / "backup.tar"
        # As it was before: the home knows the URL, and nobody the password.
        ended = subprocess.run([*command, str(target)], capture_output=True, text=True, env=plain)
        assert ended.returncode == 2 and "password" in ended.stderr
        home_database.remember_file(home, file)
        ended = subprocess.run([*command, str(target)], capture_output=True, text=True, env=plain)
        assert ended.returncode == 0, ended.stderr
        assert target.exists() and SECRET not in ended.stdout + ended.stderr
        assert SECRET.encode() not in target.read_bytes()
    finally:
        rules.write_text(before)
        postgres.run("SELECT pg_reload_conf()")
