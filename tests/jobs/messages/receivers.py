"""A real HTTP server and a real mail server, on this machine, that keep what they receive."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Webhooks:
    """Answers with `statuses`, one after the other, then with 200; waits for `go_on` first."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    location: str = ""
    go_on: threading.Event = field(default_factory=threading.Event)
    received: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?team=vision"


@contextmanager
def webhooks(context: ssl.SSLContext | None = None) -> Iterator[Webhooks]:
    state = Webhooks()
    state.go_on.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.requests.append(Request(self.path, dict(self.headers.items()), body))
            state.received.set()
            assert state.go_on.wait(60)
            self.send_response(state.statuses.pop(0) if state.statuses else 200)
            if state.location:
                self.send_header("Location", state.location)
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Mails:
    """Answers RCPT with `answers`, one after the other, then with 250."""

    port: int = 0
    answers: list[str] = field(default_factory=list)
    envelopes: list[tuple[str, str, bytes]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)


@contextmanager
def mails(context: ssl.SSLContext | None = None) -> Iterator[Mails]:
    """Speaks as much SMTP as a client needs; with `context` also STARTTLS."""
    state = Mails()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.sender = self.recipient = ""
            self._say("220 ready")
            while line := self.rfile.readline():
                if self._answer(line.decode().strip()):
                    return

        def finish(self) -> None:
            super().finish()
            self.connection.close()

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())
            self.wfile.flush()

        def _answer(self, line: str) -> bool:
            verb = line.partition(" ")[0].upper()
            if verb == "EHLO":
                more = "250-STARTTLS\r\n" if context is not None else ""
                self._say(f"250-hello\r\n{more}250 AUTH PLAIN")
            elif verb == "STARTTLS" and context is not None:
                self._say("220 go on")
                return not self._begin_tls(context)
            elif verb == "AUTH":
                state.logins.append(line)
                self._say("235 welcome")
            elif verb == "MAIL":
                self.sender = line
                self._say("250 ok")
            elif verb == "RCPT":
                self.recipient = line
                self._say(state.answers.pop(0) if state.answers else "250 ok")
            elif verb == "DATA":
                self._say("354 go on")
                data = b""
                while (part := self.rfile.readline()) not in (b".\r\n", b""):
                    data += part
                state.envelopes.append((self.sender, self.recipient, data))
                self._say("250 ok")
            else:
                self._say("221 bye" if verb == "QUIT" else "250 ok")
            return verb == "QUIT"

        def _begin_tls(self, context: ssl.SSLContext) -> bool:
            self.connection.settimeout(60)
            tls = context.wrap_socket(
                self.connection, server_side=True, do_handshake_on_connect=False
            )
            try:
                tls.do_handshake()
            except OSError:
                tls.close()
                return False  # the client does not trust the certificate
            self.request = self.connection = tls
            self.rfile, self.wfile = tls.makefile("rb"), tls.makefile("wb")
            return True

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    server = Server(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
