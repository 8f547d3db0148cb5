"""What an endpoint, a deployment and an instance are to the other folders and to the protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any


class ProvisioningState(str, Enum):
    """Azure ML's words for how far an endpoint or a deployment has got."""

    CREATING = "Creating"
    UPDATING = "Updating"
    DELETING = "Deleting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        return self in (ProvisioningState.SUCCEEDED, ProvisioningState.FAILED)


class InstanceState(str, Enum):
    STARTING = "Starting"
    READY = "Ready"
    UNREADY = "Unready"
    """It was ready, and its readiness probe fails: it gets no requests until it succeeds."""
    DRAINING = "Draining"
    FAILED = "Failed"


class AuthMode(str, Enum):
    KEY = "key"
    AML_TOKEN = "aml_token"
    AAD_TOKEN = "aad_token"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What endpoints and deployments of every kind have; `document` is the file as it was accepted,
    with assets pinned.
    """

    workspace: str
    name: str
    owner: str
    document: Mapping[str, Any]
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, kw_only=True)
class StoredDeployment(Stored):
    endpoint: str


@dataclass(frozen=True, kw_only=True)
class Endpoint(Stored):
    """`traffic` and `mirror_traffic` are percentages by the name of a deployment. `message` says
    why it failed.
    """

    auth_mode: AuthMode
    traffic: Mapping[str, int]
    mirror_traffic: Mapping[str, int]
    state: ProvisioningState
    message: str


@dataclass(frozen=True)
class EndpointKeys:
    """`primary` and `secondary` are what callers send; `token_secret` signs the tokens that are
    given instead (aml_token). All are texts without spaces.
    """

    primary: str
    secondary: str
    token_secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Deployment(StoredDeployment):
    """Each accepted change raises `revision`, which begins at 1.

    `served_document` and `served_revision` are those that last became ready, empty and 0 before:
    what a failed update goes back to.
    """

    state: ProvisioningState = ProvisioningState.CREATING
    message: str = ""
    revision: int = 1
    served_document: Mapping[str, Any] = field(default_factory=dict)
    served_revision: int = 0


@dataclass(frozen=True)
class Instance:
    """One running copy of a deployment's revision: a job of the deployment's owner.

    `number` is from 0, `starts` how many jobs there have been for it, `job` the last one's name.
    `host` is the path of the socket where it takes requests, empty before it is ready.
    """

    workspace: str
    endpoint: str
    deployment: str
    revision: int
    number: int
    job: str
    state: InstanceState
    host: str
    message: str
    created_at: datetime
    starts: int = 1

    @property
    def id(self) -> str:
        """As the router's table and its statistics name it."""
        return f"{self.deployment}-{self.revision}-{self.number}"
