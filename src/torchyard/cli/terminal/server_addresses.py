"""The addresses by which other machines reach a server.

Owns: asking a server for them.
Leaves: which they are to executors/server_for_nodes.py.
Always: a server that doesn't say has none; no command fails by that.
"""

from __future__ import annotations

from torchyard.base.errors import TorchyardError
from torchyard.base.http import Transport


def read(transport: Transport) -> list[str]:
    """URLs, the one to try first in front."""
    try:
        return [str(url) for url in transport.get("/v1/server/addresses")["value"]]
    except (TorchyardError, KeyError, TypeError):
        return []  # of another version, or overloaded
