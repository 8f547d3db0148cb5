"""The head of a request: what is in it for the router, and what the instance gets of it.

Owns: which headers pass on, framing that can be read in one way alone, request ids, addresses.
Leaves: parsing to httptools, who may pass to access.py.
Always: what an instance reads was written here, from parsed values: its framing, its line ends and
its connection never come from a client.

Source: RFC 9112, sections 6 and 11.2 (request smuggling); RFC 9110, section 7.6.1 (headers of one
connection).
"""

from __future__ import annotations

import re
import uuid

OF_CONNECTION = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate",
        b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect",
        b"content-length",
    )
)  # fmt: skip
"""Headers of one connection, and a body's framing: never passed on as they came."""
# The key is the router's to check, and nobody else's to read.
_FOR_ROUTER = frozenset((b"authorization", b"x-ms-request-id"))
_IDENTITY = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}\Z")
_LENGTH = re.compile(rb"[0-9]{1,18}\Z")
_TARGET = re.compile(rb"[\x21-\x7e]{1,65536}\Z")
_PREFIX = b"/endpoints/"
_SPECIAL = OF_CONNECTION | _FOR_ROUTER | {
    b"azureml-model-deployment", b"x-ms-client-request-id", b"host",
}  # fmt: skip


class BadHead(ValueError):
    """The head can be read in more ways than one, or in none."""


class RequestHead:
    """
    Attributes:
        method: in upper case.
        key: `<workspace>/<name>` of the endpoint; empty when the address has none.
        path: what the instance is asked for, with its query.
        length: of the body; None when it is chunked.
        upgrade: the protocol that the client wants; empty when none that passes.
    """

    def __init__(self) -> None:
        self.url = b""
        self.method = b""
        self.key = ""
        self.path = b"/"
        self.length: int | None = 0
        self.authorization = b""
        self.deployment = b""
        self.request_id = b""
        self.client_request_id = b""
        self.upgrade = b""
        self.expects_continue = False
        self._lines: list[tuple[bytes, bytes]] = []
        self._special: dict[bytes, bytes] = {}

    @property
    def is_preflight(self) -> bool:
        """Whether a browser asks if a page may send a request to another origin."""
        return (
            self.method == b"OPTIONS"
            and self.length == 0
            and bool(self.header(b"origin"))
            and bool(self.header(b"access-control-request-method"))
        )

    def add(self, name: bytes, value: bytes) -> None:
        """
        Raises:
            BadHead: a header is there twice that may be there once.
        """
        name = name.lower()
        if name == b"cookie":
            return  # of a browser, for whatever else there is at this host
        if name in _SPECIAL:
            special = self._special
            if name in special:
                if name != b"connection":
                    raise BadHead("a header is repeated")
                value = special[name] + b"," + value
            special[name] = value = value.strip(b" \t")
            if name in OF_CONNECTION or name in _FOR_ROUTER:
                return
        self._lines.append((name, value))

    def end(self, method: bytes, version: str) -> None:
        """All headers have come.

        Raises:
            BadHead: see there.
        """
        self.method = method
        special = self._special
        if not _TARGET.match(self.url):
            raise BadHead("the address")
        if version != "1.1" and version != "1.0":
            raise BadHead("the version")
        if version == "1.1" and b"host" not in special:
            raise BadHead("no host")
        self._read_framing(special, version)
        self._read_address()
        self.authorization = special.get(b"authorization", b"")
        self.deployment = special.get(b"azureml-model-deployment", b"")
        identity = special.get(b"x-ms-request-id", b"")
        self.request_id = identity if _IDENTITY.match(identity) else str(uuid.uuid4()).encode()
        identity = special.get(b"x-ms-client-request-id", b"")
        if identity and _IDENTITY.match(identity):
            self.client_request_id = identity
        if b"expect" in special:
            if special[b"expect"].lower() != b"100-continue":
                raise BadHead("what is expected")
            self.expects_continue = version == "1.1"
        if b"connection" in special:
            self._read_connection(special)

    def for_instance(self) -> bytes:
        """Request line and headers, but for the body's framing.

        Raises:
            BadHead: a value would end its line.
        """
        lines = [b"%b: %b\r\n" % line for line in self._lines]
        lines.append(b"x-ms-request-id: %b\r\n" % self.request_id)
        head = b"%b %b HTTP/1.1\r\n%b" % (self.method, self.path, b"".join(lines))
        if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1:
            raise BadHead("a line in a value")
        return head

    def header(self, name: bytes) -> bytes:
        """One that passes on; empty when it is not there."""
        return next((value for key, value in self._lines if key == name), b"")

    def _read_framing(self, special: dict[bytes, bytes], version: str) -> None:
        length = special.get(b"content-length")
        coding = special.get(b"transfer-encoding")
        if coding is not None:
            if length is not None or coding.lower() != b"chunked" or version == "1.0":
                raise BadHead("the body's framing")
            self.length = None
        elif length is not None:
            if not _LENGTH.match(length):
                raise BadHead("the body's length")
            self.length = int(length)

    def _read_address(self) -> None:
        url = self.url
        if not url.startswith(b"/"):
            # An absolute address, as proxies get it.
            scheme, mark, rest = url.partition(b"://")
            if not mark or scheme.lower() not in (b"http", b"https"):
                return
            url = b"/" + rest.partition(b"/")[2]
        if not url.startswith(_PREFIX):
            return
        path, mark, query = url.partition(b"?")
        parts = path.split(b"#", 1)[0].split(b"/", 4)
        if len(parts) < 4:
            return
        self.key = f"{parts[2].decode('ascii')}/{parts[3].decode('ascii')}"
        self.path = b"/" + (parts[4] if len(parts) > 4 else b"") + mark + query.split(b"#", 1)[0]

    def _read_connection(self, special: dict[bytes, bytes]) -> None:
        names = {name.strip().lower() for name in special[b"connection"].split(b",")}
        if b"upgrade" in names and self.length == 0:
            protocol = special.get(b"upgrade", b"")
            if _IDENTITY.match(protocol) and not protocol.lower().startswith(b"h2c"):
                self.upgrade = protocol
        names -= {b"keep-alive", b"close", b"upgrade", b"", b"host"}
        if names:
            self._lines = [line for line in self._lines if line[0] not in names]
