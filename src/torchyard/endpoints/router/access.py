"""Who may use an endpoint.

Owns: checking keys and tokens, asking the server about tokens of people, remembering its answers.
Leaves: keys and secrets to the table, permissions to the server.
Always: keys are compared by their hashes, in a time that doesn't depend on them; a refusal never
says what was wrong.

Source: RFC 7519 (JSON Web Token), RFC 7515 (HS256).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import http.client
import json
import ssl
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlsplit

from torchyard.endpoints.router import errors
from torchyard.endpoints.router.errors import Refusal
from torchyard.endpoints.router.table import Auth

_LONGEST = 16 << 10
_REMEMBERED_S = 60.0
_REFUSAL_REMEMBERED_S = 5.0
_MOST_REMEMBERED = 10_000
_MOST_ASKED = 256
_ASK_S = 10.0


def check_key(auth: Auth, authorization: bytes) -> bool:
    """Whether the header holds one of the keys."""
    digest = hashlib.sha256(_bearer(authorization)).digest()
    is_good = False
    for key in auth.keys:
        is_good |= hmac.compare_digest(key, digest)
    return is_good


def check_token(auth: Auth, authorization: bytes, now: float) -> bool:
    """Whether the header holds a token that the endpoint's secret signed and that is in force.

    Args:
        now: Unix time.
    """
    parts = _bearer(authorization).split(b".")
    if len(parts) != 3 or not auth.token_secret:
        return False
    signed = parts[0] + b"." + parts[1]
    signature = hmac.new(auth.token_secret, signed, hashlib.sha256).digest()
    try:
        if not hmac.compare_digest(_decoded(parts[2]), signature):
            return False
        header, claims = json.loads(_decoded(parts[0])), json.loads(_decoded(parts[1]))
    except (ValueError, RecursionError, binascii.Error):
        return False
    if not isinstance(header, dict) or not isinstance(claims, dict):
        return False
    ends_at, begins_at = claims.get("exp"), claims.get("nbf", 0)
    for value in (ends_at, begins_at):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
    assert ends_at is not None
    return bool(header.get("alg") == "HS256" and begins_at <= now < ends_at)


class Permissions:
    """What the server says of people's tokens."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="access")
        self._remembered: OrderedDict[bytes, tuple[float, Refusal | None]] = OrderedDict()
        self._asked: dict[bytes, list[Callable[[Refusal | None], None]]] = {}

    def ask(
        self,
        server: str,
        server_ca: str,
        key: str,
        authorization: bytes,
        answer: Callable[[Refusal | None], None],
    ) -> None:
        """Call `answer` with None if the caller may use the endpoint, at once or later."""
        if not _bearer(authorization):
            answer(errors.UNAUTHORIZED)
            return
        identity = hashlib.sha256(b"%b\n%b" % (key.encode(), authorization)).digest()
        remembered = self._remembered.get(identity)
        if remembered is not None and remembered[0] > self._loop.time():
            answer(remembered[1])
            return
        waiting = self._asked.get(identity)
        if waiting is not None:
            waiting.append(answer)
        elif len(self._asked) >= _MOST_ASKED:
            answer(errors.NO_SERVER)
        else:
            self._asked[identity] = [answer]
            asking = self._loop.run_in_executor(
                self._pool, _ask, server, server_ca, key, authorization
            )
            asking.add_done_callback(lambda done: self._remember_answer(identity, done))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _remember_answer(self, identity: bytes, done: asyncio.Future[int]) -> None:
        status = 0 if done.cancelled() or done.exception() is not None else done.result()
        refusal: Refusal | None = errors.NO_SERVER
        kept_s = 0.0
        if 200 <= status < 300:
            refusal, kept_s = None, _REMEMBERED_S
        elif status in (401, 403, 404):
            refusal = errors.UNAUTHORIZED if status == 401 else errors.FORBIDDEN
            kept_s = _REFUSAL_REMEMBERED_S
        if kept_s:
            self._remembered[identity] = (self._loop.time() + kept_s, refusal)
            self._remembered.move_to_end(identity)
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        for answer in self._asked.pop(identity, ()):
            answer(refusal)


def _ask(server: str, server_ca: str, key: str, authorization: bytes) -> int:
    """The status of the server's answer.

    Raises:
        OSError: it does not answer.
    """
    parts = urlsplit(server)
    workspace, _, name = key.partition("/")
    top = f"{parts.path.rstrip('/')}/v1/workspaces/{quote(workspace)}"
    path = f"{top}/online-endpoints/{quote(name)}"
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=server_ca or None)
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=_ASK_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_ASK_S)
    try:
        headers = {"Authorization": authorization.decode("latin-1")}
        connection.request("GET", f"{path}/access", headers=headers)
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def passes(auth: Auth, authorization: bytes, now: float) -> bool:
    """Whether a key or a token of the endpoint is good; `aad_token` is the server's to check."""
    if auth.mode == "key":
        return check_key(auth, authorization)
    return check_token(auth, authorization, now)


def _bearer(authorization: bytes) -> bytes:
    """The header's key or token; empty when it holds none."""
    if len(authorization) > _LONGEST or authorization[:7].lower() != b"bearer ":
        return b""
    return authorization[7:].strip()


def _decoded(part: bytes) -> bytes:
    return base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
