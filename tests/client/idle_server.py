"""A process that starts as the embedded server does, in a moment, and says that it is healthy.

For tests of what a command does with the process; see test_embedded.py.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from torchyard.shared import processes


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = json.dumps({"status": "ok", "pid": os.getpid(), "version": "0.1.0"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--shared", action="store_true", help="as one of several")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--tls-port", default="", help="the one that it writes down")
    options = parser.parse_args()
    if options.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = HTTPServer(("127.0.0.1", 0), _Health)
    url, pid = f"http://127.0.0.1:{server.server_port}", os.getpid()
    record = {"url": url, "pid": pid, "start_time": processes.start_time(pid), "version": "0.1.0"}
    (options.home / "server.json").write_text(json.dumps(record))
    if options.tls_port:
        (options.home / "tls-port").write_text(options.tls_port)
    if options.shared:
        (options.home / "servers" / f"{pid}.json").write_text(json.dumps(record))
    os.write(options.ready_fd, f"{url}\n".encode())
    os.close(options.ready_fd)
    server.serve_forever()


if __name__ == "__main__":
    main()
