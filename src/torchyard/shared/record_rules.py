"""The rules for records of run history: metrics, parameters, tags, properties and rows.

Owns: which keys, numbers, texts, steps and times a record may hold; how JSON writes a float.
Leaves: reading MLflow's requests to the relay and SDK v1's to sdk_v1_records.py; storing to the
server's jobs/history.
Always: standard library, Python 3.9; whatever passes here fits both of the server's databases.
Every NaN is the same object, so that records with equal content are equal.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal, Union

KEY_MAX_LENGTH = 250
TEXT_MAX_LENGTH = 1_000_000
# What may accompany a metric of a logged model, and how long each text may be.
MODEL_FIELDS = {"model_id": 64, "dataset_name": 500, "dataset_digest": 128}
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
# Tuples compare their items by identity first, so points that hold this NaN are equal.
NAN = math.nan
INTEGER, TRUTH = "int", "bool"
NUMBER_TYPES = (INTEGER, TRUTH)
"""What a point of a metric may be besides a float."""
_NAMED_NUMBERS = {"NaN": NAN, "Infinity": math.inf, "-Infinity": -math.inf}
JsonNumber = Union[float, Literal["NaN", "Infinity", "-Infinity"]]
"""A float as JSON can write it."""
NUMBER_NAMES = frozenset(_NAMED_NUMBERS)
"""The numbers that JSON lacks."""
NODE_METRICS, RANK_METRICS = "system/node-", "system/rank-"
"""How the keys of metrics begin that the worker samples; a script may log such keys, too."""
SAMPLED_APART = " (sampled)"
"""What stands behind such a key where the script logs it, too, and owns it."""


class InvalidRecord(Exception):
    """The record breaks a rule; the message names the field. Clients get status 400."""


def json_object(content: bytes) -> dict[str, Any]:
    """The body of a request; empty without one.

    Raises:
        InvalidRecord: it is not a JSON object.
    """
    try:
        body = json.loads(content or b"{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"the request body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRecord("the request body is not a JSON object")
    return body


def key(value: Any, kind: str) -> str:
    """
    Raises:
        InvalidRecord: the key is missing, too long or not storable.
    """
    if not isinstance(value, str) or not value:
        raise InvalidRecord(f"a {kind} has no key")
    if len(value) > KEY_MAX_LENGTH:
        raise InvalidRecord(
            f"{kind} key `{value[:50]}…` has {len(value)} characters; "
            f"the maximum is {KEY_MAX_LENGTH}"
        )
    if not is_storable(value):
        raise InvalidRecord(f"{kind} key {value[:50]!a} holds characters that cannot be stored")
    return value


def text(value: Any, kind: str, key: str) -> str:
    """The value of a parameter, tag or property.

    Raises:
        InvalidRecord: it is not a string, too long or not storable.
    """
    if not isinstance(value, str):
        raise InvalidRecord(f"{kind} `{key}`: the value is not a string")
    if len(value) > TEXT_MAX_LENGTH:
        raise InvalidRecord(
            f"{kind} `{key}`: the value has {len(value)} characters; "
            f"the maximum is {TEXT_MAX_LENGTH}"
        )
    if not is_storable(value):
        raise InvalidRecord(f"{kind} `{key}`: the value holds characters that cannot be stored")
    return value


def number(value: Any, key: str) -> float:
    """A float from a JSON number or the name of one that JSON lacks.

    Raises:
        InvalidRecord: it is neither.
    """
    if isinstance(value, str):
        if value in _NAMED_NUMBERS:
            return _NAMED_NUMBERS[value]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            converted = float(value)
        except OverflowError:
            raise InvalidRecord(f"metric `{key}`: the value does not fit a 64-bit float") from None
        return converted if converted == converted else NAN
    raise InvalidRecord(f"metric `{key}`: value `{str(value)[:100]}` is not a number")


def number_json(value: float) -> JsonNumber:
    """A float as JSON can write it: `number` reads it back."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def integer(value: Any, field_name: str, key: str) -> int:
    """A step, or a time.

    Raises:
        InvalidRecord: it is not a 64-bit integer.
    """
    if not is_int64(value):
        raise InvalidRecord(
            f"metric `{key}`: {field_name} `{str(value)[:50]}` is not a 64-bit integer"
        )
    return int(value)


def is_int64(value: Any) -> bool:
    """True for an `int`; a bool is none."""
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


def model_field(value: Any, name: str, key: str) -> str:
    """One of `MODEL_FIELDS`; empty when it is missing.

    Raises:
        InvalidRecord: it is not a string, too long or not storable.
    """
    limit = MODEL_FIELDS[name]
    content = value or ""
    if not isinstance(content, str) or len(content) > limit or not is_storable(content):
        raise InvalidRecord(
            f"metric `{key}`: `{name}` is not a string of at most {limit} characters"
        )
    return content


def is_storable(content: str) -> bool:
    """False for half a surrogate pair and NUL: JSON can write them, databases refuse them."""
    if content.isascii():
        return "\0" not in content
    try:
        content.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in content
