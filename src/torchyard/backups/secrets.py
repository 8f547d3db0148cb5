"""The secrets of a home, whose keys a backup leaves out or encrypts.

Owns: which files of a home are keys; encrypting them with a passphrase, putting them back.
Leaves: secrets in the records, which are sealed with one of the keys, to base/sealed_columns.py;
files to archive.py.
Always: a backup without a passphrase holds none of the keys, and nothing that one of them seals in
clear; what is encrypted is either read whole and unchanged, or refused.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from torchyard.base import sealed_columns
from torchyard.base.db import metadata
from torchyard.base.errors import InvalidInput
from torchyard.base.home import secrets_keys, signing

FILE = "secrets.json"
"""Says what the secrets are of, and holds the home's keys encrypted, or not at all."""
_KEYS = (signing.FILE, "tls")
# About a tenth of a second and 32 MiB for each guess.
_SCRYPT = {"n": 1 << 15, "r": 8, "p": 1}
# The current one and, while it takes the place of another, that one; both twice, see actions.py.
_MOST_SEALING = 4
_KEY_BYTES, _NONCE_BYTES, _SALT_BYTES = 32, 12, 16


@dataclass(frozen=True)
class Secrets:
    """The home's keys, as paths below it and their content in Base64.

    `sealed` says to people what the secrets in the records are of; `sealing` are the keys of these,
    the current one first.
    """

    files: tuple[tuple[str, str], ...] = ()
    sealed: tuple[str, ...] = ()
    sealing: tuple[bytes, ...] = ()

    @property
    def names(self) -> list[str]:
        """What they are of, for people."""
        names = list(self.sealed)
        if any(path == signing.FILE for path, _ in self.files):
            names.append("the key of signed addresses and tokens of Azure ML's clients")
        if any(path.startswith("tls/") for path, _ in self.files):
            names.append("the server's own certificate authority and its keys")
        return names


def read(connection: Connection, home: Path, sealing: Sequence[bytes]) -> Secrets:
    """The keys of a home, and what the sealed values of its records are of.

    Args:
        sealing: the keys of these.
    """
    sealed = tuple(sealed_columns.names_of_sealed(connection, metadata))
    return Secrets(tuple(_key_files(home)), sealed, tuple(sealing))


def put_back(home: Path, secrets: Secrets) -> None:
    """Write the keys where they were, and those of the records into the home."""
    if secrets.sealing:
        secrets_keys.put_in_home(home, secrets.sealing)
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
        sealing = [
            (_sealing_name(number), base64.b64encode(secret).decode())
            for number, secret in enumerate(secrets.sealing)
        ]
        plain = json.dumps({"files": [*sealing, *secrets.files]}).encode()
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
        files = {str(path): str(content) for path, content in plain["files"]}
        stored = (files.pop(_sealing_name(number), "") for number in range(_MOST_SEALING))
        sealing = tuple(base64.b64decode(content) for content in stored if content)
    except InvalidTag as error:
        raise InvalidInput(
            f"the passphrase does not open the secrets of `{source}`",
            "name the right file with `--passphrase-file`; without it, they are left out",
            code="wrong_passphrase",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"the secrets of the backup `{source}` are damaged: {error}") from error
    return Secrets(tuple(files.items()), sealing=sealing), names


def _sealing_name(number: int) -> str:
    """As homes from before called their one key."""
    name = secrets_keys.FILE_IN_HOME
    return f"{name}.{number}" if number else name


def _key(passphrase: str, salt: bytes, costs: dict[str, int]) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=_KEY_BYTES, **costs).derive(passphrase.encode())


def _key_files(home: Path) -> Iterator[tuple[str, str]]:
    for name in _KEYS:
        top = home / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and not path.is_symlink():
                content = base64.b64encode(path.read_bytes()).decode()
                yield path.relative_to(home).as_posix(), content
