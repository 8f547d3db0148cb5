"""How a deployment scores: mini-batches, processes, retries, outputs, resources.

Owns: their keys, defaults and bounds; the older form of a file, which has the settings at its top.
Leaves: the whole file to deployment_spec.py.
Always: a value is whole and within its bounds; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents.checks import At, By, Check, Key, Truth, Whole, Word
from torchyard.base.documents.models import Document, declared, keys, refused
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, text
from torchyard.endpoints.spec.deployment_spec import AS_A_JOB, VARIABLES

APPEND_ROW, SUMMARY_ONLY = "append_row", "summary_only"
LEVELS = ("debug", "info", "warning", "error")
_DAY_S = 86_400
_AS_IN_SETTINGS = Key("as in `settings`: the older form of the file")
_FILE_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,200}\Z")
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


class Period(Check):
    """Seconds as a number, or `PT5M` as Azure's clients send it."""

    _seconds = Whole(1, 30 * _DAY_S)

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> int:
        value = body[key]
        if isinstance(value, str):
            match = _PERIOD.match(value)
            if match is None or not any(match.groups()):
                raise InvalidSpec(
                    f"`{key}` must be a number of seconds, not {described(value)}",
                    f"for example `{key}: 300`",
                    at=(*at, key),
                )
            hours, minutes, seconds = (int(part or 0) for part in match.groups())
            value = hours * 3600 + minutes * 60 + seconds
        return self._seconds.read({key: value}, key, at, default)

    def schema(self) -> dict[str, Any]:
        return self._seconds.schema()


class RetrySettings(Document):
    max_retries: int = declared(3, "tries of a mini-batch after its first", Whole(0, 100))
    timeout: int = declared(30, "seconds that one call of `run()` may take", Period())


def _file_name(value: Any, at: At) -> str:
    name = text({at[-1]: value}, str(at[-1]), at[:-1]) or BatchSettings.output_file_name
    if not _FILE_NAME.match(name) or name in (".", ".."):
        raise InvalidSpec(
            f"`{name[:80]}` is not a file's name",
            "for example `output_file_name: predictions.csv`",
            at=at,
        )
    return name


class Settings(Document):
    """Those of a deployment or an invocation, below `settings` or at the top of the file."""

    mini_batch_size: int = declared(10, "files of one call of `run()`", Whole(1, 1_000_000))
    max_concurrency_per_instance: int = declared(1, "scoring processes of a node", Whole(1, 1000))
    output_action: str = declared(
        APPEND_ROW, "`append_row` (the default) or `summary_only`", Word(APPEND_ROW, SUMMARY_ONLY)
    )
    output_file_name: str = declared("predictions.csv", "default `predictions.csv`", By(_file_name))
    retry_settings: RetrySettings = declared(RetrySettings(), "see below")
    error_threshold: int = declared(
        -1, "files that may fail; more end the job; -1: any number", Whole(-1, 2**31 - 1)
    )
    logging_level: str = declared(
        "info", "`debug`, `info` (the default), `warning`, `error`", Word(*LEVELS)
    )

    @property
    def batch_settings(self) -> BatchSettings:
        return BatchSettings(
            self.mini_batch_size,
            self.max_concurrency_per_instance,
            self.output_action,
            self.output_file_name,
            self.retry_settings.max_retries,
            self.retry_settings.timeout,
            self.error_threshold,
            self.logging_level,
        )


class InnerSettings(Settings):
    environment_variables: dict[str, str] = declared({}, "over those of the deployment", VARIABLES)


class ResourcesFile(Document):
    instance_count: int = declared(1, "nodes that score together", Whole(1, 1000))
    instance_type: Any = declared(None, "nodes are what the compute has", support="satisfied")
    shm_size: Any = declared(None, AS_A_JOB, support="satisfied")
    docker_args: Any = declared(None, AS_A_JOB, support="satisfied")
    properties: None = refused("they are for Azure's own schedulers: remove them")

    @property
    def resources(self) -> Resources:
        names = self.model_fields_set - {"instance_count", "properties"}
        return Resources(self.instance_count, {name: getattr(self, name) for name in sorted(names)})


class OwnSettings(Document):
    take_over: bool = declared(
        False, "`true`: another's becomes [yours](ownership.md); not kept", Truth()
    )
    split_failed_batches: bool = declared(
        True,
        "`true` (the default): a mini-batch that fails is halved until only the files remain "
        "that can't be scored",
        Truth(),
    )


def refuse_twice(file: Settings, inner: Settings) -> None:
    """
    Raises:
        InvalidSpec: a setting stands at the top of the file and below `settings`.
    """
    for key in keys(Settings):
        if key in file.model_fields_set and key in inner.model_fields_set:
            raise InvalidSpec(
                f"`{key}` is there twice, at the top and in `settings`",
                "leave out the one at the top",
                at=(key,),
            )


def joined(file: Settings, inner: Settings) -> BatchSettings:
    """The settings, wherever each stands."""
    written = {key: getattr(file, key) for key in keys(Settings) if key in file.model_fields_set}
    return inner.model_copy(update=written).batch_settings
