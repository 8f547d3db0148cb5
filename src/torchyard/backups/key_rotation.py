"""Put another key in the place of the one that the secrets in a home's records are sealed with.

Owns: the steps, in an order that can be ended after each; sealing every value again.
Leaves: the keys and what the home says of them to base/home/secrets_keys.py, one value to
base/sealed_columns.py.
Always: servers go on meanwhile: from the step that makes the new key the current one they seal with
it, and open what either sealed; the old key ends when nothing is sealed with it any more; a run
that was ended is finished by the next one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

import torchyard.app.application  # noqa: F401  (every package's tables)
from torchyard.base import machine, sealed_columns
from torchyard.base.db import SCHEMA_VERSION, Database, metadata
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.home import home_database, secrets_keys
from torchyard.base.home.secrets_keys import Given, Key, KeyRing, State
from torchyard.base.sealed_columns import Seal, Sealed
from torchyard.servers.lease import living_servers
from torchyard.shared import locks

# How long the kernel of another machine may show an old file of a home on NFS (acregmax, nfs(5)).
_SEEN_ELSEWHERE_S = 60.0
_CHECKPOINT_TRIES, _CHECKPOINT_PAUSE_S = 20, 0.1


@dataclass(frozen=True)
class Result:
    """What was done; `resealed` values had the old key, `lost` ones neither this nor the new one.

    `file` is where the new key is, `resumed` says that a run before had begun it.
    """

    id: str
    file: str
    resealed: int
    lost: int
    resumed: bool


def rotate(
    home: Path,
    database: str,
    given: Given,
    to: Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> Result:
    """Seal every secret of a home with a new key, and forget the old one.

    Args:
        database: its URL; empty for the one that the home had last.
        given: the key so far, where that comes from outside the home.
        to: the file of the new key, which is made if it is not there; by default where the old one
            is, or beside the home.
        on_step: called with the name of each step that is done.

    Raises:
        InvalidInput: the key so far is missing or wrong, or there is no file for the new one.
        Conflict: another run is on its way.
    """
    url = home_database.chosen(home, database)
    if url == home_database.default_url(home) and not Path(str(url.database)).exists():
        raise InvalidInput(
            f"`{home}` is not a torchyard home folder", "set TORCHYARD_HOME to the right one"
        )
    with _alone(home):
        db = home_database.connect(url)
        try:
            home_database.check_pair(db, home, url)
            if db.schema_version() != SCHEMA_VERSION:
                raise Conflict(
                    f"the records of `{home}` are not of this torchyard",
                    "start the server once, which brings them forward, then type this again",
                    code="older_schema",
                )
            return _Rotation(home, db, given, on_step).run(to)
        finally:
            db.close()


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    (home / "locks").mkdir(mode=0o700, exist_ok=True)
    with locks.held_if_free(home / "locks" / "secrets-key") as is_held:
        if not is_held:
            raise Conflict(
                f"the key of `{home}` is being replaced already", "wait until that has ended"
            )
        yield


class _Rotation:
    def __init__(
        self, home: Path, db: Database, given: Given, on_step: Callable[[str], None]
    ) -> None:
        self._ring = KeyRing(home, given)
        self._db = db
        self._on_step = on_step
        if db.url.get_backend_name() == "sqlite":
            event.listen(db.engine, "connect", _delete_securely)

    def run(self, to: Path | None) -> Result:
        state = self._ring.ensure()
        is_resumed = state.old is not None or state.next is not None
        if state.old is None:
            state = self._use_next(self._prepared(state, to))
        assert state.old is not None
        resealed, lost = self._reseal_all(state.current, state.old)
        self._on_step("resealed")
        self._empty_log()
        self._remove_file(state.old, state.current)
        self._on_step("old key removed")
        state = self._named_as_given(State(state.current))
        self._ring.write(state)
        self._on_step("done")
        return Result(state.current.id, state.current.file, resealed, lost, is_resumed)

    def _prepared(self, state: State, to: Path | None) -> State:
        """There is a next key, and its file is written."""
        ring = self._ring
        if state.next is not None and ring.find(state.next) is not None:
            return state
        if state.next is not None:  # of a run that was killed while it wrote the file
            file = Path(state.next.file)
            for draft in file.parent.glob(f".{file.name}.*.part"):
                draft.unlink()
        secret = secrets_keys.new_secret()
        file = to or self._file_of_next(state)
        if to is not None and to.exists():
            secret = secrets_keys.read_file(to)
        key = Key(secrets_keys.id_of(secret), str(file))
        if key.id == state.current.id:
            raise Conflict(f"`{file}` is the key that the home has already", "name another file")
        state = replace(state, next=key)
        ring.write(state)
        self._on_step("next key noted")
        if not file.exists():
            ring.make_file(file, secret)
        self._on_step("next key written")
        return state

    def _file_of_next(self, state: State) -> Path:
        ring = self._ring
        given_file = ring.given.file
        if given_file is None and (ring.given.value or not state.current.file):
            raise InvalidInput(
                f"the key of {ring.given.source or 'the secrets'} comes from outside the home",
                "name the file of the new one: `yard server rotate-key --to FILE`",
            )
        if given_file is None:
            return ring.new_file()
        if not os.access(given_file.parent, os.W_OK):
            raise InvalidInput(
                f"no new key can be written beside `{given_file}`",
                "name the file of the new one: `yard server rotate-key --to FILE`",
            )
        if not given_file.exists():
            return given_file
        file = given_file.with_name(f"{given_file.name}.next")
        if file.exists():
            raise Conflict(
                f"`{file}`, where the new key would go, exists already",
                "move it away, or use it as the new key: `yard server rotate-key --to FILE`",
            )
        return file

    def _use_next(self, state: State) -> State:
        assert state.next is not None
        state = State(state.next, old=state.current)
        self._ring.write(state)
        self._on_step("next key in use")
        return state

    def _reseal_all(self, current: Key, old: Key) -> tuple[int, int]:
        """How many values had the old key, and how many have neither."""
        new_seal = self._ring.seal_of(current)
        # Its file is removed when nothing is left that it sealed.
        old_seal = self._ring.seal_of(old) if self._ring.find(old) is not None else None
        # Every write with the old key has ended before this begins.
        with self._db.write():
            pass
        total, lost = self._pass(new_seal, old_seal)
        if self._has_servers_elsewhere():
            time.sleep(_SEEN_ELSEWHERE_S)
        # Nothing is left with the old key when a whole pass has found nothing.
        resealed = -1
        while resealed:
            resealed, lost = self._pass(new_seal, old_seal)
            total += resealed
        return total, lost

    def _pass(self, new_seal: Seal, old_seal: Seal | None) -> tuple[int, int]:
        resealed = lost = 0
        for table in metadata.sorted_tables:
            after: Sequence[Any] = ()
            while True:
                # Searched without a lock: a table of jobs takes its time.
                with self._db.read() as connection:
                    values, after = sealed_columns.sealed_values(connection, table, after)
                others = [value for value in values if new_seal.unseal(value.text) is None]
                olds = [v for v in others if old_seal and old_seal.unseal(v.text) is not None]
                lost += len(others) - len(olds)
                if olds and old_seal:
                    resealed += self._reseal(olds, new_seal, old_seal)
                    self._on_step(f"rows of {table.name}")
                if not after:
                    break
        return resealed, lost

    def _reseal(self, values: Sequence[Sealed], new_seal: Seal, old_seal: Seal) -> int:
        """As they are now, for a row may have been changed since it was found."""
        resealed = 0
        table = values[0].table
        with self._db.write() as connection:
            for key in dict.fromkeys(value.key for value in values):
                for value in sealed_columns.sealed_values_of(connection, table, key):
                    plain = old_seal.unseal(value.text)
                    if plain is not None:
                        sealed_columns.reseal(connection, value, plain, new_seal)
                        resealed += 1
        return resealed

    def _has_servers_elsewhere(self) -> bool:
        here = machine.here()
        return any(server.machine not in ("", here) for server in living_servers(self._db))

    def _empty_log(self) -> None:
        """SQLite's log has pages as they were; a reader may hold it up, and it is reused then."""
        if self._db.url.get_backend_name() != "sqlite":
            return
        for _ in range(_CHECKPOINT_TRIES):
            with suppress(DBAPIError), self._db.engine.connect() as connection:
                raw = connection.connection.driver_connection
                assert raw is not None
                if raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0:
                    return
            time.sleep(_CHECKPOINT_PAUSE_S)

    def _remove_file(self, old: Key, current: Key) -> None:
        """Of an old key that torchyard keeps; what is given is its owner's to remove."""
        given = self._ring.given
        if not old.file or old.file == str(given.file) or old.file == current.file:
            return
        for file in (Path(old.file), self._ring.home.parent / Path(old.file).name):
            if file.is_file() and secrets_keys.id_of(secrets_keys.read_file(file)) == old.id:
                file.unlink()

    def _named_as_given(self, state: State) -> State:
        """The file that the server is started with holds the new key, in place of the old one."""
        given = self._ring.given.file
        file = Path(state.current.file)
        if given is None or file != given.with_name(f"{given.name}.next"):
            return state
        with suppress(FileNotFoundError):  # a run that was ended here has done it
            os.replace(file, given)
        self._on_step("named")
        return State(replace(state.current, file=str(given)))


def _delete_securely(connection: Any, record: Any) -> None:
    """Overwrite what is replaced: free pages would keep what the old key opens."""
    connection.execute("PRAGMA secure_delete=ON")
