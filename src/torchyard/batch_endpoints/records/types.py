"""What a batch endpoint and its deployments are to the other folders and to the protocols."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from torchyard.endpoints.records.types import Stored, StoredDeployment


@dataclass(frozen=True, kw_only=True)
class BatchEndpoint(Stored):
    """`default_deployment` is empty for none."""

    default_deployment: str


@dataclass(frozen=True, kw_only=True)
class BatchDeployment(StoredDeployment):
    """Of a batch endpoint; it has nothing else."""


@dataclass(frozen=True)
class BatchJob:
    """`job` is the name of one that was made by an invocation at `created_at`."""

    workspace: str
    job: str
    endpoint: str
    deployment: str
    created_at: datetime
