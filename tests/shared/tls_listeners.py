"""HTTP servers with and without TLS, and a proxy before them, for tests of the ways to them."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchyard.base import certificates
from torchyard.base.clock import FakeClock


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"path": self.path, "host": self.headers["Host"]}).encode()
        self.send_response(200)
        self.send_header("X-Torchyard-Server", "ours")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Listener(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # a handshake that a client gives up


@contextmanager
def serving(
    home: Path | None, port: int = 0, host: str = "127.0.0.1", family: int = socket.AF_INET
) -> Iterator[str]:
    """A server with the certificate of `home`, or without TLS; its address."""
    listener = type("Listener", (_Listener,), {"address_family": family})((host, port), _Handler)
    if home is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.ensure(home, (), FakeClock().now()).file)
        listener.socket = context.wrap_socket(
            listener.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
    thread.start()
    scheme = "https" if home is not None else "http"
    shown = f"[{host}]" if ":" in host else host
    try:
        yield f"{scheme}://{shown}:{listener.server_address[1]}"
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def proxy_to_one(requests: list[str], target: str) -> Iterator[str]:
    """Carries one connection to `target`, no matter what it is asked for; its URL.

    Args:
        requests: gets the head of what it was asked.
    """
    host, _, port = target.rpartition("//")[2].rpartition(":")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def carry(source: socket.socket, to: socket.socket) -> None:
            while block := source.recv(65536):
                to.sendall(block)
            to.shutdown(socket.SHUT_WR)

        def serve() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection((host, int(port))) as server:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(65536)
                requests.append(head.decode())
                if head.startswith(b"CONNECT"):
                    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    server.sendall(head)
                back = threading.Thread(target=carry, args=(server, client))
                back.start()
                carry(client, server)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://user:secret@127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
