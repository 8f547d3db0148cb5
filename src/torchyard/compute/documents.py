"""A cluster's YAML document.

Owns: the keys, their values, the messages when one is wrong.
Leaves: sizes to sizes.py, engines and their settings to engine_settings.py, storing the cluster to
actions.py.
Always: keys and defaults are those of Azure ML's amlCompute, `torchyard` and `engine` are ours; a
key that has no effect here is refused by name, unless its value holds here anyway.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from torchyard.base import fields
from torchyard.base.documents import expressions
from torchyard.base.errors import InvalidSpec
from torchyard.compute import engine_settings, sizes
from torchyard.compute.sizes import Size
from torchyard.compute.types import LOCAL, Compute

_NAME = re.compile(r"^[a-zA-Z][a-zA-Z0-9-]{1,22}[a-zA-Z0-9]\Z")
_TEXTS = ("name", "type", "size", "tier", "description", "engine", "location")
_NUMBERS = ("min_instances", "max_instances", "idle_time_before_scale_down")
_KEYS = (*_TEXTS, *_NUMBERS, "tags", "torchyard")
# Azure's keys that are accepted if false, and why no other value is.
_SATISFIED = {
    "ssh_public_access_enabled": "the machine decides who may log in",
    "enable_node_public_ip": "nodes use the machine's addresses",
}
_REFUSED = {
    "ssh_settings": "nodes use the machine's accounts",
    "network_settings": "nodes use the machine's network",
    "identity": "jobs run as the server's Unix user",
}
_MOST_NODES = 100_000


def read(
    document: Mapping[str, Any],
    workspace: str,
    now: datetime,
    available_sizes: Mapping[str, Size],
    engines: Collection[str] = (LOCAL,),
) -> Compute:
    """
    Args:
        available_sizes: as `sizes.all_sizes` returns them.
        engines: those that this server runs.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    # Of another type's keys nothing needs to be said: the type is what is not served.
    if isinstance(document.get("type"), str):
        _check_type(document)
    _check_keys(document)
    expressions.refuse(document)
    for key in _TEXTS:
        if key in document and not isinstance(document[key], str):
            raise InvalidSpec(f"`{key}` must be text", f"for example `{key}: local`", at=[key])
    _check_name(document.get("name", ""))
    tags = fields.texts(document, "tags")
    engine, settings = engine_settings.read(document, tags, engines)
    tier = document.get("tier", "dedicated")
    tier = {"lowpriority": "low_priority"}.get(tier.lower(), tier.lower())
    if tier not in ("dedicated", "low_priority"):
        raise InvalidSpec(
            f"`{document['tier']}` is not a tier", "use `dedicated` or `low_priority`", at=["tier"]
        )
    least = _number(document, "min_instances", 0)
    maximum = _number(document, "max_instances", 4)
    if maximum < 1 or least > maximum:
        raise InvalidSpec(
            f"`max_instances` is {maximum} and `min_instances` is {least}",
            "the maximum must be at least 1 and not below the minimum",
            at=["max_instances"] if "max_instances" in document else ["min_instances"],
        )
    size = sizes.find(document["size"], available_sizes) if document.get("size") else None
    return Compute(
        name=document["name"],
        workspace=workspace,
        created_at=now,
        size=document.get("size", "").strip(),
        tier=tier,
        min_instances=least,
        max_instances=maximum,
        idle_time_before_scale_down=_number(document, "idle_time_before_scale_down", 120),
        description=document.get("description", ""),
        tags=engine_settings.without(tags),
        cores=size.cores if size else None,
        memory_bytes=size.memory_bytes if size else None,
        gpus=size.gpus if size else engine_settings.gpus(settings),
        gpu_kind=size.gpu_kind if size else "",
        engine=engine,
        engine_settings=settings or None,
    )


def _check_type(document: Mapping[str, Any]) -> None:
    _choice(document, "type", "amlcompute", ("amlcompute",), "use `type: amlcompute`")


def _check_keys(document: Mapping[str, Any]) -> None:
    for key in document:
        if key in _KEYS or key == "$schema":
            continue
        if key in _REFUSED or (key in _SATISFIED and document[key] not in (False, None)):
            reason = _REFUSED.get(key) or _SATISFIED[key]
            raise InvalidSpec(f"`{key}` is not served: {reason}", "leave it out", at=[key])
        if key not in _SATISFIED:
            raise fields.unknown_key(str(key), _KEYS)


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise InvalidSpec(
            f"`{name}` is not a valid compute name" if name else "the compute has no `name`",
            "use 3 to 24 letters, digits and dashes, starting with a letter",
            at=["name"],
        )


def _choice(
    document: Mapping[str, Any], key: str, default: str, choices: tuple[str, ...], hint: str
) -> None:
    if document.get(key, default).lower() not in choices:
        raise InvalidSpec(f"compute {key} `{document[key]}` is not served", hint, at=[key])


def _number(document: Mapping[str, Any], key: str, default: int) -> int:
    value = fields.count(document, key, default=default)
    if key.endswith("_instances") and value > _MOST_NODES:
        raise InvalidSpec(f"`{key}` must be at most {_MOST_NODES:,}, not {value:,}", at=[key])
    if value > 2**31 - 1:
        raise InvalidSpec(f"`{key}` must be at most {2**31 - 1}, not {value}", at=[key])
    return value
