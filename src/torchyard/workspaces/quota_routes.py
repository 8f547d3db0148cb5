"""HTTP: quotas, and requests for more."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from typing_extensions import TypedDict

from torchyard.base import fields
from torchyard.base.clock import to_text
from torchyard.base.dependencies import ClockOf, DatabaseOf
from torchyard.base.errors import InvalidSpec
from torchyard.workspaces import audit, people, quotas
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.hooks import HooksOf
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import ALL, EACH, Identity, Limit, QuotaRequest, Role

router = APIRouter(prefix="/v1/workspaces/{workspace}", tags=["quotas"], route_class=GuardedRoute)


class QuotaLimit(TypedDict):
    """`user` is a name, `*` for each person, empty for all together.

    `used` is what is in use now; of a limit on each person, what the one who asks uses.
    """

    user: str
    name: str
    most: int
    used: int | None
    set_by: str
    set_at: str


class QuotaLimits(TypedDict):
    """`names` says in words what each limit counts."""

    value: list[QuotaLimit]
    names: dict[str, str]


class QuotaRequestAnswer(TypedDict):
    """`state` is asked, approved or denied."""

    id: str
    workspace: str
    user: str
    name: str
    most: int
    reason: str
    asked_at: str
    state: str
    answered_by: str
    answered_at: str | None
    answer: str


class NewQuotaRequest(QuotaRequestAnswer):
    """`owners` can answer it."""

    owners: list[str]


class QuotaRequests(TypedDict):
    value: list[QuotaRequestAnswer]


@router.get("/quotas")
@needs(Permission.READ)
def list_limits(db: DatabaseOf, hooks: HooksOf, workspace: str, identity: Person) -> QuotaLimits:
    """All limits for contributors and owners, for others those that apply to them; with use."""
    with db.read() as connection:
        limits = quotas.limits(connection, workspace)
    if not _sees_all(identity):
        limits = quotas.held_by(limits, identity.user)
    in_use = {
        user: hooks.quota_use(workspace, user)
        for user in {_counted(limit, identity) for limit in limits}
    }
    return {
        "value": [
            _limit(limit, in_use[_counted(limit, identity)].get(limit.name)) for limit in limits
        ],
        "names": quotas.NAMES,
    }


@router.put("/quotas")
@needs(Permission.PEOPLE)
def set_limits(
    db: DatabaseOf,
    clock: ClockOf,
    workspace: str,
    request: Request,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    """`user`: a name, `*` for each person, empty for all together; `limits`: null removes one."""
    body = _mapping(document, ("user", "limits"))
    user, new_limits = body.get("user") or ALL, body.get("limits")
    if not isinstance(user, str) or not isinstance(new_limits, dict):
        raise InvalidSpec(
            "`limits` must be a mapping of names to numbers",
            "for example `{nodes: 4}`",
            at=["limits"],
        )
    if user not in (ALL, EACH):
        people.get(db, user)
    audit.note_about(request.scope, limits=new_limits, of=user)
    limits = quotas.change(db, clock, workspace, user, new_limits, identity.user)
    return {"value": [_limit(limit, None) for limit in limits if limit.user == user]}


@router.get("/quota-requests")
@needs(Permission.READ)
def list_requests(db: DatabaseOf, workspace: str, identity: Person) -> QuotaRequests:
    """All requests for contributors and owners, for others their own; newest first."""
    visible = quotas.requests(db, workspace)
    requests = [
        request for request in visible if _sees_all(identity) or request.user == identity.user
    ]
    return {"value": [_request(request) for request in requests]}


@router.post("/quota-requests", status_code=201)
@needs(Permission.WRITE)
def ask(
    db: DatabaseOf,
    clock: ClockOf,
    workspace: str,
    request: Request,
    identity: Person,
    document: Annotated[Any, Body()],
) -> NewQuotaRequest:
    body = _mapping(document, ("name", "most", "reason"))
    name, reason = fields.text(body, "name"), fields.text(body, "reason")
    audit.note_about(request.scope, quota=name[:50], most=body.get("most"))
    quota_request = quotas.ask(db, clock, workspace, identity.user, name, body.get("most"), reason)
    owners = people.owners(db, workspace)
    return {**_request(quota_request), "owners": owners}


@router.post("/quota-requests/{request_id}/approve")
@needs(Permission.PEOPLE)
def approve(
    db: DatabaseOf,
    clock: ClockOf,
    workspace: str,
    request_id: str,
    request: Request,
    identity: Person,
    answer: Annotated[str, Body(embed=True)] = "",
) -> QuotaRequestAnswer:
    answered = quotas.answer(
        db, clock, workspace, request_id, identity.user, approve=True, words=answer
    )
    audit.note_about(request.scope, quota=answered.name, most=answered.most, person=answered.user)
    return _request(answered)


@router.post("/quota-requests/{request_id}/deny")
@needs(Permission.PEOPLE)
def deny(
    db: DatabaseOf,
    clock: ClockOf,
    workspace: str,
    request_id: str,
    identity: Person,
    answer: Annotated[str, Body(embed=True)] = "",
) -> QuotaRequestAnswer:
    answered = quotas.answer(
        db, clock, workspace, request_id, identity.user, approve=False, words=answer
    )
    return _request(answered)


def _sees_all(identity: Identity) -> bool:
    return identity.role is not None and identity.role.rank >= Role.CONTRIBUTOR.rank


def _counted(limit: Limit, identity: Identity) -> str:
    """Whose use to show with the limit: for a limit on each person, the caller's."""
    return identity.user if limit.user == EACH else limit.user


def _mapping(document: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    body = fields.mapping(document, "the document")
    fields.refuse_unknown(body, keys)
    return body


def _limit(limit: Limit, used: int | None) -> QuotaLimit:
    return {
        "user": limit.user,
        "name": limit.name,
        "most": limit.most,
        "used": used,
        "set_by": limit.set_by,
        "set_at": to_text(limit.set_at),
    }


def _request(request: QuotaRequest) -> QuotaRequestAnswer:
    return {
        "id": request.id,
        "workspace": request.workspace,
        "user": request.user,
        "name": request.name,
        "most": request.most,
        "reason": request.reason,
        "asked_at": to_text(request.asked_at),
        "state": request.state,
        "answered_by": request.answered_by,
        "answered_at": None if request.answered_at is None else to_text(request.answered_at),
        "answer": request.answer,
    }
