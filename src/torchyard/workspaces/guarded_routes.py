"""Routes that declare their permission and size limit, enforced before the body is read.

    router = APIRouter(prefix="/v1/workspaces/{workspace}/jobs", route_class=GuardedRoute)

    @router.post("/{name}/cancel")
    @needs(Permission.JOB)
    def cancel(services: ServicesOf, workspace: str, name: str, identity: Person) -> ...

Owns: the declaration; the order permission, body, endpoint; ending a request that takes long once
it would be refused.
Leaves: authentication and authorization to access.py, the permissions to permissions.py, how often
a long request is checked to base/long_connections.py.
Always: a route whose endpoint declares nothing can't be made; a body that is streamed, in either
direction, ends with the right to it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, StreamingResponse
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import is_typeddict

from torchyard.base import long_connections
from torchyard.base.bodies import request_bodies
from torchyard.base.bodies.live_streams import LiveStream
from torchyard.base.bodies.request_bodies import UNLIMITED as UNLIMITED
from torchyard.base.errors import TorchyardError
from torchyard.workspaces import audit
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity

Handle = Callable[[Request], Coroutine[Any, Any, Response]]

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_DECLARED = "torchyard_needs"
_LAST_WORDS_LIMIT_S = 5.0
_LIMITS = {
    Permission.OPEN: request_bodies.STRANGERS_LIMIT_BYTES,
    Permission.WORKER: request_bodies.WORKERS_LIMIT_BYTES,
}
IDENTITY = "torchyard.identity"
"""Where a request's scope holds the authenticated identity."""


class Enforcer(Protocol):
    """`app.state.access`; see access.py."""

    def enforce(self, request: Request, permission: Permission) -> Identity: ...

    def known(self, request: Request, permission: Permission) -> Identity | None: ...

    def refusal_now(self, request: Request) -> TorchyardError | None: ...


@dataclass(frozen=True)
class Needs:
    """What one endpoint declares.

    Args:
        signed: a request may carry a signature instead of a token, so the endpoint itself calls
            `Access.granted` for the permission.
    """

    permission: Permission
    body_limit_bytes: int
    signed: bool = False


def needs(
    permission: Permission, *, body_limit_bytes: int | None = None, signed: bool = False
) -> Callable[[_Endpoint], _Endpoint]:
    """Declare what a request to this endpoint needs.

    Args:
        body_limit_bytes: 4 MiB by default, 16 MiB for workers, 64 KiB for routes that need no
            token. With `UNLIMITED` the endpoint reads the body itself, as a stream.
        signed: see `Needs`.
    """
    if body_limit_bytes is None:
        body_limit_bytes = _LIMITS.get(permission, request_bodies.DEFAULT_LIMIT_BYTES)
    declaration = Needs(permission, body_limit_bytes, signed)

    def declare(endpoint: _Endpoint) -> _Endpoint:
        other = declared_needs(endpoint)
        assert other in (None, declaration), f"{endpoint} already declares {other}"
        setattr(endpoint, _DECLARED, declaration)
        return endpoint

    return declare


def declared_needs(endpoint: Callable[..., Any]) -> Needs | None:
    return getattr(endpoint, _DECLARED, None)


def _answer_of(endpoint: Callable[..., Any]) -> type | None:
    """The `TypedDict` that it returns; evaluates no other annotation, which takes thirty times."""
    function = inspect.unwrap(endpoint.func if isinstance(endpoint, partial) else endpoint)
    answer = function.__annotations__.get("return")
    if isinstance(answer, str):
        answer = eval(answer, function.__globals__)
    return answer if is_typeddict(answer) else None


class GuardedRoute(APIRoute):
    """A route that enforces what its endpoint declares.

    `answer` is the `TypedDict` that the endpoint returns, None where it returns anything else. mypy
    has checked it, so FastAPI does not check each answer again.

    Raises:
        AssertionError: the endpoint declares nothing.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.needs = self._needs_of(path, endpoint)
        self.answer = _answer_of(endpoint)
        if self.answer is not None:
            options["response_model"] = dict[str, Any]
        super().__init__(path, endpoint, **options)

    def _needs_of(self, path: str, endpoint: Callable[..., Any]) -> Needs | None:
        declaration = declared_needs(endpoint)
        assert declaration is not None, (
            f"route `{path}` ({endpoint.__module__}.{endpoint.__name__}) declares no permission: "
            "add `@needs(Permission…)` below its path"
        )
        return declaration

    def get_route_handler(self) -> Handle:
        return self.guard(super().get_route_handler())

    def guard(self, handle: Handle) -> Handle:
        """The handler, reached only by requests that meet the needs, with their body read."""
        declaration = self.needs
        assert declaration is not None
        permission, limit_bytes = declaration.permission, declaration.body_limit_bytes
        is_enforced = permission is not Permission.OPEN and not declaration.signed

        async def guarded(request: Request) -> Response:
            response = await answered(request)
            if permission is Permission.OPEN or not isinstance(
                response, (StreamingResponse, FileResponse)
            ):
                return response
            return _LongResponse(response, request)

        async def answered(request: Request) -> Response:
            audit.note_permission(request.scope, permission)
            if is_enforced:
                access: Enforcer = request.app.state.access
                identity = access.known(request, permission)
                if identity is None:
                    identity = await run_in_threadpool(access.enforce, request, permission)
                request.scope[IDENTITY] = identity
            # Only the endpoint knows whether a signature is right: it reads a body itself.
            is_open_read = permission is Permission.OPEN and request.method in ("GET", "HEAD")
            if limit_bytes == UNLIMITED and permission is not Permission.OPEN:
                request = Request(request.scope, _receiving_while_allowed(request))
            if declaration.signed or is_open_read:
                return await handle(request)
            if not request_bodies.has_body(request, limit_bytes):
                return await handle(request)
            async with request_bodies.with_body(request, limit_bytes) as guarded_request:
                return await handle(guarded_request)

        return guarded


class _LongResponse(Response):
    """Another response, sent as long as its request would be let in.

    Who sees where a live stream ends need not be told by a broken connection; others do.
    """

    def __init__(self, response: StreamingResponse | FileResponse, request: Request) -> None:
        self._response = response
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = self._response(scope, receive, send)
        if await long_connections.serve_while(self._is_allowed, sending):
            return
        if isinstance(self._response, LiveStream):
            body = self._response.last_words
            end = {"type": "http.response.body", "body": body, "more_body": False}
            with suppress(asyncio.TimeoutError):  # of one who reads nothing
                await asyncio.wait_for(send(end), _LAST_WORDS_LIMIT_S)

    async def _is_allowed(self) -> bool:
        return await run_in_threadpool(self._may_go_on)

    def _may_go_on(self) -> bool:
        if isinstance(self._response, LiveStream) and not self._response.may_go_on():
            return False
        access: Enforcer = self._request.app.state.access
        return access.refusal_now(self._request) is None


def _receiving_while_allowed(request: Request) -> Receive:
    """What a request sends; raises what it is refused with once it would no longer be let in."""
    loop = asyncio.get_running_loop()
    asked_at_s = loop.time()

    async def receive() -> Message:
        nonlocal asked_at_s
        message = await request.receive()
        is_due = loop.time() - asked_at_s >= long_connections.CHECK_EVERY_S
        if message["type"] == "http.request" and is_due:
            asked_at_s = loop.time()
            access: Enforcer = request.app.state.access
            refusal = await run_in_threadpool(access.refusal_now, request)
            if refusal is not None:
                raise refusal
        return message

    return receive


def permission_of(request: Request) -> Permission:
    """What the route of the request declares."""
    route: GuardedRoute = request.scope["route"]
    assert route.needs is not None
    return route.needs.permission


def identity_of(request: Request) -> Identity:
    """The identity that the request's route has authenticated."""
    identity: Identity = request.scope[IDENTITY]
    return identity


async def _identity(request: Request) -> Identity:
    return identity_of(request)


Person = Annotated[Identity, Depends(_identity)]
