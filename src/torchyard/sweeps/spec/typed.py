"""Mappings that are read by their `type`: hyperparameters, sampling algorithms, policies.

Owns: finding the type, in any case, with `_` or `-`, or in camelCase.
Leaves: the types, and the keys of each, to the module that declares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from torchyard.base.documents.models import At, Choice, Document, Key
from torchyard.base.errors import InvalidSpec


class Typed(Document):
    type: Annotated[Any, Key()] = None


def kind_of(body: Mapping[Any, Any], types: Choice, at: At) -> str:
    """
    Raises:
        InvalidSpec: it is absent, or none of these.
    """
    if body.get("type") in (None, ""):
        served = [name for name, key in types.values.items() if key.support != "refused"]
        raise InvalidSpec(f"`{at[-1]}` has no `type`", f"use one of: {', '.join(served)}", at=at)
    return types.read(body, "type", at, None)
