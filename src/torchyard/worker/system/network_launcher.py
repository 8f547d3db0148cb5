"""Make a network namespace, or start a program in one, by exec.

Owns: the namespaces, their loopback interface and addresses, the sockets that listen in them.
Leaves: who shares one to network_space.py.
Always: it ends by executing the given command with the same process id, or sends what it made
through its socket and ends; a namespace that can't be entered ends it, never the isolation.

Source: network_namespaces(7), user_namespaces(7), netdevice(7).
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import socket
import struct
import sys

from torchyard.worker.system.mount_launcher import become, checked, libc

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFADDR, _SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFNETMASK = 0x8916, 0x8913, 0x8914, 0x891C
_IFF_UP = 1
_LOOPBACK = "127."
_FAILED = 126


def make(sender: socket.socket) -> None:
    """Make a namespace with a loopback interface, and send its descriptors.

    What is sent first is `ready`, or why it can't be had.
    """
    names = _own_namespaces()
    _bring_up()
    _send(sender, [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names])


def listen(sender: socket.socket, paths: str, addresses: str) -> None:
    """Send sockets that listen in the namespaces, in the order of `addresses`.

    Args:
        paths: of the namespaces, `user:net` or `net`.
        addresses: JSON, pairs of an IPv4 address and a port; port 0 is any that is free.
    """
    _enter(paths)
    endpoints = [(str(address), int(port)) for address, port in json.loads(addresses)]
    _add(sorted({address for address, _ in endpoints if not address.startswith(_LOOPBACK)}))
    listeners = [_listener(address, port) for address, port in endpoints]
    _send(sender, [listener.fileno() for listener in listeners])


def unconnected(sender: socket.socket, paths: str, count: str) -> None:
    """Send so many sockets of the namespaces, for the worker to connect."""
    _enter(paths)
    made = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(int(count))]
    _send(sender, [connection.fileno() for connection in made])


def enter(paths: str, command: list[str]) -> None:
    """Enter the namespaces and execute `command`."""
    try:
        _enter(paths)
    except OSError as error:
        print(f"torchyard: the network of the job: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(_FAILED)
    become(command)


def main(verb: str, first: str, rest: list[str]) -> None:
    """`enter` with namespaces and a command; the other verbs with a descriptor to send to."""
    if verb == "enter":
        enter(first, rest)
    sender = socket.socket(fileno=int(first))
    try:
        if verb == "make":
            make(sender)
        elif verb == "listen":
            listen(sender, *rest)
        else:
            unconnected(sender, *rest)
    except OSError as error:
        sender.sendall(str(error).encode())
        os._exit(_FAILED)
    os._exit(0)


def _send(sender: socket.socket, descriptors: list[int]) -> None:
    packed = array.array("i", descriptors).tobytes()
    sender.sendmsg([b"ready"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)])


def _enter(paths: str) -> None:
    # All before the first is entered: from inside, the worker's descriptors are out of reach.
    namespaces = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths.split(":")]
    for namespace in namespaces:
        checked("setns", libc.setns(namespace, 0))
        os.close(namespace)


def _own_namespaces() -> tuple[str, ...]:
    """Enter new ones; root needs no user namespace. Returns their names, in the order to enter."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        checked("unshare", libc.unshare(_CLONE_NEWNET))
        return ("net",)
    checked("unshare", libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{file}", "w") as writer:
            writer.write(text)
    return ("user", "net")


def _bring_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _add(addresses: list[str]) -> None:
    """Give the loopback interface these addresses, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for number, address in enumerate(addresses):
            name = f"lo:{number}".encode()
            for call, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.255")):
                packed = struct.pack("H2x4s8x", socket.AF_INET, socket.inet_aton(value))
                fcntl.ioctl(probe, call, struct.pack("16s16s8x", name, packed))


def _listener(address: str, port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(256)
    return listener
