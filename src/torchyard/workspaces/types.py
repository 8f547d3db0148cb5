"""The types of this package: workspaces, people, roles, tokens, quotas."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from torchyard.base.errors import InvalidInput, did_you_mean

NETWORKS = ("open", "workspace", "none")
"""What jobs may connect to, from the most to the least; see shared/plan.py."""


@dataclass(frozen=True)
class Workspace:
    """What holds a team's jobs, data, models and environments; identified as in Azure ML.

    Jobs that ended more than `retention_days` ago are deleted; 0 keeps them forever. With
    `rehearse_on_cpu` jobs are rehearsed on the CPU unless they say otherwise. `allow_substitutes`
    says whether a substitute may replace a published environment or image; None leaves it to the
    server, which allows it unless it is shared.

    Of its jobs, each node may have `max_processes` processes and threads and write `disk_quota_mb`
    MiB, 0 for torchyard's own limit or none, and connect to no more than `network` says. With
    `auto_compute` they may leave their cluster open.

    `notifications` says who is told of the end of its jobs; see notifications.py.

    `azure_keys` are keys of Azure's schema that have no effect here and are given back.
    """

    name: str
    subscription_id: str
    resource_group: str
    location: str
    created_at: datetime
    description: str = ""
    retention_days: int = 0
    rehearse_on_cpu: bool = False
    allow_substitutes: bool | None = None
    max_processes: int = 0
    disk_quota_mb: int = 0
    network: str = "open"
    auto_compute: bool = False
    display_name: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    azure_keys: dict[str, Any] = field(default_factory=dict)
    notifications: dict[str, Any] = field(default_factory=dict)


class TokenKind(str, Enum):
    """Whose a token is; the value is the token's prefix."""

    PERSON = "yard_p_"
    ATTEMPT = "yard_a_"
    RUN = "yard_r_"
    MACHINE = "yard_m_"
    INVITATION = "yard_i_"


class Role(str, Enum):
    """A person's role in a workspace, or in all of them; the names are Azure ML's.

    Each role includes those before it.
    """

    READER = "reader"
    DATA_SCIENTIST = "data scientist"
    CONTRIBUTOR = "contributor"
    OWNER = "owner"

    @property
    def rank(self) -> int:
        """1 to 4; a higher rank includes the lower ones."""
        return _RANKS[self]


_RANKS = {role: rank for rank, role in enumerate(Role, 1)}


def role_named(text: str) -> Role:
    """The role with this name, spelled as `Data Scientist`, `data-scientist` or `datascientist`.

    Raises:
        InvalidInput: no such role; the hint names the nearest.
    """
    word = re.sub(r"[\s_-]+", "", text.lower()).removeprefix("azureml")
    for role in Role:
        if role.value.replace(" ", "") == word:
            return role
    names = [role.value for role in Role]
    raise InvalidInput(
        f"there is no role `{text[:50]}`",
        did_you_mean(re.sub(r"[\s_-]+", " ", text), names),
        code="no_such_role",
        at=["role"],
    )


@dataclass(frozen=True)
class Identity:
    """Who sends a request.

    `subject` is the attempt's id for an attempt's token, the job's name for a run's, workspace,
    cluster and name for a machine's and for an invitation of one, empty for a person's. `workspace`
    is empty when the token is valid for every workspace. `role` is the person's role in the
    request's workspace, None for no role; `token` is the token's name.
    With `own_only` the permission covers only the person's own jobs and runs. `token_hash`
    identifies the token in the database.
    """

    user: str
    kind: TokenKind
    workspace: str = ""
    subject: str = ""
    role: Role | None = None
    token: str = ""
    expires_at: datetime | None = None
    own_only: bool = False
    token_hash: str = field(default="", compare=False)


@dataclass(frozen=True)
class Person:
    """A user of the server. `roles` is by workspace; the key "" means every workspace."""

    name: str
    created_at: datetime
    roles: dict[str, Role]
    removed_at: datetime | None = None


@dataclass(frozen=True)
class KeptToken:
    """A person's token as it is stored: without its text."""

    name: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True)
class Limit:
    """A quota: at most so much of one resource.

    `user` is a person's name, `EACH` for everyone who has no limit of their own, or `ALL` for
    the whole workspace together.
    """

    workspace: str
    user: str
    name: str
    most: int
    set_by: str
    set_at: datetime


EACH = "*"
ALL = ""


@dataclass(frozen=True)
class QuotaRequest:
    """A request for a higher limit; `state` is asked, approved or denied."""

    id: str
    workspace: str
    user: str
    name: str
    most: int
    reason: str
    asked_at: datetime
    state: str = "asked"
    answered_by: str = ""
    answered_at: datetime | None = None
    answer: str = ""
