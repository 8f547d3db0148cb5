"""Debian's nginx before a server, with the configuration that packaging/ has."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.test_listeners import CERTIFICATE, KEY
from required import missing

_SITE = Path(__file__).resolve().parents[2] / "packaging" / "nginx.conf"
_MAIN = """\
daemon off;
user {user};
worker_processes 8;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


@contextmanager
def nginx_before(
    server_port: int, folder: Path, limit_s: int = 30, most_connections: int = 256
) -> Iterator[tuple[int, Path]]:
    """Its port, with TLS, and the certificate that it shows.

    Args:
        folder: for what it writes, an empty one.
        limit_s, most_connections: instead of those that the configuration has.
    """
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        missing("nginx is not here: `make administration`, or `apt-get install nginx-light`")
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    certificate, key = folder / "yard.pem", folder / "yard.key"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    (folder / "site.conf").write_text(
        _replaced(
            _SITE.read_text(),
            {
                "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
                "    listen [::]:443 ssl;\n": "",
                "/etc/nginx/yard.pem": str(certificate),
                "/etc/nginx/yard.key": str(key),
                "timeout 30s;": f"timeout {limit_s}s;",
                "limit_conn torchyard 256;": f"limit_conn torchyard {most_connections};",
                "127.0.0.1:8765": f"127.0.0.1:{server_port}",
            },
        )
    )
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, user=getpass.getuser()))
    process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf"])
    try:
        _wait_for(port, process, folder / "error.log")
        yield port, certificate
    finally:
        process.terminate()
        process.wait(60)


def _replaced(text: str, replacements: dict[str, str]) -> str:
    for old, new in replacements.items():
        assert old in text, f"{_SITE} has no `{old}`"
        text = text.replace(old, new)
    return text


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
            return
        except ConnectionRefusedError:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
