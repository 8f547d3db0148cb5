"""Where a server listens that nodes of other machines reach."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from torchyard import server, server_options
from torchyard.base import certificates
from torchyard.base.errors import InvalidInput
from torchyard.server_options import Options

ONE_DATABASE = True


def test_it_listens_everywhere_with_a_certificate_that_nodes_pin(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    options = Options(tmp_path, listen=True)
    entrance = server._open(options, None)
    assert entrance.secure is not None and entrance.own_tls is not None
    try:
        addresses = server._node_addresses(entrance, options)
        port = entrance.secure[0].getsockname()[1]
        assert addresses.urls and all(url.startswith("https://") for url in addresses.urls)
        assert {urlsplit(url).port for url in addresses.urls} == {port}
        assert addresses.certificate == certificates.authority(tmp_path)
        assert isinstance(entrance.secure[1], ssl.SSLContext)
        # Both families come to the one socket; commands of this machine have a plain one.
        socket.create_connection(("127.0.0.1", port), 5).close()
        if entrance.secure[0].family == socket.AF_INET6:
            socket.create_connection(("::1", port), 5).close()
        assert entrance.plain.getsockname()[0] == "127.0.0.1"
    finally:
        entrance.own_tls.close()
        entrance.plain.close()
        entrance.secure[0].close()


def test_a_server_that_commands_start_listens_as_it_was_told_last(tmp_path: Path) -> None:
    started = Options(tmp_path, ready_fd=1)
    assert not server._listening_as_before(started).listen
    server._remember_listening(Options(tmp_path, listen=True))
    assert server._listening_as_before(started).listen
    assert not server._listening_as_before(Options(tmp_path)).listen, "a unit says it itself"
    server._remember_listening(Options(tmp_path, listen=False))
    assert not server._listening_as_before(started).listen


def test_what_started_it_is_named_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/bin/yard-server", "--host", "0.0.0.0", "--home", "a b"])
    started = Options(tmp_path, ready_fd=1, listen=True)
    assert server._start_command(started) == "yard server start --listen"
    with_port = Options(tmp_path, ready_fd=1, listen=True, port=9001)
    assert server._start_command(with_port) == "yard server start --listen --port 9001"
    assert server._start_command(Options(tmp_path)) == "yard-server --host 0.0.0.0 --home 'a b'"


def test_it_is_a_server_for_others() -> None:
    assert server._is_for_others(Options(Path("/home"), listen=True))
    assert not server._is_for_others(Options(Path("/home")))


@pytest.mark.parametrize("more", [["--host", "10.0.0.1"], ["--tls-cert", "c", "--tls-key", "k"]])
def test_a_second_certificate_or_address_is_refused(more: list[str]) -> None:
    arguments = server_options.parser().parse_args(["--listen", *more])
    with pytest.raises(InvalidInput, match="--listen"):
        server_options.read(arguments)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, "port 80 of `::` needs more rights than this user has"),
        (errno.EADDRINUSE, "port 80 of `::` is taken"),
        (errno.EADDRNOTAVAIL, "port 80 of `::` can't be opened: Cannot assign requested address"),
    ],
)
def test_why_a_port_cannot_be_had(number: int, message: str) -> None:
    error = server._cannot_listen("::", 80, OSError(number, os.strerror(number)))
    assert error.message == message and "--port" in error.hint
