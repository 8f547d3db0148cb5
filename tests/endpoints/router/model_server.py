"""A small model server in a process of its own: `python model_server.py NAME FD` answers at the
listening socket that it inherits.

What it answers depends on the path: see `Model`.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import sys
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

NAME = sys.argv[1] if __name__ == "__main__" else ""
SEEN: list[dict[str, object]] = []


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.headers.get("Upgrade"):
            self._echo()
            return
        parts = urlsplit(self.path)
        body = self._body()
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/seen":
            self._answer(200, SEEN)
            return
        seen = {"path": self.path, "method": self.command, "size": len(body)}
        SEEN.append({**seen, "headers": [list(item) for item in self.headers.items()]})
        time.sleep(float(query.get("s", "0")))
        if parts.path == "/die":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            self.wfile.flush()
            os._exit(1)
        if parts.path == "/stream":
            self._stream(int(query["n"]), float(query.get("every", "0")))
        elif parts.path == "/status":
            self._answer(int(query["code"]), {"from": NAME})
        elif parts.path == "/large":
            self.send_response(200)
            self.send_header("content-length", query["n"])
            self.end_headers()
            self.wfile.write(b"x" * int(query["n"]))
        elif parts.path == "/till-end":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ntill the end")
            self.close_connection = True
        elif parts.path == "/garbage":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3, 4\r\n\r\nabcd")
            self.close_connection = True
        elif parts.path == "/rows":
            rows = json.loads(body)["data"]
            self._answer(200, [row * 2 for row in rows])
        elif parts.path == "/short-rows":
            self._answer(200, [1])
        else:
            self._answer(200, {**seen, "from": NAME, "text": body[:100].decode("latin-1")})

    do_POST = do_PUT = do_OPTIONS = do_HEAD = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("x-ms-request-id", "the model's own")
        if self.command == "OPTIONS":
            self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self, pieces: int, every_s: float) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(pieces):
            piece = b"piece %d\n" % number
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(every_s)
        self.wfile.write(b"0\r\n\r\n")

    def _echo(self) -> None:
        self.send_response(101)
        self.send_header("Upgrade", self.headers["Upgrade"])
        self.send_header("Connection", "Upgrade")
        self.end_headers()
        self.wfile.flush()
        while data := self.connection.recv(65536):
            self.connection.sendall(data)
        self.close_connection = True


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, descriptor: int) -> None:
        super().__init__("", Model, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=descriptor)


if __name__ == "__main__":
    with Server(int(sys.argv[2])) as server:
        print("ready", flush=True)
        server.serve_forever()
