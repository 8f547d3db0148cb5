"""A browser's part in visiting a service: one host name, its cookies, no redirect followed."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass
class Visitor:
    """`host` has the port; every name below `localhost` is this machine."""

    host: str
    cookies: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, link: str) -> tuple[Visitor, str]:
        """The visitor of a link's host, and the path that the link asks for."""
        parts = urlsplit(link)
        return cls(parts.netloc), f"{parts.path}?{parts.query}"

    @classmethod
    def signed_in(cls, link: str) -> Visitor:
        visitor, path = cls.of(link)
        reply = visitor.get(path)
        assert reply.status == 303, (reply.status, reply.body)
        return visitor

    def get(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            variables = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {**self.headers, **variables})
            answer = connection.getresponse()
            reply = Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()
        for line in reply.headers.get_all("Set-Cookie") or []:
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return reply

    @property
    def headers(self) -> dict[str, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"Host": self.host, **({"Cookie": cookies} if cookies else {})}

    def upgraded(self, path: str, **headers: str) -> socket.socket:
        """A connection after a websocket's handshake; its frames are the caller's."""
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        variables = {name.replace("_", "-"): value for name, value in headers.items()}
        lines = {
            **self.headers,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            **variables,
        }
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        connection.sendall(f"GET {path} HTTP/1.1\r\n{text}\r\n".encode())
        return connection

    @property
    def _port(self) -> int:
        return int(self.host.rpartition(":")[2])
