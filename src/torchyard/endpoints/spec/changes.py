"""Changes of single keys of a deployment, online or batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.base.fields import unknown_key

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
