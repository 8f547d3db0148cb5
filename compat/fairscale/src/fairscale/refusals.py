"""What a module says when it is asked for a name that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def refuse(module: str, served: Sequence[str]) -> Callable[[str], Any]:
    """A module's `__getattr__`."""

    def missing(name: str) -> Any:
        raise AttributeError(
            f"torchyard's {module} has no `{name}`: it serves {', '.join(served)}. For fairscale "
            "itself, list it by its URL: `fairscale @ https://…`"
        )

    return missing
