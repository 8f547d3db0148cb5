"""What every test may use: a database with the schema, a clock that stands.

Whatever asks for `database_url` or `db` runs on SQLite, and with the marker `postgres` on
PostgreSQL: `make test` leaves the latter out, `make test-postgres` runs nothing else. A module
that says `ONE_DATABASE = True` tests nothing that a database could do otherwise, and runs on
SQLite alone.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import sentences
from postgres_server import NewDatabase, PostgresServer
from sentences import sentence
from torchyard.base import files
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.executors import bundle

# As in CI: the same examples in each run, however long one takes.
__all__ = ["sentence"]  # a fixture

settings.register_profile("torchyard", deadline=None, derandomize=True)
settings.load_profile("torchyard")


def pytest_configure(config: pytest.Config) -> None:
    """What programs under test leave in the folder for temporary files goes at the end.

    MLflow's client, uv and torch leave some. pytest's own folders stay where they are.
    """
    if hasattr(config, "workerinput"):
        return  # it has the variables of the process that started it
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="ty-"))
    folder.chmod(0o1777)  # tests have programs of other users, too
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None

    def remove_folder() -> None:
        files.remove(folder)
        _remove_dangling_links()

    config.add_cleanup(remove_folder)


def _remove_dangling_links() -> None:
    """Those of nodes that a test has killed with their machine; see worker/system/temporary.py."""
    for link in Path("/tmp").glob(f"yard-{os.getuid()}-*"):
        if not os.path.exists(link):
            link.unlink(missing_ok=True)


@pytest.fixture(scope="session", autouse=True)
def _worker_compiled_once() -> None:
    """Each home makes the worker's zip; a server has one home, and tests have thousands."""
    bundle._compiled = functools.cache(bundle._compiled)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "sentence" in getattr(item, "fixturenames", ()):
            item.add_marker("sentences")
    left_out = [item for item in items if _is_sqlites(item) and _is_on_postgres(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish() -> None:
    sentences.write()


def _is_sqlites(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and getattr(item.module, "ONE_DATABASE", False)


def _is_on_postgres(item: pytest.Item) -> bool:
    return item.get_closest_marker("postgres") is not None


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for the session; its database `template_torchyard` has the schema."""
    server = PostgresServer()
    try:
        server.run("CREATE DATABASE template_torchyard")
        made = Database(server.url("template_torchyard"))
        made.upgrade()
        made.close()
        yield server
    finally:
        # Removing its thousand databases takes longer on a busy disk than a test may.
        server.stop()


@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def database_server(request: pytest.FixtureRequest) -> PostgresServer | None:
    """What the test runs on; None is SQLite."""
    if request.param == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    return server


@pytest.fixture(scope="session")
def new_database(
    database_server: PostgresServer | None, tmp_path_factory: pytest.TempPathFactory
) -> NewDatabase:
    """Makes databases that no home has had, with the schema."""
    if database_server is None:
        template = tmp_path_factory.mktemp("template")
        made = Database(_new_file(template))
        made.upgrade()
        made.close()
        return lambda folder: _copy_of(template / "torchyard.db", folder)
    return lambda folder: database_server.new_database("template_torchyard")


@pytest.fixture(scope="session")
def new_empty_database(database_server: PostgresServer | None) -> NewDatabase:
    """Makes databases without a schema."""
    if database_server is None:
        return _new_file
    return lambda folder: database_server.new_database()


def _new_file(folder: Path) -> str:
    return f"sqlite:///{folder / 'torchyard.db'}"


def _copy_of(template: Path, folder: Path) -> str:
    # Copying is twenty times as fast as migrating.
    shutil.copy(template, folder / "torchyard.db")
    return _new_file(folder)


@pytest.fixture
def database_url(new_database: NewDatabase, tmp_path: Path) -> str:
    return new_database(tmp_path)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    made.upgrade()
    yield made
    made.close()
