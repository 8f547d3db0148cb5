"""Read what a connection is to be from its document.

Owns: the checks of its keys and values.
Leaves: what the keys of an Azure resource around it mean to azureml/arm/connections.py.
Always: no error repeats a secret; a key that no way to authenticate has is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchyard.base import fields
from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.connections.types import CATEGORIES, CREDENTIALS, WITHOUT_TARGET

_NAME = re.compile(r"[a-zA-Z0-9][\w-]{2,32}", re.ASCII)
_LONGEST_TARGET = 2_048
_LONGEST_SECRET = 8_192
_MOST_ENTRIES = 64
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


def category_in(properties: Mapping[str, Any]) -> str:
    """In Azure's spelling; it may be written in any case, and with `_`.

    Raises:
        InvalidSpec: it is missing, or not one of Azure's.
    """
    text = fields.text(properties, "category")
    category = _CATEGORIES.get(text.replace("_", "").lower())
    if category is None:
        raise InvalidSpec(
            f"`{text[:80]}` is not a kind of connection" if text else "`category` is missing",
            did_you_mean(text, CATEGORIES, "for example `PythonFeed`, `Git` or `S3`"),
            at=["category"],
        )
    return category


def target_in(properties: Mapping[str, Any], category: str) -> str:
    """
    Raises:
        InvalidSpec: it is missing where it is required, too long, or has control characters.
    """
    target = fields.text(properties, "target")
    if not target and category not in WITHOUT_TARGET:
        raise InvalidSpec(
            f"a connection of the kind `{category}` has no `target`",
            "name the address of the service",
            at=["target"],
        )
    return _line(target, "`target`", ["target"])


def auth_type_in(properties: Mapping[str, Any]) -> str:
    """
    Raises:
        InvalidSpec: it is not one of Azure's.
    """
    text = fields.text(properties, "authType", default="None")
    auth_type = _AUTH_TYPES.get(text.lower())
    if auth_type is None:
        raise InvalidSpec(
            f"`{text[:80]}` is not a way to authenticate",
            did_you_mean(text, CREDENTIALS),
            at=["authType"],
        )
    return auth_type


def credentials_in(properties: Mapping[str, Any], auth_type: str) -> dict[str, Any]:
    """Empty when the document has none, as a client sends it that read it without its secrets.

    Raises:
        InvalidSpec: a key is missing or unknown, or its value is not text.
    """
    at = ["credentials"]
    written = fields.mapping(properties.get("credentials") or {}, "`credentials`")
    values = {key: value for key, value in written.items() if value is not None}
    if not values:
        return {}
    required, optional = CREDENTIALS[auth_type]
    for key in values:
        if key not in (*required, *optional):
            raise fields.unknown_key(
                str(key), (*required, *optional), at, inside=f"credentials of {auth_type}"
            )
    missing = [key for key in required if not values.get(key)]
    if missing:
        raise InvalidSpec(
            f"credentials of type `{auth_type}` have no `{missing[0]}`",
            f"they need {', '.join(f'`{key}`' for key in required)}",
            at=[*at, missing[0]],
        )
    return {
        key: _keys(value, [*at, key]) if key == "keys" else _secret(value, key, [*at, key])
        for key, value in values.items()
    }


def properties_in(properties: Mapping[str, Any]) -> dict[str, str]:
    """What Azure calls `metadata`: texts about the service, shown to everybody.

    Raises:
        InvalidSpec: it is not a mapping of texts, or too large.
    """
    texts = fields.texts(properties, "metadata")
    _refuse_many(texts, ["metadata"])
    return {
        _line(name, "a key of `metadata`", ["metadata"]): _line(
            text, f"`metadata.{name[:80]}`", ["metadata", name]
        )
        for name, text in texts.items()
    }


def _keys(value: Any, at: list[str]) -> dict[str, str]:
    keys = fields.mapping(value, "`credentials.keys`")
    _refuse_many(keys, at)
    return {
        _line(name, "a name in `credentials.keys`", at): _secret(text, name[:80], [*at, name])
        for name, text in keys.items()
    }


def _secret(value: Any, name: str, at: list[str]) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_SECRET:
        raise InvalidSpec(
            f"`{name}` of the credentials must be a text of 1 to {_LONGEST_SECRET} characters",
            "put it in quotes if it is a number",
            at=at,
        )
    return value


def _line(text: str, subject: str, at: list[str]) -> str:
    if len(text) > _LONGEST_TARGET or not text.isprintable():
        raise InvalidSpec(
            f"{subject} must be one line of at most {_LONGEST_TARGET} characters",
            "shorten it, and leave control characters out",
            at=at,
        )
    return text


def _refuse_many(entries: Mapping[str, Any], at: list[str]) -> None:
    if len(entries) > _MOST_ENTRIES:
        raise InvalidSpec(
            f"`{'.'.join(at)}` has {len(entries)} entries; the limit is {_MOST_ENTRIES}",
            "make several connections",
            at=at,
        )
