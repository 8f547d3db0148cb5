"""The secrets of a home, which a backup leaves out or encrypts.

Owns: which values of the records and which files of a home are secrets; taking them out of a copy
of the records, encrypting them with a passphrase, putting them back.
Leaves: which names give a variable away to shared/secret_values.py, files to archive.py.
Always: a backup without a passphrase holds none of them, nor does its free space; what is encrypted
is either read whole and unchanged, or refused.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.base.home import signing
from torchyard.connections.actions import LEFT_OUT
from torchyard.data.datastores import WITHOUT_CREDENTIALS
from torchyard.jobs.spec import secrets as job_secrets
from torchyard.workspaces import notifications

FILE = "secrets.json"
"""Says what the secrets are of, and holds them encrypted, or not at all."""
_KEYS = (signing.FILE, "tls")
_SHORTEST_PASSPHRASE = 12
# About a tenth of a second and 32 MiB for each guess.
_SCRYPT = {"n": 1 << 15, "r": 8, "p": 1}
_KEY_BYTES, _NONCE_BYTES, _SALT_BYTES = 32, 12, 16
# Tables whose documents may hold a job's variables, with the columns of their keys.
_DOCUMENTS = {("jobs", "spec"): ("id",), ("components", "definition"): ("number",)}
_NAMES = {"jobs": "job", "components": "component"}


@dataclass(frozen=True)
class Row:
    """A value that was taken out of the records; `of` says to people what it belongs to."""

    table: str
    column: str
    key: dict[str, Any]
    text: str
    of: str


@dataclass(frozen=True)
class Secrets:
    """`files` are paths below the home, their content in Base64."""

    rows: tuple[Row, ...] = ()
    files: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> list[str]:
        """What they are of, for people."""
        names = [row.of for row in self.rows]
        if any(path.startswith(signing.FILE) for path, _ in self.files):
            names.append("the key of signed addresses and tokens of Azure ML's clients")
        if any(path.startswith("tls/") for path, _ in self.files):
            names.append("the server's own certificate authority and its keys")
        return names


def take_out(records: Path, home: Path) -> Secrets:
    """Remove the secrets from a copy of the records; they, and the home's keys."""
    with closing(sqlite3.connect(records)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        with connection:
            rows = [
                *_datastores(connection),
                *_connections(connection),
                *_documents(connection),
                *_notifications(connection),
            ]
            for row, without in rows:
                _update(connection, row, without)
        connection.execute("VACUUM")
    return Secrets(tuple(row for row, _ in rows), tuple(_key_files(home)))


def put_back(records: Path, home: Path, secrets: Secrets) -> None:
    """Write them where they were taken from."""
    with closing(sqlite3.connect(records)) as connection, connection:
        for row in secrets.rows:
            _update(connection, row, row.text)
    for path, content in secrets.files:
        target = home / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64decode(content))


def to_json(secrets: Secrets, passphrase: str) -> bytes:
    """The file of a backup: names, and the secrets encrypted if there is a passphrase."""
    body: dict[str, Any] = {"of": secrets.names}
    if passphrase:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
        plain = json.dumps(asdict(secrets)).encode()
        cipher = AESGCM(_key(passphrase, salt, _SCRYPT)).encrypt(nonce, plain, None)
        encrypted = {"salt": salt, "nonce": nonce, "cipher": cipher}
        body |= {name: base64.b64encode(value).decode() for name, value in encrypted.items()}
        body |= {"method": "scrypt, AES-256-GCM", "scrypt": _SCRYPT}
    return json.dumps(body, indent=1, ensure_ascii=False).encode()


def from_json(content: bytes, passphrase: str, source: Path) -> tuple[Secrets | None, list[str]]:
    """The secrets of a backup if they are in it and there is a passphrase; what they are of.

    Raises:
        InvalidInput: the passphrase is wrong, or they were changed.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        body = json.loads(content)
        names = [str(name) for name in body["of"]]
        if "cipher" not in body or not passphrase:
            return None, names
        salt, nonce, cipher = (
            base64.b64decode(body[name], validate=True) for name in ("salt", "nonce", "cipher")
        )
        costs = {name: int(body["scrypt"][name]) for name in _SCRYPT}
        if any(costs[name] > _SCRYPT[name] * 16 for name in costs):
            raise ValueError("the key would take too long to compute")
        plain = json.loads(AESGCM(_key(passphrase, salt, costs)).decrypt(nonce, cipher, None))
        rows = tuple(Row(**row) for row in plain["rows"])
        files = tuple((str(path), str(content)) for path, content in plain["files"])
    except InvalidTag as error:
        raise InvalidInput(
            f"the passphrase does not open the secrets of `{source}`",
            "name the right file with `--passphrase-file`; without it, they are left out",
            code="wrong_passphrase",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"the secrets of the backup `{source}` are damaged: {error}") from error
    return Secrets(rows, files), names


def passphrase_in(file: Path | None) -> str:
    """The first line of a file that nobody else reads; empty without a file.

    Raises:
        InvalidInput: it is missing, too short, or others can read it.
    """
    if file is None:
        return ""
    try:
        status, lines = file.stat(), file.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInput(f"the passphrase file `{file}` can't be read: {why}") from error
    if status.st_mode & 0o077:
        raise InvalidInput(
            f"others can read the passphrase file `{file}`", f"type `chmod 600 {file}`"
        )
    passphrase = lines[0].strip() if lines else ""
    if len(passphrase) < _SHORTEST_PASSPHRASE:
        raise InvalidInput(
            f"the passphrase in `{file}` is shorter than {_SHORTEST_PASSPHRASE} characters",
            f"make one with `openssl rand -base64 24 > {file}`",
        )
    return passphrase


def _key(passphrase: str, salt: bytes, costs: dict[str, int]) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=_KEY_BYTES, **costs).derive(passphrase.encode())


def _datastores(connection: sqlite3.Connection) -> list[tuple[Row, str]]:
    rows = []
    query = "SELECT workspace, name, options, document FROM datastores"
    for workspace, name, options, document in connection.execute(query):
        if not (json.loads(document).get("credentials") and json.loads(options)):
            continue
        key = {"workspace": workspace, "name": name}
        of = f"the credentials of datastore `{name}` in workspace `{workspace}`"
        rows.append((Row("datastores", "options", key, options, of), WITHOUT_CREDENTIALS))
    return rows


def _connections(connection: sqlite3.Connection) -> list[tuple[Row, str]]:
    rows = []
    query = "SELECT workspace, name, credentials FROM workspace_connections"
    for workspace, name, credentials in connection.execute(query):
        if not json.loads(credentials):
            continue
        key = {"workspace": workspace, "name": name}
        of = f"the credentials of connection `{name}` in workspace `{workspace}`"
        row = Row("workspace_connections", "credentials", key, credentials, of)
        rows.append((row, json.dumps(LEFT_OUT)))
    return rows


def _documents(connection: sqlite3.Connection) -> Iterator[tuple[Row, str]]:
    for (table, column), keys in _DOCUMENTS.items():
        query = f'SELECT {", ".join(keys)}, workspace, name, "{column}" FROM {table}'
        # All of them first: what is read would be written meanwhile.
        for *key, workspace, name, text in connection.execute(query).fetchall():
            document = json.loads(text)
            if not isinstance(document, dict):
                continue
            without = job_secrets.masked_document(document)
            trial = without.get("trial")  # of a sweep
            owner = trial if isinstance(trial, dict) else without
            variables = owner.get("environment_variables")
            if not isinstance(variables, dict) or job_secrets.HIDDEN not in variables.values():
                continue
            for variable, value in variables.items():
                if value == job_secrets.HIDDEN:
                    variables[variable] = job_secrets.LEFT_OUT
            of = f"variables of {_NAMES[table]} `{name}` in workspace `{workspace}`"
            row = Row(table, column, dict(zip(keys, key, strict=True)), text, of)
            yield row, json.dumps(without)


def _notifications(connection: sqlite3.Connection) -> Iterator[tuple[Row, str]]:
    query = "SELECT name, notifications FROM workspaces"
    for name, text in connection.execute(query).fetchall():
        stored = json.loads(text)
        if not stored.get(notifications.SECRETS):
            continue
        left_out = dict.fromkeys(stored[notifications.SECRETS], job_secrets.LEFT_OUT)
        without = json.dumps({**stored, notifications.SECRETS: left_out})
        of = f"secrets of the webhooks of workspace `{name}`"
        yield Row("workspaces", "notifications", {"name": name}, text, of), without


def _update(connection: sqlite3.Connection, row: Row, text: str) -> None:
    tables = {table for table, _ in _DOCUMENTS} | {
        "datastores",
        "workspace_connections",
        "workspaces",
    }
    assert row.table in tables and row.column in (
        "options", "credentials", "spec", "definition", "notifications",
    )  # fmt: skip
    assert set(row.key) <= {"id", "number", "workspace", "name"}
    where = " AND ".join(f'"{name}" = ?' for name in row.key)
    connection.execute(
        f'UPDATE {row.table} SET "{row.column}" = ? WHERE {where}', (text, *row.key.values())
    )


def _key_files(home: Path) -> Iterator[tuple[str, str]]:
    for name in _KEYS:
        top = home / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and not path.is_symlink():
                content = base64.b64encode(path.read_bytes()).decode()
                yield path.relative_to(home).as_posix(), content
