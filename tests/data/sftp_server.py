"""An SFTP server for a folder, with paramiko; accepts one user with one password."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paramiko
from paramiko import SFTPAttributes, SFTPHandle, SFTPServer

USER, PASSWORD = "yard", "pass"


class _Server(paramiko.ServerInterface):
    def check_auth_password(self, username: str, password: str) -> int:
        good = (username, password) == (USER, PASSWORD)
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def get_allowed_auths(self, username: str) -> str:
        return "password"


def _files_of(folder: Path, free_bytes: int | None) -> type[paramiko.SFTPServerInterface]:
    class Handle(SFTPHandle):
        def write(self, offset: int, data: bytes) -> int:
            if free_bytes is not None and offset + len(data) > free_bytes:
                return paramiko.SFTP_FAILURE
            return int(super().write(offset, data))

    def answer_errors(act: Any) -> Any:
        def answer(self: Any, *arguments: Any) -> Any:
            try:
                return act(self, *arguments)
            except OSError as error:
                return SFTPServer.convert_errno(error.errno)

        return answer

    def at(path: str) -> str:
        return str(folder) + canonical(path)

    def canonical(path: str) -> str:
        return os.path.normpath("/" + path)

    class Files(paramiko.SFTPServerInterface):
        @answer_errors
        def list_folder(self, path: str) -> Any:
            entries = []
            for name in os.listdir(at(path)):
                # Like OpenSSH, skip what is renamed meanwhile.
                with suppress(FileNotFoundError):
                    entry = SFTPAttributes.from_stat(os.stat(os.path.join(at(path), name)))
                    entry.filename = name
                    entries.append(entry)
            return entries

        @answer_errors
        def stat(self, path: str) -> Any:
            return SFTPAttributes.from_stat(os.stat(at(path)))

        lstat = stat

        @answer_errors
        def open(self, path: str, flags: int, attr: Any) -> Any:
            number = os.open(at(path), flags, 0o644)
            writes = flags & (os.O_WRONLY | os.O_RDWR)
            file = os.fdopen(number, ("r+b" if flags & os.O_RDWR else "wb") if writes else "rb")
            handle = Handle(flags)
            handle.readfile = handle.writefile = file
            return handle

        @answer_errors
        def remove(self, path: str) -> int:
            os.remove(at(path))
            return paramiko.SFTP_OK

        @answer_errors
        def rename(self, old: str, new: str) -> int:
            os.rename(at(old), at(new))
            return paramiko.SFTP_OK

        posix_rename = rename

        @answer_errors
        def mkdir(self, path: str, attr: Any) -> int:
            os.mkdir(at(path))
            return paramiko.SFTP_OK

        @answer_errors
        def rmdir(self, path: str) -> int:
            os.rmdir(at(path))
            return paramiko.SFTP_OK

    return Files


@contextmanager
def running(folder: Path, port: int = 0, free_bytes: int | None = None) -> Iterator[int]:
    """The port it listens on.

    Args:
        free_bytes: writes beyond so many bytes of a file are refused, as on a full disk.
    """
    key = paramiko.RSAKey.generate(2048)
    files = _files_of(folder, free_bytes)
    listener = socket.create_server(("127.0.0.1", port))
    open_transports: list[paramiko.Transport] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            transport.set_subsystem_handler("sftp", SFTPServer, files)
            transport.start_server(server=_Server())
            open_transports.append(transport)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # A close alone leaves `accept` waiting.
        listener.close()
        server.join(60)
        for open_transport in open_transports:
            open_transport.close()
