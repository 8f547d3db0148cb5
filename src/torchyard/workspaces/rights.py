"""Whether a person may run something in a workspace, at this moment.

Owns: the one rule that is asked at every start of anything, and at every use of a run token.
Leaves: what a request may do to permissions.py and access.py, stopping what runs to jobs/owners.py.
Always: a person who was removed, or who lost the role, may run nothing; whoever gets the role
again may.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from torchyard.base.errors import Forbidden
from torchyard.workspaces import people_store as store
from torchyard.workspaces.permissions import MINIMUM_ROLE, Permission
from torchyard.workspaces.types import Role

CODE = "owner_may_not_run"
LEAST_ROLE = MINIMUM_ROLE[Permission.WRITE]


def suffices(role: Role | None) -> bool:
    """Whether a role in a workspace lets its holder run something there."""
    return role is not None and role.rank >= LEAST_ROLE.rank


def may_run(connection: Connection, user: str, workspace: str) -> bool:
    return bool(able(connection, [(workspace, user)]))


def able(connection: Connection, pairs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of the pairs of workspace and person whose person may run something there."""
    roles = store.roles_of_present(connection, {user for _, user in pairs})
    return {
        (workspace, user)
        for workspace, user in pairs
        if any(suffices(roles.get((user, scope))) for scope in ("", workspace))
    }


def refusal(user: str, workspace: str) -> Forbidden:
    return Forbidden(
        f"`{user}` may no longer run anything in workspace `{workspace}`: it needs the role "
        f"`{LEAST_ROLE.value}`",
        "an owner can grant the role again; who wants to go on with it themselves takes it over: "
        "`--take-over`",
        code=CODE,
    )


def refuse_unable(connection: Connection, user: str, workspace: str) -> None:
    """
    Raises:
        Forbidden: the person was removed, or lost the role.
    """
    if not may_run(connection, user, workspace):
        raise refusal(user, workspace)
