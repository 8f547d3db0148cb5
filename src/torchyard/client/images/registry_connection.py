"""A connection to a registry: addresses, redirects, tokens, and who may see the credentials.

Owns: HTTP to one registry and to its token service, through a proxy where one is set.
Leaves: what is asked to registry.py, where credentials come from to credentials.py.
Always: credentials and tokens go to the registry itself, or to a token service of the same owner or
one that the user names, and to nobody else, whatever an answer says; they cross a network by TLS
only, unless the user allows plain HTTP; an answer in memory has a limit.

Source: https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

from torchyard.base import http as base_http
from torchyard.base.errors import (
    Forbidden,
    NotAuthenticated,
    NotFound,
    TorchyardError,
    Unreachable,
)
from torchyard.client.images.credentials import Credentials
from torchyard.shared import server_routes

_TIMEOUT_S, _PROBE_S = 120.0, 10.0
_MOST_REDIRECTS = 5
_MOST_BYTES = 4 << 20
_CHALLENGE = re.compile(r'(?<!\w)(\w{1,64})="([^"]{0,4096})"')
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
_UNPRINTABLE = re.compile(r"[^ -~]")


class Refused(TorchyardError):
    """The registry does not take what it was sent."""

    code = "registry_refused"
    exit_code = 1


@dataclass(frozen=True)
class Access:
    """How a registry may be reached.

    Args:
        credentials: None for nobody.
        token_host: a token service of another owner that may see the credentials.
        is_plain: plain HTTP is allowed; to this machine itself it always is.
        ca_cert: a PEM file of certificates that are trusted beside the system's own.
        variables: the process environment; where proxies are read from.
    """

    credentials: Credentials | None = None
    token_host: str = ""
    is_plain: bool = False
    ca_cert: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Connection:
    """One registry by its host, maybe with a port."""

    def __init__(self, registry: str, access: Access) -> None:
        self._registry = registry
        self._access = access
        self._authorization = ""
        self._timeout_s = _TIMEOUT_S
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}
        host = "registry-1.docker.io" if registry == "docker.io" else registry
        plain = access.is_plain or bool(_LOOPBACK.fullmatch(urlsplit(f"//{host}").hostname or ""))
        self._base = f"https://{host}"
        if plain and not self._speaks_tls(host):
            self._base = f"http://{host}"

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def check(self, name: str) -> None:
        """Try whether the registry answers, and takes the credentials for the repository `name`.

        Raises:
            NotAuthenticated: it does not take them.
            Unreachable: it does not answer.
        """
        answer = self.ask("GET", "/v2/", b"", {}, name)
        if answer.status != 200:
            raise refused(self._registry, answer, "a first question, `/v2/`")

    def absolute(self, location: str) -> str:
        """The address that an answer names.

        Raises:
            Refused: it is not one that may be asked.
        """
        address = urljoin(self._base, location)
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise Refused(
                f"{self._registry} names the address {location[:80]!a}, which is not one",
                "ask those who run the registry",
            )
        if parts.scheme == "http" and self._base.startswith("https:"):
            raise Refused(
                f"{self._registry} asks to go on without TLS at `{parts.hostname}`",
                "ask those who run the registry",
            )
        return address

    def ask(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], name: str
    ) -> Answer:
        """The answer, after a redirect or a login where one is asked for.

        Raises:
            NotAuthenticated: it wants somebody to log in, or somebody else.
            Unreachable: it does not answer.
        """
        address, logins = self.absolute(path), 0
        for _ in range(_MOST_REDIRECTS):
            sent = dict(headers)
            if self._authorization and self._is_this_registry(address):
                sent["Authorization"] = self._authorization
            answer = self._exchange(method, address, body, sent)
            if answer.status == 401 and logins == 0 and self._is_this_registry(address):
                self._log_in(answer, name)
                logins += 1
            elif answer.status in (301, 302, 303, 307, 308) and answer.headers.get("Location"):
                address = self.absolute(urljoin(address, answer.headers["Location"]))
                if answer.status == 303 and method != "HEAD":
                    method, body = "GET", b""
            elif answer.status == 401:
                raise self._not_logged_in()
            else:
                return answer
        raise Refused(
            f"{self._registry} leads in a circle at {path[:80]!a}", "ask those who run the registry"
        )

    def _is_this_registry(self, address: str) -> bool:
        return _origin(address) == _origin(self._base)

    def _speaks_tls(self, host: str) -> bool:
        """Whether plain HTTP is not needed. No credentials are sent to find out."""
        self._timeout_s = _PROBE_S
        try:
            self._exchange("GET", f"https://{host}/v2/", b"", {})
        except Unreachable as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise
            return False
        finally:
            self._timeout_s = _TIMEOUT_S
            self.close()
        return True

    def _log_in(self, answer: Answer, name: str) -> None:
        """Get what the registry wants to see from now on."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        scheme, _, rest = challenge.partition(" ")
        credentials = self._access.credentials
        if scheme.lower() == "basic":
            if credentials is None or not credentials.username:
                raise self._not_logged_in()
            self._authorization = f"Basic {credentials.basic}"
        elif scheme.lower() == "bearer":
            self._authorization = f"Bearer {self._token(dict(_CHALLENGE.findall(rest)), name)}"
        else:
            raise Refused(
                f"{self._registry} wants a login of an unknown kind, {scheme[:40]!a}",
                "Basic and Bearer are supported",
            )

    def _token(self, challenge: Mapping[str, str], name: str) -> str:
        realm = self.absolute(challenge.get("realm", ""))
        service, scope = challenge.get("service", ""), f"repository:{name}:pull,push"
        credentials = self._access.credentials
        if credentials is not None:
            self._refuse_stranger(realm)
        if credentials is not None and credentials.identity_token:
            form = {
                "grant_type": "refresh_token",
                "service": service,
                "scope": scope,
                "client_id": "torchyard",
                "refresh_token": credentials.identity_token,
            }
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._exchange("POST", realm, urlencode(form).encode(), headers)
        else:
            query = {"service": service, "scope": scope}
            divider = "&" if "?" in realm else "?"
            headers = {"Authorization": f"Basic {credentials.basic}"} if credentials else {}
            answer = self._exchange("GET", f"{realm}{divider}{urlencode(query)}", b"", headers)
        if answer.status in (401, 403):
            raise self._not_logged_in()
        body = _json(answer.body)
        token = body.get("token") or body.get("access_token")
        if answer.status != 200 or not isinstance(token, str) or not token.isprintable():
            raise refused(self._registry, answer, "a token")
        return token

    def _refuse_stranger(self, realm: str) -> None:
        """
        Raises:
            Refused: the token service belongs to somebody else, as far as its name tells.
        """
        host = urlsplit(realm).hostname or ""
        registry = urlsplit(self._base).hostname or ""
        parent = registry.partition(".")[2]
        is_near = host == registry or (
            "." in parent and not registry.replace(".", "").isdecimal()
            and (host == parent or host.endswith(f".{parent}"))
        )  # fmt: skip
        if not is_near and host != self._access.token_host:
            raise Refused(
                f"{self._registry} asks for the password to be sent to `{host}`, another host",
                f"if `{host}` is its token service, say `--token-host {host}`; otherwise ask those "
                "who run the registry",
            )

    def _not_logged_in(self) -> NotAuthenticated:
        credentials = self._access.credentials
        who = f"does not accept `{credentials.username or 'the token'}`" if credentials else (
            "wants you to log in"
        )  # fmt: skip
        return NotAuthenticated(
            f"{self._registry} {who}",
            f"log in with `docker login {self._registry}` or `podman login {self._registry}`, or "
            "give `--username NAME --password-stdin`",
        )

    def _exchange(
        self, method: str, address: str, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        parts = urlsplit(address)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        key = (parts.scheme, parts.netloc)
        is_kept = key in self._open
        sent = {"User-Agent": "torchyard", "Content-Length": str(len(body)), **headers}
        if method in ("GET", "HEAD") and not body:
            del sent["Content-Length"]
        while True:
            try:
                connection = self._open.get(key) or self._connect(parts)
                self._open[key] = connection
                connection.request(method, target, body=body or None, headers=sent)
                response = connection.getresponse()
                content = response.read(_MOST_BYTES + 1) if method != "HEAD" else b""
                if len(content) > _MOST_BYTES:
                    raise http.client.HTTPException("the answer is too long")
                response.close()
                return Answer(response.status, response.headers, content)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if (dead := self._open.pop(key, None)) is not None:
                    dead.close()
                # That a kept connection was closed says nothing.
                if is_kept and not isinstance(error, TimeoutError):
                    is_kept = False
                    continue
                raise self._unreachable(parts.netloc, error) from error

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        if parts.scheme == "http":
            return base_http.opened(parts, self._timeout_s)
        context = ssl.create_default_context()
        if self._access.ca_cert:
            base_http.trust(context, self._access.ca_cert)
        return server_routes.opened(parts, self._timeout_s, context, self._access.variables)

    def _unreachable(self, netloc: str, error: Exception) -> Unreachable:
        reason = getattr(error, "verify_message", "") or str(error) or type(error).__name__
        return Unreachable(
            f"the registry `{netloc}` does not answer ({clean(reason)})",
            "check its name and the network; a registry without TLS needs `--plain-http`, one with "
            "a certificate of your own `--ca-cert FILE`",
        )


def _origin(address: str) -> tuple[str, str, int]:
    parts = urlsplit(address)
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def refused(registry: str, answer: Answer, request: str) -> TorchyardError:
    """The error for an answer that says no, with the registry's own reason."""
    errors = _json(answer.body).get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    reason = first.get("message") or first.get("code") if isinstance(first, dict) else ""
    message = f"{registry} refuses {request}: {clean(str(reason or f'status {answer.status}'))}"
    if answer.status in (401, 403):
        return Forbidden(message, "ask its owner for the permission to push there")
    if answer.status == 404:
        return NotFound(message, "check the name; some registries need it to be created first")
    return Refused(message, "see the registry's documentation for what it takes")


def clean(text: str) -> str:
    """A registry's words for a terminal: one line, nothing that could control it."""
    return _UNPRINTABLE.sub("?", " ".join(text.split()))[:200]


def _json(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
