"""How much of a workspace one person, or everyone together, may use.

Owns: which limits there are, setting them, requests for more and their answers.
Leaves: what is in use, and refusing jobs, to jobs/admission/quota_checks.py.
Always: there is no limit unless somebody set one; a person's own limit replaces the one for each
person, and the workspace's limit applies beside both.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound, did_you_mean
from torchyard.workspaces import quota_store as store
from torchyard.workspaces.types import ALL, EACH, Limit, QuotaRequest

NAMES: dict[str, str] = {
    "nodes": "nodes in use at once",
    "gpus": "GPUs in use at once",
    "cores": "CPU cores in use at once",
    "jobs": "jobs that hold nodes at once",
    "run_time_s": "seconds that one job may run",
    "storage_bytes": "bytes of logs, outputs and code that jobs keep on the server",
}
_MOST = 1 << 60
_REASON_LENGTH = 1000


def limits(connection: Connection, workspace: str) -> list[Limit]:
    """All limits that are set in the workspace."""
    return store.limits(connection, workspace)


def held_by(limits: Sequence[Limit], user: str) -> list[Limit]:
    """The limits that apply to `user`, the person's own before the workspace's."""
    own_names = {limit.name for limit in limits if limit.user == user}
    personal = [
        limit
        for limit in limits
        if limit.user == user or (limit.user == EACH and limit.name not in own_names)
    ]
    return personal + [limit for limit in limits if limit.user == ALL]


def change(
    db: Database, clock: Clock, workspace: str, user: str, limits: Mapping[str, Any], by: str
) -> list[Limit]:
    """Set limits; None removes one.

    Args:
        user: a person's name, `EACH` or `ALL`.

    Raises:
        InvalidInput: no such limit, or not a whole number.
    """
    checked = {name: _checked(name, value) for name, value in limits.items()}
    if not checked:
        raise InvalidInput("name at least one limit", f"there are: {', '.join(NAMES)}")
    now = clock.now()
    with db.write() as connection:
        for name, value in checked.items():
            if value is None:
                store.drop_limit(connection, workspace, user, name)
            else:
                store.put_limit(connection, Limit(workspace, user, name, value, by, now))
        return store.limits(connection, workspace)


def ask(
    db: Database, clock: Clock, workspace: str, user: str, name: str, new_limit: Any, reason: str
) -> QuotaRequest:
    """Record a request for a higher limit; the workspace's owners answer it.

    Raises:
        InvalidInput: no such limit, or it already allows that much.
    """
    value = _checked(name, new_limit)
    if value is None:
        raise InvalidInput(f"`{name}` needs a number", f"for example `{name}=4`")
    if len(reason) > _REASON_LENGTH:
        raise InvalidInput(f"the reason is longer than {_REASON_LENGTH} characters", "shorten it")
    request = QuotaRequest(uuid.uuid4().hex[:8], workspace, user, name, value, reason, clock.now())
    with db.write() as connection:
        binding = held_by(store.limits(connection, workspace), user)
        tight = [limit for limit in binding if limit.name == name]
        if not tight or value <= min(limit.most for limit in tight):
            now_is = f"is {min(limit.most for limit in tight)}" if tight else "is not limited"
            raise InvalidInput(
                f"quota `{name}` of `{user}` in workspace `{workspace}` {now_is} already",
                "no request is needed",
            )
        store.add_request(connection, request)
    return request


def requests(db: Database, workspace: str) -> Sequence[QuotaRequest]:
    """Newest first."""
    with db.read() as connection:
        return store.list_requests(connection, workspace)


def answer(
    db: Database,
    clock: Clock,
    workspace: str,
    request_id: str,
    by: str,
    *,
    approve: bool,
    words: str = "",
) -> QuotaRequest:
    """Approve a request, which sets that limit for the person, or deny it.

    Raises:
        NotFound: no such request.
        Conflict: it is already answered, or the whole workspace's limit is lower.
    """
    now = clock.now()
    with db.write() as connection:
        request = store.request(connection, workspace, request_id)
        if request is None:
            raise NotFound(
                f"quota request `{request_id}` does not exist in workspace `{workspace}`",
                "list them with `yard quota requests`",
            )
        if request.state != "asked":
            raise Conflict(
                f"quota request `{request_id}` is {request.state} already",
                "list open requests with `yard quota requests`",
            )
        if approve:
            _refuse_beyond_workspace(store.limits(connection, workspace), request)
            store.put_limit(
                connection, Limit(workspace, request.user, request.name, request.most, by, now)
            )
        store.change_request(
            connection,
            request_id,
            state="approved" if approve else "denied",
            answered_by=by,
            answered_at=now,
            answer=words[:_REASON_LENGTH],
        )
        answered = store.request(connection, workspace, request_id)
    assert answered is not None
    return answered


def forget(connection: Connection, workspace: str) -> None:
    """Delete the limits and requests of a deleted workspace."""
    store.forget(connection, workspace)


def _refuse_beyond_workspace(limits: Sequence[Limit], request: QuotaRequest) -> None:
    for limit in limits:
        if (limit.user, limit.name) == (ALL, request.name) and limit.most < request.most:
            raise Conflict(
                f"quota `{request.name}` of the whole workspace `{request.workspace}` is "
                f"{limit.most}, less than the requested {request.most}",
                f"raise it first (`yard quota set {request.name}={request.most}`), or deny the "
                "request",
            )


def _checked(name: str, value: Any) -> int | None:
    if name not in NAMES:
        raise InvalidInput(
            f"there is no quota `{name[:50]}`",
            did_you_mean(name, NAMES),
            at=[name],
        )
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= _MOST:
        raise InvalidInput(
            f"quota `{name}` must be a whole number of 0 or more, not `{str(value)[:50]}`",
            "`none` removes the limit",
            at=[name],
        )
    return value
