"""What a cluster's document says of its engine.

Owns: the mapping `torchyard:` with the engine's settings, the same keys as tags.
Leaves: the other keys of the document to documents.py, acting on settings to executors/.
Always: checked key by key when the cluster is created, so that an engine only reads right values;
an error says where, and what to write instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from torchyard.base.errors import InvalidSpec, did_you_mean, nearest
from torchyard.base.fields import described, in_seconds, unknown_key
from torchyard.compute.types import LOCAL

PREFIX = "torchyard."
_MAPPING = "torchyard"
RAY, SLURM = "ray", "slurm"
ALL = (LOCAL, RAY, SLURM)
_LONGEST_TEXT = 1000
_MOST_ENTRIES = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Setting:
    """A key: its `kind` is text, flag, texts, numbers or labels; `example` is a value of it."""

    kind: str
    example: str
    check: Callable[[str, str, _Place], None] | None = None


def _address(key: str, value: str, at: _Place) -> None:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in value:
        raise InvalidSpec(
            f"`{key}` is `{value}`, not `host:port`",
            "write the address that `ray start --head` printed, such as `10.0.0.5:6379`",
            at=at,
        )


def _url(key: str, value: str, at: _Place) -> None:
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


def _folder(key: str, value: str, at: _Place) -> None:
    if not value.startswith(("/", "~/", "$")) or ".." in value.split("/"):
        raise InvalidSpec(
            f"`{key}` is `{value}`, not an absolute path",
            f"for example `{key}: /scratch/torchyard`",
            at=at,
        )


def _option(key: str, value: str, at: _Place) -> None:
    from torchyard.executors.slurm import sbatch_options  # only servers with Slurm need it

    sbatch_options.check(value, at)


_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}\Z")


def _time(key: str, value: str, at: _Place) -> None:
    if not _TIME.match(value):
        raise InvalidSpec(
            f"`{key}` is `{value}` and Slurm can't read it as a time",
            "write minutes, `hours:minutes:seconds` or `days-hours`: `2-00:00:00`",
            at=at,
        )


def _grace(key: str, value: str, at: _Place) -> None:
    seconds = _seconds(value)
    if not seconds or float(seconds) > _LONGEST_GRACE_S:
        raise InvalidSpec(
            f"`{key}` is `{value}`, not a length of time of at most {_LONGEST_GRACE_S // 60} min",
            f"for example `{key}: 2 min`",
            at=at,
        )


def _seconds(written: str) -> str:
    return written if written.isdecimal() else in_seconds(written)


_LONGEST_GRACE_S = 3600
_GRACE_S = 30.0
_GRACE = "preemption_grace"
_EVERYWHERE = {
    "spill_over": Setting("text", "other-cluster"),
    _GRACE: Setting("text", "2 min", _grace),
}
_ELSEWHERE = {
    "server_urls": Setting("texts", "[https://login-1:8766]", _url),
    "node_folder": Setting("text", "/scratch/torchyard", _folder),
    "python": Setting("text", "/usr/bin/python3"),
    **_EVERYWHERE,
}
SETTINGS: dict[str, dict[str, Setting]] = {
    LOCAL: _EVERYWHERE,
    RAY: {
        "address": Setting("text", "10.0.0.5:6379", _address),
        "start": Setting("flag", "true"),
        "token_file": Setting("text", "/etc/ray/token", _folder),
        "version": Setting("text", "2.51.0"),
        "resources": Setting("numbers", "{CPU: 8}"),
        "labels": Setting("labels", "{zone: a}"),
        **_ELSEWHERE,
    },
    SLURM: {
        "partition": Setting("text", "gpu"),
        "account": Setting("text", "vision"),
        "qos": Setting("text", "normal"),
        "constraint": Setting("text", "a100"),
        "time_limit": Setting("text", "2-00:00:00", _time),
        "gres": Setting("text", "gpu:4"),
        "exclusive": Setting("flag", "true"),
        "reservation": Setting("text", "course"),
        "sbatch_options": Setting("texts", "['--mail-type=END']", _option),
        "config": Setting("text", "/etc/slurm/slurm.conf", _folder),
        **_ELSEWHERE,
    },
}
"""The settings that each engine understands, by engine."""


def read(
    document: Mapping[str, Any], tags: Mapping[str, str] | None, engines: Collection[str]
) -> tuple[str, dict[str, Any]]:
    """The engine and its settings, as the document's keys and tags give them.

    Args:
        engines: those that this server runs.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    raw, key_paths = _gathered(document, tags or {})
    engine = _engine(raw.pop("engine", LOCAL), key_paths.get("engine", ("engine",)), engines)
    understood = SETTINGS.get(engine, _ELSEWHERE)
    settings = {}
    for key, value in raw.items():
        if key not in understood:
            raise _unknown(key, engine, understood, key_paths[key])
        if value is not None:
            settings[key] = _value(key, understood[key], value, key_paths[key])
    _check_whole(engine, settings, document)
    return engine, settings


def with_engine(
    document: Mapping[str, Any], engine: str, settings: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The document with the engine that its cluster has, unless it names one: who changes a cluster
    need not repeat what runs it. Settings that it does not give stay the same.
    """
    mapping, tags = document.get(_MAPPING) or {}, document.get("tags") or {}
    if not isinstance(mapping, Mapping) or not isinstance(tags, Mapping):
        return document
    keys = {
        *mapping,
        *(str(key).removeprefix(PREFIX) for key in tags if str(key).startswith(PREFIX)),
    }
    if document.get("engine") is not None or "engine" in keys:
        return document
    rest = {key: value for key, value in settings.items() if key not in keys}
    return {**document, _MAPPING: {"engine": engine, **rest, **mapping}}


def preemption_grace_s(settings: Mapping[str, Any]) -> float:
    """How long a rank that is preempted has after SIGTERM."""
    return float(_seconds(settings[_GRACE])) if _GRACE in settings else _GRACE_S


def gpus(settings: Mapping[str, Any]) -> int | None:
    """How many GPUs of a node the settings name; None where they name none."""
    gres = re.search(r"(?:^|,)gpu(?::[A-Za-z][^:,]*)?:(\d+)", str(settings.get("gres") or ""))
    if gres:
        return int(gres.group(1))
    count = (settings.get("resources") or {}).get("GPU")
    return None if count is None else int(count)


def without(tags: Mapping[str, str] | None) -> dict[str, str] | None:
    """The tags that are the user's own."""
    if tags is None:
        return None
    return {key: value for key, value in tags.items() if not key.startswith(PREFIX)}


def as_tags(engine: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """What clients see that know no other place for these keys; empty for a plain local cluster."""
    if engine == LOCAL and not settings:
        return {}
    values = {key: _text(value) for key, value in settings.items()}
    return {f"{PREFIX}{key}": value for key, value in {"engine": engine, **values}.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _gathered(
    document: Mapping[str, Any], tags: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, _Place]]:
    """The values by key, and where each stands."""
    inside = document.get(_MAPPING)
    if inside is not None and not isinstance(inside, Mapping):
        raise InvalidSpec(
            f"`{_MAPPING}` must be a mapping, not {described(inside)}",
            "write `torchyard: {engine: ray, address: 10.0.0.5:6379}`",
            at=(_MAPPING,),
        )
    sources: list[tuple[str, Any, _Place]] = [
        (str(key), value, (_MAPPING, str(key))) for key, value in (inside or {}).items()
    ]
    if document.get("engine") is not None:
        sources.append(("engine", document["engine"], ("engine",)))
    sources += [
        (key.removeprefix(PREFIX), _of_tag(value), ("tags", key))
        for key, value in tags.items()
        if key.startswith(PREFIX)
    ]
    values: dict[str, Any] = {}
    key_paths: dict[str, _Place] = {}
    for key, value, at in sources:
        if key in values and _text(values[key]).lower() != _text(value).lower():
            raise InvalidSpec(
                f"`{key}` is given twice, as `{values[key]}` and as `{value}`",
                "write it once, in the mapping `torchyard:`",
                at=at,
            )
        values.setdefault(key, value)
        key_paths.setdefault(key, at)
    return values, key_paths


def _of_tag(text: str) -> Any:
    """A tag is text: what reads as JSON's list, mapping, true or false is that."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _engine(value: Any, at: _Place, engines: Collection[str]) -> str:
    if not isinstance(value, str):
        raise InvalidSpec("`engine` must be text", "for example `engine: local`", at=at)
    engine = value.lower()
    if engine in engines:
        return engine
    guess = nearest(engine, ALL)
    if guess and guess != LOCAL and guess not in engines:
        raise InvalidSpec(
            f"engine `{value}` is not served yet" if engine == guess
            else f"`{value}` is not an engine, and `{guess}` is not served yet",
            "use `engine: local`: nodes on the server's machine",
            at=at,
        )  # fmt: skip
    raise InvalidSpec(f"`{value}` is not an engine", did_you_mean(engine, engines), at=at)


def _unknown(key: str, engine: str, understood: Collection[str], at: _Place) -> InvalidSpec:
    if key == "shared_folder":
        return InvalidSpec(
            "`shared_folder` is not supported: nodes reach the server by TCP alone",
            "start it with `yard server start --listen`, and open its port to the nodes",
            at=at,
        )
    owners = [other for other in ALL if other != engine and key in SETTINGS[other]]
    if owners:
        return InvalidSpec(
            f"`{key}` is a setting of the engine `{owners[0]}`, and this cluster's is `{engine}`",
            f"write `engine: {owners[0]}`, or leave `{key}` out",
            at=at,
        )
    return unknown_key(key, ["engine", *understood], at[:-1], inside=_MAPPING)


def _value(key: str, setting: Setting, value: Any, at: _Place) -> Any:
    if setting.kind == "flag":
        if not isinstance(value, bool):
            raise _wrong(key, "true or false", value, setting, at)
        return value
    if setting.kind == "text":
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        return _checked_text(key, setting, value, at)
    if setting.kind == "texts":
        listed: Sequence[Any] = value.split(",") if isinstance(value, str) else value
        if not isinstance(listed, list) or len(listed) > _MOST_ENTRIES:
            raise _wrong(key, f"a list of at most {_MOST_ENTRIES} texts", value, setting, at)
        return [
            _checked_text(key, setting, entry.strip() if isinstance(entry, str) else entry, at)
            for entry in listed
        ]
    if not isinstance(value, Mapping) or len(value) > _MOST_ENTRIES:
        raise _wrong(key, f"a mapping of at most {_MOST_ENTRIES} names", value, setting, at)
    return {
        _checked_text(key, setting, name, at): _entry(key, setting, name, entry, at)
        for name, entry in value.items()
    }


def _entry(key: str, setting: Setting, name: Any, value: Any, at: _Place) -> Any:
    if setting.kind == "labels":
        return _checked_text(key, setting, value, (*at, str(name)))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1e15:
        raise _wrong(f"{key}.{name}", "a number of 0 or more", value, setting, (*at, str(name)))
    return value


def _checked_text(key: str, setting: Setting, value: Any, at: _Place) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "text", value, setting, at)
    if not value or len(value) > _LONGEST_TEXT or _CONTROL.search(value):
        raise InvalidSpec(
            f"`{key}` is empty, longer than {_LONGEST_TEXT} characters, or has control characters",
            f"for example `{key}: {setting.example}`",
            at=at,
        )
    if setting.check is not None:
        setting.check(key, value, at)
    return value


def _wrong(key: str, expected: str, value: Any, setting: Setting, at: _Place) -> InvalidSpec:
    return InvalidSpec(
        f"`{key}` must be {expected}, not {described(value)}",
        f"for example `{key.partition('.')[0]}: {setting.example}`",
        at=at,
    )


def _check_whole(engine: str, settings: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    """What keys mean together."""
    name = document.get("name")
    if settings.get("spill_over") == name:
        raise InvalidSpec(
            f"`spill_over` of `{name}` names the cluster itself",
            "name another one: `yard compute list`",
            at=(_MAPPING, "spill_over"),
        )
    if engine != RAY:
        return
    begins = bool(settings.get("start"))
    if begins and "address" in settings:
        raise InvalidSpec(
            "`address` names a Ray cluster that exists, and `start` asks for a new one",
            "leave out one of them",
            at=(_MAPPING, "address"),
        )
    if not begins and "address" not in settings:
        raise InvalidSpec(
            "the Ray cluster has no `address`",
            "write `torchyard: {engine: ray, address: 10.0.0.5:6379}`, or `start: true` for a head "
            "that torchyard starts",
            at=(_MAPPING,),
        )
