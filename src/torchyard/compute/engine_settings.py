"""What a cluster's document says of its engine.

Owns: the mapping `torchyard:` with the engine's settings, the same keys as tags.
Leaves: the settings themselves to executors/, the other keys of the document to documents.py.
Always: a setting is written once, wherever that is; an error says where, and what to write instead.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from torchyard.base.documents.checks import TEXT, At, By
from torchyard.base.documents.faults import joined
from torchyard.base.documents.models import keys
from torchyard.base.errors import InvalidSpec, did_you_mean, moved, nearest
from torchyard.base.fields import described, texts, unknown_key
from torchyard.compute.types import LOCAL
from torchyard.executors.cluster_settings import ClusterSettings
from torchyard.executors.engines import settings as settings_of_engines
from torchyard.executors.engines import settings_of

PREFIX = "torchyard."
_MAPPING = "torchyard"
_MODELS = settings_of_engines()
_SCHEMAS = [model.as_json_schema()["properties"] for model in _MODELS.values()]
MAPPING = By(
    lambda value, at: value,
    else_={"type": "object", "properties": {"engine": TEXT, **ChainMap(*_SCHEMAS)}},
)
"""The mapping as it is written; `read` reads it."""


def read(document: Mapping[str, Any], engines: Collection[str]) -> tuple[str, ClusterSettings]:
    """The engine and its settings, as the document's keys and tags give them.

    Args:
        engines: those that this server runs.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    written = list(_written(document))
    values = {key: value for key, value, _ in reversed(written)}
    places = {key: at for key, _, at in reversed(written)}
    engine = _engine(values.pop("engine", LOCAL), places.get("engine", ("engine",)), engines)
    model = settings_of(engine)
    unknown = {
        key: _unknown(key, engine, model, places[key]) for key in values if key not in keys(model)
    }
    for key, fault in unknown.items():  # read on by the name that was meant
        values.setdefault(fault.meant_key, values[key])
        places.setdefault(fault.meant_key, places[key])
    if "engine" in values:
        raise next(fault for fault in unknown.values() if fault.meant_key == "engine")
    faults = [*_conflicts(written, document.get("name")), *unknown.values()]
    known = {key: value for key, value in values.items() if key in keys(model)}
    try:
        settings = model.read(known, (_MAPPING,))
    except InvalidSpec as error:
        faults.append(moved(error, lambda at: (*places[str(at[1])], *at[2:]) if at[1:] else at))
    if faults:
        raise joined(faults, document, ())
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
    own_tags = {str(key).removeprefix(PREFIX) for key in tags if str(key).startswith(PREFIX)}
    if document.get("engine") is not None or "engine" in {*mapping, *own_tags}:
        return document
    rest = {key: value for key, value in settings.items() if key not in {*mapping, *own_tags}}
    return {**document, _MAPPING: {"engine": engine, **rest, **mapping}}


def without(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that are the user's own."""
    return {key: value for key, value in tags.items() if not key.startswith(PREFIX)}


def as_tags(engine: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """What clients see that know no other place for these keys; empty for a plain local cluster."""
    if engine == LOCAL and not settings:
        return {}
    values = {key: _text(value) for key, value in settings.items()}
    return {f"{PREFIX}{key}": value for key, value in {"engine": engine, **values}.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _written(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, At]]:
    """Each key that says something of the engine, its value, and where it stands."""
    mapping = document.get(_MAPPING)
    if mapping is not None and not isinstance(mapping, Mapping):
        raise InvalidSpec(
            f"`{_MAPPING}` must be a mapping, not {described(mapping)}",
            "write `torchyard: {engine: ray, address: 10.0.0.5:6379}`",
            at=(_MAPPING,),
        )
    for key, value in (mapping or {}).items():
        if value is not None:
            yield str(key), value, (_MAPPING, str(key))
    if document.get("engine") is not None:
        yield "engine", document["engine"], ("engine",)
    for key, value in texts(document, "tags").items():
        if key.startswith(PREFIX):
            yield key.removeprefix(PREFIX), _of_tag(value), ("tags", key)


def _conflicts(written: Iterable[tuple[str, Any, At]], name: Any) -> Iterator[InvalidSpec]:
    """What two places say differently, and a cluster named `name` that spills over to itself."""
    values: dict[str, Any] = {}
    for key, value, at in written:
        if _text(values.setdefault(key, value)).lower() != _text(value).lower():
            yield InvalidSpec(
                f"`{key}` is given twice, as `{values[key]}` and as `{value}`",
                "write it once, in the mapping `torchyard:`",
                at=at,
            )
        elif key == "spill_over" and value == name:
            yield InvalidSpec(
                f"`spill_over` of `{name}` names the cluster itself",
                "name another one: `yard compute list`",
                at=at,
            )


def _of_tag(text: str) -> Any:
    """A tag is text: what reads as JSON's list, mapping, true or false is that."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _engine(value: Any, at: At, engines: Collection[str]) -> str:
    if not isinstance(value, str):
        raise InvalidSpec("`engine` must be text", "for example `engine: local`", at=at)
    engine = value.lower()
    if engine in engines:
        return engine
    guess = nearest(engine, _MODELS)
    if guess and guess != LOCAL and guess not in engines:
        raise InvalidSpec(
            f"engine `{value}` is not served yet" if engine == guess
            else f"`{value}` is not an engine, and `{guess}` is not served yet",
            "use `engine: local`: nodes on the server's machine",
            at=at,
        )  # fmt: skip
    raise InvalidSpec(f"`{value}` is not an engine", did_you_mean(engine, engines), at=at)


def _unknown(key: str, engine: str, model: type[ClusterSettings], at: At) -> InvalidSpec:
    if key == "shared_folder":
        return InvalidSpec(
            "`shared_folder` is not supported: nodes reach the server by TCP alone",
            "start it with `yard server start --listen`, and open its port to the nodes",
            at=at,
        )
    owners = [other for other, settings in _MODELS.items() if key in keys(settings)]
    if owners:
        return InvalidSpec(
            f"`{key}` is a setting of the engine `{owners[0]}`, and this cluster's is `{engine}`",
            f"write `engine: {owners[0]}`, or leave `{key}` out",
            at=at,
        )
    error = unknown_key(key, ["engine", *keys(model)], inside=_MAPPING)
    error.at = at
    return error
