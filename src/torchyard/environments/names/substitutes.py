"""Substitutes for published environments and images, and whether they are allowed.

Owns: the policies, and the error of a workspace that allows none.
Leaves: what becomes what to catalogue.py, published.py and image_names.py; the decision to
workspaces/.
Always: an environment of exactly the requested name is not a substitute; the error says what the
request would have become, and what to write to get exactly that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard.base.errors import InvalidSpec

At = tuple[str | int, ...]


@dataclass(frozen=True)
class Substitute:
    """Texts: `requested` becomes `replacement`; `instead` is how to name that one."""

    requested: str
    replacement: str
    instead: str


# Raises an error where the substitute is not allowed; `At` is its place in a document.
SubstitutePolicy = Callable[[Substitute, At], None]


def allow(substitute: Substitute, at: At) -> None:
    """Allow any substitute."""


def refusing_in(workspace: str) -> SubstitutePolicy:
    """The policy of a workspace that allows no substitutes."""

    def refuse(substitute: Substitute, at: At) -> None:
        raise InvalidSpec(
            f"{substitute.requested} is not run here: it would become "
            f"{substitute.replacement}, and workspace `{workspace}` allows no substitutes",
            f"write `{substitute.instead}`; or an owner allows substitutes, "
            f"`yard workspace update -n {workspace} --allow-substitutes true`",
            code="substitute_refused",
            at=at,
        )

    return refuse
