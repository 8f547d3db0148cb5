"""A service that a job runs, and that means no good to who opens it."""

from __future__ import annotations

import json
import os
import socketserver
from http.server import BaseHTTPRequestHandler


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(9)
        if self.path == "/flood":
            self._flood()
        elif self.headers.get("Upgrade"):
            self._echo()
        elif self.path == "/silent":
            self.connection.close()
        elif self.path == "/garbage":
            self.wfile.write(b"not http at all\r\n\r\n")
        elif self.path == "/endless-head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000)
        else:
            self._tell(b"")

    def do_POST(self) -> None:
        self._tell(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _tell(self, body: bytes) -> None:
        request = {"headers": list(self.headers.items()), "path": self.path, "bytes": len(body)}
        content = json.dumps(request).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "mine=1; Path=/; Domain=localhost")
        self.send_header("Set-Cookie", "torchyard_session=evil; Path=/")
        self.send_header("Set-Cookie", "torchyard_service=evil; Path=/")
        self.send_header("Strict-Transport-Security", "max-age=999999; includeSubDomains")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _flood(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            self.wfile.write(b"f" * 65536)

    def _echo(self) -> None:
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        while data := self.connection.recv(65536):
            self.wfile.write(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
