"""What a cluster's document says of its engine, as far as all engines have the same settings.

Owns: the settings of every engine, those of engines with nodes elsewhere, how a setting is read.
Leaves: further settings to the folder of each engine, where they are written in a document to
compute/engine_settings.py.
Always: read when the cluster is created, so that an engine only gets right values; an error says
where, and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from typing_extensions import Self

from torchyard.base.documents.checks import At, Check
from torchyard.base.documents.models import Document, declared, keys
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, in_seconds
from torchyard.executors.executor import EngineRefused

_LONGEST_TEXT = 1000
_MOST_ENTRIES = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_GRACE_S = 3600
_GRACE_S = 30.0


@dataclass(frozen=True)
class Setting(Check):
    """A text; a number becomes one. `check(key, value, at)` raises `InvalidSpec`."""

    example: str
    check: Callable[[str, str, At], None] | None = None

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> Any:
        value = body[key]
        return self.text(key, str(value) if _is_number(value) else value, (*at, key))

    def text(self, key: str, value: Any, at: At) -> str:
        if not isinstance(value, str):
            raise self.wrong(key, "text", value, at)
        if not value or len(value) > _LONGEST_TEXT or _CONTROL.search(value):
            raise InvalidSpec(
                f"`{key}` is empty, longer than {_LONGEST_TEXT} characters, or has control "
                "characters",
                f"for example `{key}: {self.example}`",
                at=at,
            )
        if self.check is not None:
            self.check(key, value, at)
        return value

    def wrong(self, key: str, expected: str, value: Any, at: At) -> InvalidSpec:
        return InvalidSpec(
            f"`{key}` must be {expected}, not {described(value)}",
            f"for example `{key.partition('.')[0]}: {self.example}`",
            at=at,
        )

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number"]}


class SettingList(Setting):
    """A list of texts, also written as one with commas."""

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> tuple[str, ...]:
        value, here = body[key], (*at, key)
        listed = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or len(listed) > _MOST_ENTRIES:
            raise self.wrong(key, f"a list of at most {_MOST_ENTRIES} texts", value, here)
        return tuple(
            self.text(key, each.strip() if isinstance(each, str) else each, here) for each in listed
        )

    def schema(self) -> dict[str, Any]:
        return {"type": ["array", "string"], "items": {"type": "string"}, "maxItems": _MOST_ENTRIES}


class SettingsByName(Setting):
    """A mapping of names to texts."""

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> dict[str, Any]:
        value, here = body[key], (*at, key)
        if not isinstance(value, Mapping) or len(value) > _MOST_ENTRIES:
            raise self.wrong(key, f"a mapping of at most {_MOST_ENTRIES} names", value, here)
        return {
            self.text(key, name, here): self.entry(key, str(name), each, (*here, str(name)))
            for name, each in value.items()
        }

    def entry(self, key: str, name: str, value: Any, at: At) -> Any:
        return self.text(key, value, at)

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "maxProperties": _MOST_ENTRIES}


class NumbersByName(SettingsByName):
    def entry(self, key: str, name: str, value: Any, at: At) -> Any:
        if not _is_number(value) or not 0 <= value < 1e15:
            raise self.wrong(f"{key}.{name}", "a number of 0 or more", value, at)
        return value


def check_path(key: str, value: str, at: At) -> None:
    """
    Raises:
        InvalidSpec: it is not an absolute path.
    """
    if not value.startswith(("/", "~/", "$")) or ".." in value.split("/"):
        raise InvalidSpec(
            f"`{key}` is `{value}`, not an absolute path",
            f"for example `{key}: /scratch/torchyard`",
            at=at,
        )


def _url(key: str, value: str, at: At) -> None:
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise InvalidSpec(
            f"`{value}` in `{key}` is not the address of a server",
            "write it as nodes reach it, such as `https://login-1:8766`",
            at=at,
        )


def _grace(key: str, value: str, at: At) -> None:
    seconds = _seconds(value)
    if not seconds or float(seconds) > _LONGEST_GRACE_S:
        raise InvalidSpec(
            f"`{key}` is `{value}`, not a length of time of at most {_LONGEST_GRACE_S // 60} min",
            f"for example `{key}: 2 min`",
            at=at,
        )


class ClusterSettings(Document):
    """Those of the engine `local`, which every engine has."""

    runs_as_server: ClassVar[bool] = False
    """Whether the engine starts jobs as the server's own Unix user, a runner or none."""
    cluster_keys: ClassVar[Sequence[str]] = ()
    """What tells clusters of the engine apart, in settings and in handles."""
    server_files: ClassVar[Mapping[str, str]] = {}
    """The settings that name files of the server's machine, and what is in each."""

    spill_over: str = declared(
        "", "the cluster where jobs start that would wait here", Setting("other-cluster")
    )
    preemption_grace: str = declared(
        "",
        "how long a preempted rank has after SIGTERM, up to an hour; default 30 s",
        Setting("2 min", _grace),
    )

    @property
    def gpus(self) -> int | None:
        """How many GPUs of a node the settings name; None where they name none."""
        return None

    @property
    def written(self) -> dict[str, Any]:
        """Those that were given, as JSON has them."""
        return self.model_dump(mode="json", exclude_unset=True)

    @classmethod
    def of_cluster(cls, settings: Mapping[str, Any]) -> Self:
        """What is kept of a cluster or sent along with a plan, beside keys of the server's own.

        Raises:
            EngineRefused: a value is not valid.
        """
        try:
            return cls.read({key: settings[key] for key in keys(cls) if key in settings})
        except InvalidSpec as error:
            raise EngineRefused(error.message, error.hint or "") from error


class NodeSettings(ClusterSettings):
    """Those of engines whose nodes are other machines."""

    server_urls: tuple[str, ...] = declared(
        (),
        "where nodes look for the server, in this order",
        SettingList("[https://login-1:8766]", _url),
    )
    node_folder: str = declared(
        "",
        "where nodes keep their files; default `~/.cache/torchyard-node`",
        Setting("/scratch/torchyard", check_path),
    )
    python: str = declared("", "the nodes' Python, 3.9 or later", Setting("/usr/bin/python3"))


def preemption_grace_s(settings: Mapping[str, Any]) -> float:
    """How long a rank that is preempted has after SIGTERM.

    Args:
        settings: those of a cluster that were given.
    """
    written = settings.get("preemption_grace")
    return float(_seconds(written)) if written else _GRACE_S


def _seconds(written: str) -> str:
    return written if written.isdecimal() else in_seconds(written)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
