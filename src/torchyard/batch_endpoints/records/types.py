"""What a batch endpoint and its deployments are to the other folders and to the protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class BatchEndpoint:
    """`document` is its file as it was accepted; `default_deployment` is empty for none."""

    workspace: str
    name: str
    owner: str
    document: Mapping[str, Any]
    default_deployment: str
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True)
class BatchDeployment:
    """`document` is its file as it was accepted, with assets pinned: `spec/deployment_spec.py`
    reads it.
    """

    workspace: str
    endpoint: str
    name: str
    owner: str
    document: Mapping[str, Any]
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True)
class BatchJob:
    """`job` is the name of one that was made by an invocation at `created_at`."""

    workspace: str
    job: str
    endpoint: str
    deployment: str
    created_at: datetime
