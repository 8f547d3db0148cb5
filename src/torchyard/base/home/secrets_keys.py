"""The key that the secrets in a home's records are sealed with.

Owns: which key that is, as `secrets-key.json` in the home says; finding it, making it at the first
start beside the home; the steps by which another one takes its place.
Leaves: sealing to base/sealed_columns.py, sealing rows again to backups/key_rotation.py.
Always: the home says the id of its key, never the key; one that has another id is refused; while a
key is replaced, both are known, also after a kill. Homes from before have the key in themselves.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.files import write_atomically
from torchyard.base.home import private_files
from torchyard.base.sealed_columns import Seal
from torchyard.base.settings import Settings

STATE_FILE = "secrets-key.json"
FILE_IN_HOME = "secrets.key"
"""Where homes from before have it, and those with no folder beside them to keep it in."""
_SHORTEST_BYTES = 32
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Given:
    """A key from outside the home: its `value`, or a `file`, which `source` names to people."""

    value: str = field(default="", repr=False)
    file: Path | None = None
    source: str = ""


NOT_GIVEN = Given()


@dataclass(frozen=True)
class Key:
    """`id` tells keys apart and reveals nothing of them; `file` is empty for one that is given."""

    id: str
    file: str = ""


@dataclass(frozen=True)
class State:
    """`next` is being made and seals nothing yet; `old` seals what `current` does not seal yet."""

    current: Key
    old: Key | None = None
    next: Key | None = None


class KeyRing:
    """The keys of one home, as they are at each moment.

    Args:
        given: the key from outside; without one it is a file of the home's own.
    """

    def __init__(self, home: Path, given: Given = NOT_GIVEN) -> None:
        self.home = home
        self.given = given
        self._known: dict[str, bytes] = {}
        self._read_from: tuple[int, ...] = ()
        self._ids: tuple[str, ...] = ()

    def ensure(self) -> State:
        """Check the home's key, and make it if the home has none yet.

        Raises:
            InvalidInput: `wrong_key` for another one than the home's, or it is missing; nothing
                was changed.
        """
        given_secret = self._given_secret()
        state = self.state()
        if state is None:
            return self._begin(given_secret)
        known_ids = {key.id for key in (state.current, state.old, state.next) if key}
        if given_secret and id_of(given_secret) not in known_ids:
            raise self._wrong(state.current)
        self.secret_of(state.current)
        return state

    def secrets(self) -> list[bytes]:
        """The current one first; it is read again when another process has changed it.

        Raises:
            InvalidInput: the current one is missing.
        """
        read_from = _identity(self.home / STATE_FILE)
        if not read_from or read_from != self._read_from:
            # What is given has been compared at the start; it may have been replaced since.
            state = self.state() or self.ensure()
            self.secret_of(state.current)
            ids = [state.current.id]
            if state.old is not None and self.find(state.old) is not None:
                ids.append(state.old.id)
            self._ids, self._read_from = tuple(ids), read_from
        # A transaction that began before may still read what an earlier one sealed.
        return [self._known[id] for id in (*self._ids, *(self._known.keys() - set(self._ids)))]

    def seal(self) -> Seal:
        return Seal(lambda: [_derived(secret, "records") for secret in self.secrets()])

    def seal_of(self, key: Key) -> Seal:
        """Of one key alone."""
        derived = _derived(self.secret_of(key), "records")
        return Seal(lambda: [derived])

    def secret_of(self, key: Key) -> bytes:
        """
        Raises:
            InvalidInput: it is missing.
        """
        secret = self.find(key)
        if secret is None:
            where = f"`{key.file}`" if key.file else "given from outside"
            raise InvalidInput(
                f"the key of the secrets of `{self.home}`, {where} (id `{key.id}`), is missing",
                "bring its file back, or name it with TORCHYARD_SECRETS_KEY_FILE; if it is lost "
                f"for good, so are the secrets: remove `{self.home / STATE_FILE}`, and the server "
                "makes a new one",
                code="key_missing",
            )
        return secret

    def find(self, key: Key) -> bytes | None:
        """The key with this id, wherever its file went with the home."""
        if key.id not in self._known:
            for secret in self._candidates(key):
                if id_of(secret) == key.id:
                    self._known[key.id] = secret
                    break
        return self._known.get(key.id)

    def write(self, state: State) -> None:
        with write_atomically(self.home / STATE_FILE, mode=0o600) as writing:
            writing.write(_to_json(state))
        _give_to_owner(self.home, self.home / STATE_FILE)

    def make_file(self, file: Path, secret: bytes) -> None:
        """Write a key that nobody else reads.

        Raises:
            Conflict: there is something.
        """
        draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}.part")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(secret + b"\n")
                opened.flush()
                os.fsync(opened.fileno())
            _give_to_owner(self.home, draft)
            # Complete or absent, for servers that look for it; and nothing is replaced.
            os.link(draft, file)
        except FileExistsError:
            raise Conflict(f"`{file}` exists already", "name a new file") from None
        finally:
            draft.unlink()

    def new_file(self) -> Path:
        """Where a key goes that torchyard makes: beside the home, on its disk."""
        name = secrets.token_hex(4)
        parent = self.home.parent
        with suppress(OSError):
            if os.access(parent, os.W_OK) and parent.stat().st_dev == self.home.stat().st_dev:
                return parent / f"{self.home.name}-{name}.key"
        return self.home / f"secrets-{name}.key"

    def _begin(self, given_secret: bytes) -> State:
        in_home = self.home / FILE_IN_HOME
        if in_home.exists():
            key = Key(id_of(read_file(in_home)), str(in_home))
            if given_secret and id_of(given_secret) != key.id:
                raise self._wrong(key)
        elif given_secret:
            key = Key(id_of(given_secret), str(self.given.file or ""))
        else:
            return self._make_first()
        return self._write_first(State(key))

    def _make_first(self) -> State:
        secret = new_secret()
        file = self.given.file or self.new_file()
        if file.parent == self.home:
            _log.warning(
                "the key of the secrets is inside the home, `%s`: name a file elsewhere with "
                "TORCHYARD_SECRETS_KEY_FILE, then `yard server rotate-key`",
                file,
            )
        self.make_file(file, secret)
        key = Key(id_of(secret), str(file))
        state = self._write_first(State(key))
        if state.current != key:
            file.unlink()
        return state

    def _write_first(self, state: State) -> State:
        """Of servers that start at once, the first one's counts."""
        file = self.home / STATE_FILE
        draft = file.with_name(f".{file.name}.{secrets.token_hex(6)}.part")
        draft.write_bytes(_to_json(state))
        draft.chmod(0o600)
        # Unlike a rename, a link does not replace a file that another server has just written.
        with suppress(FileExistsError):
            os.link(draft, file)
        draft.unlink()
        _give_to_owner(self.home, file)
        written = self.state()
        assert written is not None
        self.secret_of(written.current)
        return written

    def state(self) -> State | None:
        """None for a home that has no key yet, or one from before.

        Raises:
            InvalidInput: its file is damaged.
        """
        file = self.home / STATE_FILE
        try:
            body = json.loads(file.read_bytes())
            keys = {name: Key(**body[name]) for name in ("current", "old", "next") if body[name]}
            return State(**keys)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"`{file}` can't be read: {error}", "bring it back from a copy of the home"
            ) from error

    def _given_secret(self) -> bytes:
        """Empty for none, and for a file that is still to be made."""
        if self.given.value:
            return _checked(self.given.value.encode(), self.given.source)
        file = self.given.file
        return read_file(file) if file is not None and file.exists() else b""

    def _candidates(self, key: Key) -> Iterator[bytes]:
        yield self._given_secret()
        if not key.file:
            return
        file = Path(key.file)
        for path in (file, self.home.parent / file.name, self.home / file.name):
            if path.is_file():
                yield read_file(path)

    def _wrong(self, key: Key) -> InvalidInput:
        where = f"`{key.file}`" if key.file else "one that was given before"
        return InvalidInput(
            f"the key of {self.given.source} is not the one that the secrets of `{self.home}` are "
            f"sealed with: that is {where} (id `{key.id}`)",
            "give the server that one; to seal them with another, type `yard server rotate-key`",
            code="wrong_key",
        )


def files_of(home: Path) -> list[Path]:
    """Those of the keys that a home has by now; none where it does not say."""
    try:
        state = KeyRing(home).state()
    except InvalidInput:
        return []
    keys = (state.current, state.old, state.next) if state else ()
    return [Path(key.file) for key in keys if key is not None and key.file]


def given_by(settings: Settings) -> Given:
    """The key that the environment, a file or systemd hands over."""
    file = settings.secrets_key_file
    if settings.secrets_key:
        return Given(settings.secrets_key, source="`TORCHYARD_SECRETS_KEY`")
    return Given(file=file, source=f"`{file}`") if file is not None else NOT_GIVEN


def new_secret() -> bytes:
    return secrets.token_hex(32).encode()


def id_of(secret: bytes) -> str:
    return _derived(secret, "id").hex()[:16]


def put_in_home(home: Path, stored: Sequence[bytes]) -> None:
    """Give a restored home its keys, the current one first."""
    ring, keys = KeyRing(home), []
    for number, secret in enumerate(stored[:2]):
        file = home / (f"{FILE_IN_HOME}.{number}" if number else FILE_IN_HOME)
        file.write_bytes(b"")
        file.chmod(0o600)
        file.write_bytes(secret)
        keys.append(Key(id_of(secret), str(file)))
    ring.write(State(keys[0], keys[1] if len(keys) > 1 else None))


def move_beside(home: Path) -> None:
    """Take the keys out of a home that has just been restored."""
    ring = KeyRing(home)
    state = ring.state()
    if state is None:
        return
    moved = {}
    for name in ("current", "old"):
        key: Key | None = getattr(state, name)
        if key is not None:
            here, file = home / Path(key.file).name, ring.new_file()
            ring.make_file(file, here.read_bytes())
            moved[name] = replace(key, file=str(file))
    ring.write(replace(state, **moved))
    for file in (home / FILE_IN_HOME, home / f"{FILE_IN_HOME}.1"):
        file.unlink(missing_ok=True)


def read_file(file: Path) -> bytes:
    """
    Raises:
        InvalidInput: it can't be read, others can read it, or it is too short.
    """
    hint = "run this as the server's user or as root"
    content = private_files.read(file, "the file of the secrets' key", hint)
    return _checked(content, f"`{file}`")


def _checked(content: bytes, source: str) -> bytes:
    # Homes from before have 32 bytes of any value; what people write ends with a line.
    secret = content if len(content) == _SHORTEST_BYTES else content.strip()
    if len(secret) < _SHORTEST_BYTES:
        raise InvalidInput(
            f"the key of {source} is shorter than {_SHORTEST_BYTES} characters",
            "make one with `openssl rand -hex 32`",
        )
    return secret


def _derived(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, purpose.encode(), "sha256")


def _identity(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _to_json(state: State) -> bytes:
    body: Mapping[str, Any] = {
        name: vars(key) if key else None
        for name, key in (("current", state.current), ("old", state.old), ("next", state.next))
    }
    return json.dumps(body, indent=1).encode() + b"\n"


def _give_to_owner(home: Path, file: Path) -> None:
    """What root makes for a server is that server's."""
    if os.geteuid() == 0:
        owner = home.stat()
        os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)
