"""The nouns of this room."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum


@dataclass(frozen=True)
class Workspace:
    """The central list of everything a team makes; its three names are Azure ML's.

    Jobs that ended more than `retention_days` ago are deleted; 0 keeps them for ever.
    """

    name: str
    subscription_id: str
    resource_group: str
    location: str
    created_at: datetime
    description: str = ""
    retention_days: int = 0


class TokenKind(str, Enum):
    """Whose a token is; the value is the token's own prefix."""

    PERSON = "yard_p_"
    ATTEMPT = "yard_a_"
    RUN = "yard_r_"


@dataclass(frozen=True)
class Identity:
    """Who asks.

    `subject` is the attempt's id for an attempt's token, the job's name for a run's, empty for
    a person's. `workspace` is empty when the token is good for every workspace.
    """

    user: str
    kind: TokenKind
    workspace: str = ""
    subject: str = ""
