"""Hosts that a real sshd opens, each at a loopback address of its own, and an ssh that finds them.

Owns: keys, host keys, what an account finds there (HOME, PATH), starting and ending sshd.
Leaves: what is done by ssh to the tests.
Always: nothing of the machine's own ssh is used or changed; needs root, as sshd does.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

_SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
_LIMIT_S = 20.0


def why_not() -> str:
    """Why there can be no such hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "sshd needs root"
    return "" if _SSHD and shutil.which("ssh") else "openssh-server is not installed"


class SshHosts:
    """
    Args:
        folder: of keys and configurations; each host has a home below it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._servers: list[subprocess.Popen[bytes]] = []
        self.key = self._new_key("id")
        self.known = folder / "known_hosts"
        self.known.touch()
        self._config = ""
        self.bin = folder / "bin"
        self.bin.mkdir()
        self._write_ssh()

    def _new_key(self, name: str) -> Path:
        file = self.folder / name
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(file)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=_LIMIT_S)
        return file

    def add(self, name: str, address: str, variables: Mapping[str, str] | None = None) -> Path:
        """Start a host; its home, which is empty.

        Args:
            variables: of every session there, beside HOME.
        """
        home = self.folder / name
        home.mkdir()
        host_key = self._new_key(f"{name}.key")
        with socket.socket() as probe:
            probe.bind((address, 0))
            port = probe.getsockname()[1]
        words = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), **(variables or {})}
        config = self.folder / f"{name}.sshd"
        config.write_text(
            f"ListenAddress {address}:{port}\nHostKey {host_key}\nPidFile none\nUsePAM no\n"
            "PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"StrictModes no\nAuthorizedKeysFile {self.key}.pub\n"
            "SetEnv " + " ".join(f'"{key}={value}"' for key, value in words.items()) + "\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        assert _SSHD is not None
        with open(self.folder / f"{name}.log", "wb") as log:
            server = subprocess.Popen([_SSHD, "-D", "-e", "-f", str(config)], stderr=log)
        self._servers.append(server)
        _await(address, port)
        public = Path(f"{host_key}.pub").read_text()
        with open(self.known, "a") as known_hosts:
            known_hosts.write(f"[{address}]:{port} {public}")
        self.alias(name, address, port)
        return home

    def alias(self, name: str, address: str, port: int) -> None:
        """Let ssh find a host by a name, as in `~/.ssh/config`."""
        self._config += f"Host {name}\n  HostName {address}\n  Port {port}\n  User root\n"
        self._write_ssh()

    def _write_ssh(self) -> None:
        """A program `ssh` whose person has these keys and hosts, and no others."""
        config = self.folder / "ssh_config"
        config.write_text(
            f"{self._config}Host *\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
            f"  IdentityAgent none\n  UserKnownHostsFile {self.known}\n"
            "  GlobalKnownHostsFile none\n"
        )
        program = self.bin / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
        program.chmod(0o755)

    def use_key(self, name: str) -> None:
        """Let the person have another key, which no host knows."""
        self.key = self._new_key(name)
        self._write_ssh()

    def close(self) -> None:
        for server in self._servers:
            server.terminate()
            server.wait(_LIMIT_S)


def _await(address: str, port: int) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while True:
        try:
            socket.create_connection((address, port), 1.0).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "sshd does not start"
            time.sleep(0.05)
