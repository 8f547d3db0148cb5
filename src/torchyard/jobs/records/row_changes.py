"""The columns of jobs, attempts and nodes that may be changed, and their types.

Owns: what `change_job`, `change_attempt` and `change_node` accept.
Leaves: writing them to store.py and attempt_store.py, when they change to progress.py.
Always: values are as the row keeps them: a status by its name, an error as its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict


class JobColumns(TypedDict, total=False):
    compute: str
    node_count: int
    gpus: int
    owner: str
    created_at: datetime
    display_name: str
    experiment_id: int
    description: str
    spec: Mapping[str, Any]
    status: str
    tags: Mapping[str, str]
    properties: Mapping[str, str]
    started_at: datetime
    started_steady: str
    ended_at: datetime | None
    duration_s: float | None
    exit_code: int | None
    error: Mapping[str, Any] | None
    attempt: int
    deleted: bool
    archived: bool
    retry_at: datetime | None
    avoided_slots: list[int] | None


class AttemptColumns(TypedDict, total=False):
    handle: Mapping[str, Any]
    order: str
    order_reason: str
    ended_at: datetime
    clean: bool
    exit_code: int | None
    error: Mapping[str, Any] | None
    waiting_for: str


class NodeColumns(TypedDict, total=False):
    next_seq: int
    seen_at: datetime
    ran_s: float
    state: str
    address: str
    port: int | None
    exit_code: int
    error: Mapping[str, Any]
    failed_at: datetime
    preflight: Mapping[str, Any] | None
    interactive: Mapping[str, Any] | None
