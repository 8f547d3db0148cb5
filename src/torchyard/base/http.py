"""HTTP to a torchyard server, with nothing but the standard library.

Owns: one connection, its token, JSON in and out, streamed bodies.
Leaves: which requests to send to client/.
Always: a status of 400 and above is raised as the error in the response; a server that says it is
busy is asked again for a minute.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import IOBase
from typing import IO, Any, Union
from urllib.parse import SplitResult, urlencode, urlsplit

from torchyard.base import versions
from torchyard.base.errors import InvalidInput, TorchyardError, Unreachable, from_answer

_BUSY_PATIENCE_S = 60.0
_TURNED_AWAY_DELAY_S = 1.0
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h.
_WRONG_NAME = (62, 64)
# Python before 3.13 has to be told: a certificate that is trusted needs no authority above.
_PARTIAL_CHAIN = 0x80000
Body = Union[bytes, IO[bytes], Iterable[bytes]]


class Transport:
    """One keep-alive connection; not for use by several threads at once.

    Args:
        ca_cert: a PEM file with certificates that are trusted beside the system's own.
        elsewhere: asked for another server of the same home when that of the URL does not answer;
            empty when there is none.
        files_socket: where the server takes and gives open files, if it is on this machine.
    """

    def __init__(
        self,
        url: str,
        token: str,
        timeout_s: float = 60.0,
        ca_cert: str = "",
        elsewhere: Callable[[str], str] | None = None,
        files_socket: str = "",
    ) -> None:
        self._move(url)
        self.files_socket = files_socket
        if not (token.isascii() and token.isprintable()):
            raise InvalidInput(
                "the token for the server is not a token",
                "a token is one word that begins with `yard_p_`",
            )
        self.token = token
        self._timeout_s = timeout_s
        self._ca_cert = ca_cert
        self._elsewhere = elsewhere
        self._connection: http.client.HTTPConnection | None = None

    @property
    def ca_cert(self) -> str:
        """The PEM file of certificates that are trusted beside the system's own; may be empty."""
        return self._ca_cert

    def twin(self, timeout_s: float | None = None) -> Transport:
        """Another connection to the same server, for another thread.

        Args:
            timeout_s: as this connection's when None.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return Transport(
            self.url, self.token, timeout_s, self._ca_cert, self._elsewhere, self.files_socket
        )

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None) -> Any:
        return self.call("POST", path, body)

    def put(self, path: str, body: Any = None) -> Any:
        return self.call("PUT", path, body)

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self.call("DELETE", path, query=query)

    def call(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        """Send `body` as JSON and return the answer's JSON, None when the answer is empty.

        Raises:
            TorchyardError: what the server answered.
            Unreachable: no server answered.
        """
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        answer = self._ask(method, path, query, content, headers)
        return self._read(answer)

    def send(
        self,
        method: str,
        path: str,
        body: Body,
        size_bytes: int | None = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/octet-stream",
    ) -> Any:
        """Send raw bytes; `size_bytes` None sends them in chunks. Returns the answer's JSON."""
        headers = {"Content-Type": content_type}
        if size_bytes is not None:
            headers["Content-Length"] = str(size_bytes)
        answer = self._ask(method, path, query, body, headers, retry=isinstance(body, bytes))
        return self._read(answer)

    @contextmanager
    def stream(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Open an answer to read bit by bit; closed at the end of the block.

        A `body` is sent as JSON by POST; without one it is a GET, which may have `headers`.
        """
        if body is None:
            answer = self._ask("GET", path, query, b"", headers or {})
        else:
            content = json.dumps(body).encode()
            answer = self._ask("POST", path, query, content, {"Content-Type": "application/json"})
        try:
            yield answer
        finally:
            self.limit_silence(self._timeout_s)
            is_complete = answer.isclosed()
            answer.close()
            if not is_complete:  # what is left unread would be taken for the next answer
                self.close()

    def limit_silence(self, seconds: float) -> None:
        """How long the open stream may be silent from now on; at most the transport's timeout."""
        if self._connection is not None and self._connection.sock is not None:
            # 0 would make the socket answer at once, without a wait.
            self._connection.sock.settimeout(max(0.001, min(seconds, self._timeout_s)))

    def limit_answers(self, seconds: float) -> None:
        """How long the server may take from now on to answer a request."""
        self._timeout_s = seconds
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Body,
        headers: Mapping[str, str],
        retry: bool = True,
    ) -> http.client.HTTPResponse:
        """The answer; a server that is busy and did nothing is asked again."""
        if "//" in path or path.endswith("/"):
            # The server would take it for the list that it stands in.
            raise InvalidInput(
                "a name, or a part of a path, is empty", "name one thing, or list all of them"
            )
        rewind = _rewinding(body)
        until = time.monotonic() + _BUSY_PATIENCE_S
        while True:
            refusal: TorchyardError
            try:
                answer = self._ask_once(method, path, query, body, headers, retry)
                if answer.status < 400:
                    return answer
                delay_s = _retry_after_s(answer)
                refusal = self._error(answer)
            except _TurnedAway as error:
                delay_s, refusal = _TURNED_AWAY_DELAY_S, self._unreachable(error)
            if delay_s is None or rewind is None or time.monotonic() + delay_s > until:
                raise refusal
            self.close()
            rewind()
            import random  # what every command would wait for

            # Those who were refused together do not all come back together.
            time.sleep(delay_s * random.uniform(0.5, 1.0))

    def _ask_once(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Body,
        headers: Mapping[str, str],
        retry: bool,
    ) -> http.client.HTTPResponse:
        parameters = {key: value for key, value in (query or {}).items() if value is not None}
        target = (
            self._parts.path
            + path
            + ("?" + urlencode(parameters, doseq=True) if parameters else "")
        )
        all_headers = {
            "Authorization": f"Bearer {self.token}",
            "User-Agent": versions.USER_AGENT,
            **headers,
        }
        fresh = self._connection is None
        try:
            return self._exchange(method, target, body, all_headers)
        except _TurnedAway:
            self.close()
            raise
        except (http.client.HTTPException, OSError) as error:
            self.close()
            # That the server closed a kept connection means nothing. A fresh connection that fails
            # does, and so does a time-out: a slow server is at work on the request.
            is_news = fresh or isinstance(error, TimeoutError)
            moved = self._go_elsewhere()
            # One that was interrupted may have acted on what it was asked.
            unheard = isinstance(error, ConnectionRefusedError) or method != "POST"
            if not retry or (is_news and not (moved and unheard)):
                raise self._unreachable(error) from error
            try:
                return self._exchange(method, target, body, all_headers)
            except _TurnedAway:
                self.close()
                raise
            except (http.client.HTTPException, OSError) as second:
                self.close()
                raise self._unreachable(second) from second

    def _read(self, answer: http.client.HTTPResponse) -> Any:
        text = answer.read()
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise self._foreign(answer.status) from error

    def _error(self, answer: http.client.HTTPResponse) -> TorchyardError:
        body = _json_object(answer.read())
        if body is not None and isinstance(body.get("error"), Mapping):
            return from_answer(answer.status, body["error"])
        if answer.status < 500:
            return self._foreign(answer.status)
        return Unreachable(
            f"`{self.url}` answers {answer.status} {answer.reason}",
            "it may be a proxy's word, or the server's: see its log, `yard server logs`",
        )

    def _foreign(self, http_status: int) -> Unreachable:
        return Unreachable(
            f"what answers at `{self.url}` is not a torchyard server (HTTP status {http_status})",
            "check the address: TORCHYARD_URL counts before `yard login`",
            code="foreign_server",
        )

    def _move(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            self._parts = urlsplit(self.url)
            _ = self._parts.port  # it is read only here
        except ValueError as error:
            raise InvalidInput(
                f"`{url}` is not a server's address ({error})", "write `https://host:8766`"
            ) from error

    def _go_elsewhere(self) -> bool:
        """Whether later requests go to another server."""
        url = "" if self._elsewhere is None else self._elsewhere(self.url)
        if not url:
            return False
        self._move(url)
        self.files_socket = ""
        return True

    def _exchange(
        self, method: str, target: str, body: Body, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = opened(self._parts, self._timeout_s, self._ca_cert)
            try:
                self._connection.connect()
            except (ConnectionResetError, ssl.SSLEOFError) as error:
                # A server with too many connections ends one before its TLS handshake.
                raise _TurnedAway(*error.args) from error
        self._connection.request(method, target, body=body, headers=dict(headers))
        return self._connection.getresponse()

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, ssl.SSLCertVerificationError):
            if error.verify_code in _WRONG_NAME:
                return self._misnamed()
            return Unreachable(
                f"the certificate of `{self.url}` is not trusted ({error.verify_message})",
                "give the certificate of who signed it: `yard login URL --ca-cert FILE`, or "
                "TORCHYARD_CA_CERT",
                code="untrusted",
            )
        return Unreachable(
            f"no torchyard server answers at `{self.url}` ({error or type(error).__name__})",
            "check the address, and that the server runs there; on this machine see "
            "`yard server status`",
        )

    def _misnamed(self) -> Unreachable:
        """A certificate that is trusted, and for other addresses than this one."""
        names = _names_of_certificate(self._parts, self._timeout_s, self._ca_cert)
        port = f":{self._parts.port}" if self._parts.port else ""
        example = f"https://{names[0]}{port}" if names else "https://host:8766"
        return Unreachable(
            f"the certificate of `{self.url}` is not for `{self._parts.hostname}`; "
            f"it is for {', '.join(names) or 'no address'}",
            f"use an address that it is for, such as `{example}`",
            code="untrusted",
        )


class _TurnedAway(OSError):
    """The server ended the connection before a request was sent."""


def _retry_after_s(answer: http.client.HTTPResponse) -> float | None:
    """When to ask again what the server had no room for; None for any other answer."""
    text = answer.headers.get("Retry-After", "")
    if answer.status != 503 or not text.isdecimal():
        return None
    return float(text[:4])


def _rewinding(body: Body) -> Callable[[], object] | None:
    """What makes the body ready to be sent again; None if it can't be."""
    if isinstance(body, bytes):
        return lambda: None
    if isinstance(body, IOBase) and body.seekable():
        return partial(body.seek, body.tell())
    return None


def opened(parts: SplitResult, timeout_s: float, ca_cert: str = "") -> http.client.HTTPConnection:
    """A connection to the host of a URL, not connected yet.

    Args:
        ca_cert: as of `Transport`.
    """
    host = parts.hostname or "127.0.0.1"
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, parts.port or 80, timeout=timeout_s)
    context = _context(ca_cert)
    return http.client.HTTPSConnection(host, parts.port or 443, timeout=timeout_s, context=context)


def _context(ca_cert: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_cert:
        trust(context, ca_cert)
    return context


def _names_of_certificate(parts: SplitResult, timeout_s: float, ca_cert: str) -> list[str]:
    """The names and addresses that a server's certificate is for, those of its own machine last."""
    context = _context(ca_cert)
    context.check_hostname = False
    address = (parts.hostname or "", parts.port or 443)
    try:
        with socket.create_connection(address, timeout_s) as connection:
            with context.wrap_socket(connection) as secure:
                certificate = secure.getpeercert() or {}
    except OSError:
        return []
    import ipaddress  # rarely needed

    names = []
    entries: Any = certificate.get("subjectAltName", ())
    for kind, name in entries:
        if kind == "IP Address":
            ip = ipaddress.ip_address(name)
            names.append((ip.is_loopback, f"[{ip}]" if ip.version == 6 else str(ip)))
        else:
            names.append((name == "localhost", name))
    return [name for _, name in sorted(names, key=lambda each: each[0])]


def trust(context: ssl.SSLContext, ca_cert: str) -> None:
    context.verify_flags |= _PARTIAL_CHAIN
    try:
        context.load_verify_locations(ca_cert)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"`{ca_cert}` holds no certificates that could be trusted ({error.strerror or error})",
            "give a PEM file",
        ) from error


def _json_object(text: bytes) -> Mapping[str, Any] | None:
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
