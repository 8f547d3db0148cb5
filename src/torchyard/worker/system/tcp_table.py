"""The TCP sockets that the kernel lists.

Owns: reading its tables.
Leaves: what a field says to whoever asks.
Always: a table that can't be read has no sockets.

Source: proc_net_tcp in the kernel's documentation.
"""

from __future__ import annotations


def lines(pid: int | str = "self") -> list[str]:
    """A line for each socket of the network that this process is in."""
    found: list[str] = []
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}") as file:
                found += file.read().splitlines()[1:]
        except OSError:
            continue
    return found
