"""Read what a connection is to be from its document.

Owns: its keys and their values.
Leaves: what the keys of an Azure resource around it mean to azureml/arm/connections.py.
Always: no error repeats a secret; a key that no way to authenticate has is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torchyard.base import fields
from torchyard.base.documents.checks import At, By
from torchyard.base.documents.models import File, declared, keys, rule
from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.connections.types import CATEGORIES, CREDENTIALS, WITHOUT_TARGET

_NAME = re.compile(r"[a-zA-Z0-9][\w-]{2,32}", re.ASCII)
_LONGEST_TARGET = 2_048
_LONGEST_SECRET = 8_192
_MOST_ENTRIES = 64
_EXAMPLE = "for example `PythonFeed`, `Git` or `S3`"
_CATEGORIES = {name.lower(): name for name in CATEGORIES}
_AUTH_TYPES = {name.lower(): name for name in CREDENTIALS}


def checked_name(name: str) -> str:
    """
    Raises:
        InvalidSpec: it is not a name of a connection.
    """
    if not _NAME.fullmatch(name):
        raise InvalidSpec(
            f"`{name[:80]}` is not a valid name of a connection",
            "use 3 to 33 letters, digits, `-` and `_`, first a letter or a digit",
            at=["name"],
        )
    return name


def _category(value: Any, at: At) -> str:
    """In Azure's spelling; it may be written in any case, and with `_`."""
    text = fields.text({"category": value}, "category", at[:-1])
    category = _CATEGORIES.get(text.replace("_", "").lower(), "")
    if text and not category:
        raise InvalidSpec(
            f"`{text[:80]}` is not a kind of connection",
            did_you_mean(text, CATEGORIES, _EXAMPLE),
            at=at,
        )
    return category


def _target(value: Any, at: At) -> str:
    return _line(fields.text({"target": value}, "target", at[:-1]), "`target`", at)


def _auth_type(value: Any, at: At) -> str:
    text = fields.text({"authType": value}, "authType", at[:-1])
    auth_type = _AUTH_TYPES.get(text.lower())
    if auth_type is None:
        raise InvalidSpec(
            f"`{text[:80]}` is not a way to authenticate", did_you_mean(text, CREDENTIALS), at=at
        )
    return auth_type


def _metadata(value: Any, at: At) -> dict[str, str]:
    texts = fields.texts({"metadata": value}, "metadata", at[:-1])
    _refuse_many(texts, at)
    return {
        _line(name, "a key of `metadata`", at): _line(text, f"`metadata.{name[:80]}`", (*at, name))
        for name, text in texts.items()
    }


class ConnectionFile(File):
    """In Azure's spelling."""

    subject: ClassVar[str] = "the connection"
    literal: ClassVar[tuple[str, ...]] = ("credentials",)

    category: str = declared("", "the kind of service, as `Git` or `S3`", By(_category))
    target: str = declared("", "the address of the service", By(_target))
    authType: str = declared("None", "`None` (the default), `PAT`, `ApiKey` …", By(_auth_type))
    credentials: Any = declared(None, "those of `authType`")
    metadata: dict[str, str] = declared(
        {}, "texts about the service, shown to everybody", By(_metadata)
    )
    isSharedToAll: Any = declared(None, "kept and shown; default `true`")

    @rule("category")
    def _there(self) -> None:
        if not self.category:
            raise InvalidSpec("`category` is missing", _EXAMPLE, at=["category"])

    @rule("category", "target")
    def _address(self) -> None:
        if self.category and not self.target and self.category not in WITHOUT_TARGET:
            raise InvalidSpec(
                f"a connection of the kind `{self.category}` has no `target`",
                "name the address of the service",
                at=["target"],
            )

    @rule("authType", "credentials")
    def secrets(self) -> dict[str, Any]:
        """Empty when the document has none, as a client sends it that read it without its secrets.

        Raises:
            InvalidSpec: a key is missing or unknown, or its value is not text.
        """
        at = ("credentials",)
        written = _mapping(self.credentials or {}, at)
        values = {key: value for key, value in written.items() if value is not None}
        if not values:
            return {}
        required, optional = CREDENTIALS[self.authType]
        for key in values:
            if key not in (*required, *optional):
                raise fields.unknown_key(
                    str(key), (*required, *optional), at, inside=f"credentials of {self.authType}"
                )
        missing = [key for key in required if not values.get(key)]
        if missing:
            raise InvalidSpec(
                f"credentials of type `{self.authType}` have no `{missing[0]}`",
                f"they need {', '.join(f'`{key}`' for key in required)}",
                at=(*at, missing[0]),
            )
        return {
            key: _keys(value, (*at, key)) if key == "keys" else _secret(value, key, (*at, key))
            for key, value in values.items()
        }


def read(properties: Mapping[str, Any]) -> ConnectionFile:
    """What else a resource of Azure's has means nothing here.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    known = {key: value for key, value in properties.items() if key in keys(ConnectionFile)}
    return ConnectionFile.read(known)


def _mapping(value: Any, at: At) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidSpec(
            f"`{'.'.join(map(str, at))}` is not a mapping of keys to values",
            "send a JSON object",
            at=at,
        )
    return value


def _keys(value: Any, at: At) -> dict[str, str]:
    keys = _mapping(value, at)
    _refuse_many(keys, at)
    return {
        _line(name, "a name in `credentials.keys`", at): _secret(text, name[:80], (*at, name))
        for name, text in keys.items()
    }


def _secret(value: Any, name: str, at: At) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_SECRET:
        raise InvalidSpec(
            f"`{name}` of the credentials must be a text of 1 to {_LONGEST_SECRET} characters",
            "put it in quotes if it is a number",
            at=at,
        )
    return value


def _line(text: str, subject: str, at: At) -> str:
    if len(text) > _LONGEST_TARGET or not text.isprintable():
        raise InvalidSpec(
            f"{subject} must be one line of at most {_LONGEST_TARGET} characters",
            "shorten it, and leave control characters out",
            at=at,
        )
    return text


def _refuse_many(entries: Mapping[str, Any], at: At) -> None:
    if len(entries) > _MOST_ENTRIES:
        raise InvalidSpec(
            f"`{'.'.join(map(str, at))}` has {len(entries)} entries; the limit is {_MOST_ENTRIES}",
            "make several connections",
            at=at,
        )
