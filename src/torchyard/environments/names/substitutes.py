"""What takes the place of a published environment or image, and whether it may.

Owns: the word for it, and the error of a workspace that takes none.
Leaves: what becomes what to catalogue.py, published.py and image_names.py; who decides to
workspaces/.
Always: an environment of the very name that was asked for is none; whoever is refused learns what
it would have become, and what to write to get just that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard.base.errors import InvalidSpec

At = tuple[str | int, ...]


@dataclass(frozen=True)
class Substitute:
    """`asked` was asked for, in words; `ours` is what it becomes; `instead` names just that."""

    asked: str
    ours: str
    instead: str


# Raises where the substitute, named at a place of a document, must not be taken.
Judge = Callable[[Substitute, At], None]


def taken(found: Substitute, at: At) -> None:
    """The judge of those who take any."""


def refused_in(workspace: str) -> Judge:
    """The judge of a workspace that takes none."""

    def refuse(found: Substitute, at: At) -> None:
        raise InvalidSpec(
            f"{found.asked} is not run here: it would become {found.ours}, and workspace "
            f"`{workspace}` takes nothing in the place of what is named",
            f"write `{found.instead}`; or an owner allows it, "
            f"`yard workspace update -n {workspace} --allow-substitutes true`",
            code="substitute_refused",
            at=at,
        )

    return refuse
