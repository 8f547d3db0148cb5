"""Changes of a deployment, online or batch: of single keys, and of what runs as its owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol

from torchyard.base.fields import unknown_key


class Spec(Protocol):
    """A dataclass, of whichever deployment."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


# Each names one thing in several ways: half of the old way must not stay.
_REPLACED_AS_A_WHOLE = ("model", "environment")


def changed(
    document: Mapping[str, Any], changes: Mapping[str, Any], keys: Sequence[str]
) -> dict[str, Any]:
    """The document with the changes in it.

    Args:
        keys: those that a deployment has.

    Raises:
        InvalidSpec: a key is not among them.
    """
    for key in changes:
        if key not in keys:
            raise unknown_key(str(key), keys)
    replaced = {key: changes[key] for key in _REPLACED_AS_A_WHOLE if key in changes}
    return {**merged(document, changes), **replaced}


def merged(before: Any, changes: Any) -> Any:
    """A mapping with the changes in it, level by level; anything else is replaced."""
    if not isinstance(before, Mapping) or not isinstance(changes, Mapping):
        return changes
    return {**before, **{key: merged(before.get(key), changes[key]) for key in changes}}


def changes_what_runs(before: Spec, after: Spec, outside: Sequence[str]) -> bool:
    """Whether two specs of a deployment differ in what its instances or jobs run.

    Args:
        outside: the fields that what runs does not know.
    """
    names = [field.name for field in fields(before) if field.name not in outside]
    return any(getattr(before, name) != getattr(after, name) for name in names)
