"""What can be done with clusters.

Owns: cluster documents, the node slots of local clusters.
Leaves: which job gets slots, and when, to jobs/scheduler.py.
Always: slots are held all or none, and never more than the cluster's maximum; the slot's number
is a key of the database, so two servers can't give it out twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound, nearest
from torchyard.compute import store
from torchyard.compute.types import LOCAL, Compute, Use

_NAME = re.compile(r"^[a-zA-Z][a-zA-Z0-9-]{1,22}[a-zA-Z0-9]\Z")
_TEXTS = ("name", "type", "size", "tier", "description")
_NUMBERS = ("min_instances", "max_instances", "idle_time_before_scale_down")
_KEYS = (*_TEXTS, *_NUMBERS, "tags", "location", "$schema")


def ensure_local(db: Database, clock: Clock, workspace: str) -> None:
    """The cluster that is there from the start: four node slots on the server's machine."""
    with db.write() as connection:
        if store.get(connection, workspace, LOCAL) is None:
            made = Compute(LOCAL, workspace, clock.now(), description="this machine")
            store.put(connection, made)


def create(db: Database, clock: Clock, workspace: str, document: Mapping[str, Any]) -> Compute:
    """Create or update a cluster from its YAML document.

    Raises:
        InvalidSpec: a key is unknown, or a value wrong.
    """
    made = read_document(document, workspace, clock)
    with db.write() as connection:
        store.put(connection, made)
        kept = store.get(connection, workspace, made.name)
    assert kept is not None
    return kept


def read_document(document: Mapping[str, Any], workspace: str, clock: Clock) -> Compute:
    """A cluster from its YAML document; keys and defaults of SCHEMA.md's amlCompute."""
    for key in document:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            hint = f"did you mean `{near}`?" if near else f"known keys: {', '.join(_KEYS[:-1])}"
            raise InvalidSpec(f"unknown key `{key}`", hint, at=[key])
    for key in _TEXTS:
        if key in document and not isinstance(document[key], str):
            raise InvalidSpec(f"`{key}` must be text", at=[key])
    for key in _NUMBERS:
        value = document.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InvalidSpec(
                f"`{key}` must be a whole number of 0 or more, not `{value}`", at=[key]
            )
    name = document.get("name", "")
    if not _NAME.match(name):
        raise InvalidSpec(
            f"`{name}` is no name for a compute" if name else "the compute has no `name`",
            "3 to 24 letters, digits and dashes, a letter first",
            at=["name"],
        )
    kind = document.get("type", "amlcompute").lower()
    if kind != "amlcompute":
        raise InvalidSpec(
            f"compute type `{document['type']}` is not served",
            "use `type: amlcompute`",
            at=["type"],
        )
    tier = document.get("tier", "dedicated").lower().replace("lowpriority", "low_priority")
    if tier not in ("dedicated", "low_priority"):
        raise InvalidSpec(
            f"`{document['tier']}` is no tier", "use `dedicated` or `low_priority`", at=["tier"]
        )
    tags = document.get("tags") or {}
    if not isinstance(tags, Mapping):
        raise InvalidSpec("`tags` must be a mapping of texts", at=["tags"])
    compute = Compute(
        name=name,
        workspace=workspace,
        created_at=clock.now(),
        size=document.get("size", ""),
        tier=tier,
        min_instances=document.get("min_instances", 0),
        max_instances=document.get("max_instances", 4),
        idle_time_before_scale_down=document.get("idle_time_before_scale_down", 120),
        description=document.get("description", ""),
        tags={str(key): str(value) for key, value in tags.items()},
    )
    if compute.max_instances < 1 or compute.min_instances > compute.max_instances:
        raise InvalidSpec(
            f"`max_instances` is {compute.max_instances} and `min_instances` is "
            f"{compute.min_instances}",
            "the maximum is at least 1 and not below the minimum",
            at=["max_instances"],
        )
    return compute


def get(db: Database, workspace: str, name: str) -> Compute:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with db.read() as connection:
        found = store.get(connection, workspace, name)
        if found is not None:
            return found
        near = nearest(name, [compute.name for compute in store.list_in(connection, workspace)])
    hint = f"did you mean `{near}`?" if near else "list what exists with `yard compute list`"
    raise NotFound(
        f"compute `{name}` does not exist in workspace `{workspace}`",
        hint,
        code="compute_not_found",
    )


def list_in(db: Database, workspace: str) -> list[tuple[Compute, Use]]:
    """Every cluster of a workspace, with what it is doing."""
    with db.read() as connection:
        counts = store.busy_counts(connection, workspace)
        return [
            (compute, Use(counts.get(compute.name, 0)))
            for compute in store.list_in(connection, workspace)
        ]


def use(db: Database, compute: Compute) -> Use:
    with db.read() as connection:
        return Use(len(store.busy_numbers(connection, compute.workspace, compute.name)))


def delete(db: Database, workspace: str, name: str) -> None:
    """
    Raises:
        NotFound: there is none of that name.
        Conflict: jobs hold its nodes, or it is the built-in one.
    """
    compute = get(db, workspace, name)
    if name == LOCAL:
        raise Conflict("compute `local` is built in and can't be deleted")
    with db.write() as connection:
        busy = store.busy_numbers(connection, workspace, compute.name)
        if busy:
            raise Conflict(
                f"compute `{name}` is running jobs on {len(busy)} nodes",
                "cancel them first; `yard job list` shows them",
            )
        store.drop(connection, workspace, name)


def forget_all(connection: Connection, workspace: str) -> None:
    """Every cluster of a workspace that is going, the built-in one too."""
    for compute in store.list_in(connection, workspace):
        store.drop(connection, workspace, compute.name)


def try_hold(
    connection: Connection,
    workspace: str,
    name: str,
    count: int,
    attempt_id: str,
    avoided: Collection[int] = (),
) -> str:
    """Hold `count` slots, all or none; answers why not, or an empty string.

    Args:
        avoided: slots to be taken only when the cluster has too few others.
    """
    compute = store.get(connection, workspace, name)
    if compute is None:
        return f"compute `{name}` was deleted"
    busy = store.busy_numbers(connection, workspace, name)
    free = [number for number in range(compute.max_instances) if number not in busy]
    others = [number for number in free if number not in avoided]
    suitable = [number for number in range(compute.max_instances) if number not in avoided]
    if len(free) < count or (len(others) < count <= len(suitable)):
        return (
            f"needs {_nodes(count)}; {len(busy)} of {compute.max_instances} nodes of "
            f"`{name}` are busy"
        )
    free = others if len(others) >= count else free
    store.hold(connection, workspace, name, free[:count], attempt_id)
    return ""


def slots_of(connection: Connection, attempt_id: str) -> list[int]:
    """The slots that an attempt holds, by its nodes."""
    return store.slots_of(connection, attempt_id)


def release(connection: Connection, attempt_id: str) -> None:
    """Give back every slot of an attempt."""
    store.release(connection, attempt_id)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
