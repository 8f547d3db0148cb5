"""How a deployment scores: mini-batches, processes, retries, outputs, resources.

Owns: `BatchSettings` and `Resources`, their defaults and bounds; the older form of a file, which
has the settings at its top.
Leaves: the whole file to deployment_spec.py; which keys there are to keys.py.
Always: a value is whole and within its bounds; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, text, texts
from torchyard.batch_endpoints.spec import keys
from torchyard.endpoints.spec.keys import check
from torchyard.endpoints.spec.settings import bounded_integer, word, yes_or_no

APPEND_ROW, SUMMARY_ONLY = "append_row", "summary_only"
LEVELS = ("debug", "info", "warning", "error")
_DAY_S = 86_400
_MOST_FILES = 1_000_000
_MOST_ERRORS = 2**31 - 1
_FILE_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,200}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}\Z", re.ASCII)
_PERIOD = re.compile(r"PT(?:(\d{1,4})H)?(?:(\d{1,6})M)?(?:(\d{1,8})S)?\Z", re.ASCII)


@dataclass(frozen=True)
class BatchSettings:
    """`error_threshold` is -1 for any number of files that fail; `timeout_s` is of one call of
    `run()`.
    """

    mini_batch_size: int = 10
    max_concurrency_per_instance: int = 1
    output_action: str = APPEND_ROW
    output_file_name: str = "predictions.csv"
    max_retries: int = 3
    timeout_s: int = 30
    error_threshold: int = -1
    logging_level: str = "info"


@dataclass(frozen=True)
class Resources:
    """`others` are keys that mean what they mean in a job's file."""

    instance_count: int = 1
    others: Mapping[str, Any] = field(default_factory=dict)


def batch_settings(document: Mapping[str, Any]) -> BatchSettings:
    """Those below `settings`, else those at the top of the file.

    Raises:
        InvalidSpec: a value is out of its bounds, or stands in both places.
    """
    written, key_path = _joined(document)

    def of(key: str) -> tuple[str, ...]:
        return key_path[key]

    retry_at = (*of("retry_settings"), "retry_settings")
    retry = written.get("retry_settings")
    retry = {} if retry is None else check(retry, keys.RETRY, retry_at, "`retry_settings`")
    return BatchSettings(
        bounded_integer(written, "mini_batch_size", of("mini_batch_size"), 10, 1, _MOST_FILES),
        bounded_integer(
            written,
            "max_concurrency_per_instance",
            of("max_concurrency_per_instance"),
            *(1, 1, 1000),
        ),
        word(written, "output_action", of("output_action"), (APPEND_ROW, SUMMARY_ONLY), APPEND_ROW),
        _file_name(written, of("output_file_name")),
        bounded_integer(retry, "max_retries", retry_at, 3, 0, 100),
        _seconds(retry, "timeout", retry_at, 30),
        bounded_integer(written, "error_threshold", of("error_threshold"), -1, -1, _MOST_ERRORS),
        word(written, "logging_level", of("logging_level"), LEVELS, "info"),
    )


def resources(document: Mapping[str, Any]) -> Resources:
    """
    Raises:
        InvalidSpec: `instance_count` is not a number of nodes.
    """
    at = ("resources",)
    if document.get("resources") is None:
        return Resources()
    body = check(document["resources"], keys.RESOURCES, at, "`resources`")
    count = bounded_integer(body, "instance_count", at, 1, 1, 1000)
    others = {key: value for key, value in body.items() if key != "instance_count"}
    return Resources(count, others)


def splits_failed_batches(document: Mapping[str, Any]) -> bool:
    at = ("torchyard",)
    if document.get("torchyard") is None:
        return True
    body = check(document["torchyard"], keys.OWN, at, "`torchyard`")
    return yes_or_no(body, "split_failed_batches", at, True)


def variables(document: Mapping[str, Any]) -> dict[str, str]:
    """`environment_variables`, those below `settings` last.

    Raises:
        InvalidSpec: a name that a process can't have.
    """
    settings = document.get("settings")
    values = _variables(document, ())
    if isinstance(settings, Mapping):
        values.update(_variables(settings, ("settings",)))
    return values


def _variables(body: Mapping[str, Any], at: tuple[str, ...]) -> dict[str, str]:
    values = texts(body, "environment_variables", at)
    for variable, value in values.items():
        if not _VARIABLE.match(variable) or "\0" in value:
            raise InvalidSpec(
                f"`{variable[:80]}` is not a valid name for an environment variable",
                "use letters, digits and `_`, beginning with a letter",
                at=(*at, "environment_variables", variable),
            )
    return values


def _joined(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """The settings, and by key where each stands."""
    at = ("settings",)
    inner = document.get("settings")
    inner = {} if inner is None else check(inner, keys.SETTINGS, at, "`settings`")
    written: dict[str, Any] = {}
    key_paths: dict[str, tuple[str, ...]] = {}
    for key in (key.name for key in keys.SETTINGS):
        key_paths[key] = at
        if key == "environment_variables":
            continue
        if document.get(key) is not None:
            if inner.get(key) is not None:
                raise InvalidSpec(
                    f"`{key}` is there twice, at the top and in `settings`",
                    "leave out the one at the top",
                    at=(key,),
                )
            written[key], key_paths[key] = document[key], ()
        elif inner.get(key) is not None:
            written[key] = inner[key]
    return written, key_paths


def _file_name(body: Mapping[str, Any], at: tuple[str, ...]) -> str:
    value = text(body, "output_file_name", at) or "predictions.csv"
    if not _FILE_NAME.match(value) or value in (".", ".."):
        raise InvalidSpec(
            f"`{value[:80]}` is not a file's name",
            "for example `output_file_name: predictions.csv`",
            at=(*at, "output_file_name"),
        )
    return value


def _seconds(body: Mapping[str, Any], key: str, at: tuple[str, ...], default: int) -> int:
    """A number, or `PT5M` as Azure's clients send it."""
    value = body.get(key)
    if isinstance(value, str):
        match = _PERIOD.match(value)
        if match is None or not any(match.groups()):
            raise InvalidSpec(
                f"`{key}` must be a number of seconds, not {described(value)}",
                f"for example `{key}: 300`",
                at=(*at, key),
            )
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        body = {key: hours * 3600 + minutes * 60 + seconds}
    return bounded_integer(body, key, at, default, 1, 30 * _DAY_S)
