"""The fields of a document, and of a query, that a request or a file brings.

Owns: reading texts, numbers and mappings; the errors for a document that is not a mapping, an
unknown key, a value of the wrong type.
Leaves: what keys mean to the packages; documents to documents/models.py.
Always: an error says where by `at`, and gives the nearest right word or an example.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, InvalidSpec, did_you_mean, nearest


def mapping(document: Any, subject: str) -> dict[str, Any]:
    """
    Args:
        subject: as in `the model's document is not a mapping`.

    Raises:
        InvalidSpec: it is a list, a text or another such value.
    """
    if not isinstance(document, dict):
        raise InvalidSpec(f"{subject} is not a mapping of keys to values", "send a JSON object")
    return document


def settings_in(file: Path, keys: Sequence[str], guide: str) -> dict[str, Any]:
    """What a JSON file of the server's settings holds, of these keys alone.

    Args:
        guide: the hint for a file that is not JSON.

    Raises:
        InvalidInput: it can't be read, is no mapping, or has another key.
    """
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise InvalidInput(
            f"`{file}` can't be read ({error.strerror})", "see who owns it"
        ) from error
    except ValueError as error:
        raise InvalidInput(f"`{file}` is not JSON: {error}", guide) from error
    body = mapping(document, f"`{file}`")
    refuse_unknown(body, keys)
    return body


def with_path_name(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The document with the name that the request's path has.

    Raises:
        InvalidSpec: it has another one.
    """
    if document.setdefault("name", name) != name:
        raise InvalidSpec(
            f"the document's name is `{document['name']}`, but the URL says `{name}`",
            "leave the name out of the document",
            at=["name"],
        )
    return document


def refuse_unknown(
    document: Mapping[Any, Any], keys: Sequence[str], unnamed: Sequence[str] = ("$schema",)
) -> None:
    """
    Args:
        unnamed: those of `keys` that the hint does not list.

    Raises:
        InvalidSpec: a key that is not among `keys`, with the nearest.
    """
    for key in document:
        if key not in keys:
            raise unknown_key(str(key), keys, unnamed=unnamed)


def refuse_unchangeable(
    changes: Mapping[Any, Any], allowed: Sequence[str], subject: str, otherwise: str
) -> None:
    """Refuse a change of a key that stays as it is.

    Args:
        subject: the thing that is changed, with its article.
        otherwise: the hint where no allowed key is spelt like the one given.

    Raises:
        InvalidSpec: at the key.
    """
    for key in changes:
        if key not in allowed:
            raise InvalidSpec(
                f"`{key}` of {subject} can't be changed",
                did_you_mean(str(key), allowed, otherwise),
                at=[str(key)],
            )


def unknown_key(
    key: str,
    keys: Sequence[str],
    at: Sequence[str | int] = (),
    *,
    unnamed: Sequence[str] = ("$schema",),
    inside: str = "",
    otherwise: str = "",
) -> InvalidSpec:
    """What to raise for a key that is not among `keys`.

    Args:
        at: where the mapping stands that holds the key.
        unnamed: those of `keys` that the hint does not list.
        inside: what that mapping is called, as `environment`.
        otherwise: the hint when no key is near; empty lists them.
    """
    guess = nearest(key, keys)
    listed = ", ".join(name for name in keys if name not in unnamed) or "none"
    hint = f"did you mean `{guess}`?" if guess else otherwise or f"known keys: {listed}"
    where = f" in `{inside}`" if inside else ""
    error = InvalidSpec(f"unknown key `{key[:80]}`{where}", hint, at=(*at, key))
    error.meant_key, error.is_of_key = guess, True
    return error


def text(
    document: Mapping[Any, Any], key: str, at: Sequence[str | int] = (), default: str = ""
) -> str:
    """The default when it is absent or null.

    Args:
        at: where the mapping stands that holds the key; so in the functions below.

    Raises:
        InvalidSpec: it is not a string.
    """
    value = document.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        hint = f"write `{key}: …` with a text"
        if isinstance(value, int | float):
            hint = f"put it in quotes: `{key}: '{value}'`"
        raise InvalidSpec(f"`{key}` must be text, not {described(value)}", hint, at=(*at, key))
    return value


def bounded(text: str, limit: int, subject: str, at: Sequence[str | int] = ()) -> str:
    """The text, if it is short enough to be parsed.

    Args:
        limit: in characters.
        subject: the field, as in `the filter is 70000 characters long`.

    Raises:
        InvalidInput: it is longer than the limit.
    """
    if len(text) > limit:
        raise InvalidInput(
            f"{subject} is {len(text)} characters long; the limit is {limit}",
            "shorten it, or ask in several requests",
            at=at,
        )
    return text


def texts(document: Mapping[Any, Any], key: str, at: Sequence[str | int] = ()) -> dict[str, str]:
    """A mapping of texts; numbers become texts. Empty when it is absent or null.

    Raises:
        InvalidSpec: it is not a mapping, or one of its values is neither text nor a number.
    """
    values = document.get(key) or {}
    if not isinstance(values, Mapping):
        raise InvalidSpec(
            f"`{key}` must be a mapping of texts, not {described(values)}",
            f"for example `{key}: {{team: vision}}`",
            at=(*at, key),
        )
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            raise InvalidSpec(
                f"the value of `{key}.{name}` must be text or a number, not {described(value)}",
                f"write `{name}: …` with a text or a number",
                at=(*at, key, str(name)),
            )
    return {str(name): literal(value) for name, value in values.items()}


def count(
    document: Mapping[Any, Any],
    key: str,
    at: Sequence[str | int] = (),
    *,
    default: int,
    least: int = 0,
) -> int:
    """A whole number; the default when it is absent or null.

    Raises:
        InvalidSpec: it is not a whole number, or less than `least`.
    """
    value = document.get(key)
    if value is None:
        return default
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidSpec(
            f"`{key}` must be a whole number of {least} or more, not {described(value)}",
            f"for example `{key}: {max(least, 1)}`",
            at=(*at, key),
        )
    return value


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?)\s{0,9}([smhd])(?:ec(?:ond)?s?|in(?:ute)?s?|(?:ou)?rs?|ays?)?\s{0,9}"
)


def in_seconds(value: Any) -> str:
    """What a duration such as `2h`, `90 min`, `PT1H` or `01:30:00` is in seconds, else nothing."""
    written = str(value).strip().lower()
    if re.fullmatch(r"\d{1,9}:\d\d:\d\d", written):
        hours, minutes, seconds = map(int, written.split(":"))
        return str(hours * 3600 + minutes * 60 + seconds)
    written = re.sub(r"^p(\d{1,9}d)?t?", r"\1", written)
    parts = _DURATION.findall(written)
    if not parts or _DURATION.sub("", written):
        return ""
    return str(round(sum(float(amount) * _UNITS_S[unit] for amount, unit in parts)))


def seconds(
    document: Mapping[Any, Any], key: str, at: Sequence[str | int] = (), *, default: int = 0
) -> int:
    """As `count`; the hint turns a duration into seconds.

    Raises:
        InvalidSpec: it is not a whole number of 0 or more.
    """
    try:
        return count(document, key, at, default=default)
    except InvalidSpec as error:
        number = in_seconds(document.get(key))
        hint = f"write seconds: `{key}: {number}`" if number else error.hint
        raise InvalidSpec(error.message, hint, at=error.at) from error


def literal(value: Any) -> str:
    """A value as YAML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def described(value: Any) -> str:
    """A value for a message: its kind when it is a mapping or a list, else itself."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else f"`{str(value)[:80]}`"


def archived(text: str) -> bool | None:
    """What a list is asked for: archived or not; None for either.

    Args:
        text: `false`, or empty, hides archived ones; `true` shows them too, `only` nothing else.

    Raises:
        InvalidInput: it is another word.
    """
    choices = {"false": False, "true": None, "only": True}
    if (text or "false").lower() not in choices:
        raise InvalidInput(f"`archived` is `{text}`", f"use one of: {', '.join(choices)}")
    return choices[(text or "false").lower()]


def merged(old: Mapping[str, str], changes: Mapping[str, Any], key: str) -> dict[str, str]:
    """`old` updated by `changes[key]`; names whose new value is None are removed."""
    new = changes.get(key) or {}
    if not isinstance(new, Mapping):
        raise InvalidSpec(
            f"`{key}` must be a mapping of texts, not {described(new)}",
            f"for example `{key}: {{team: vision}}`",
            at=[key],
        )
    values = {**old, **{str(name): value for name, value in new.items()}}
    return {name: str(value) for name, value in values.items() if value is not None}
