"""Accept an invitation on this machine, and keep what it gave.

Owns: exchanging the invitation for a token of this machine, the file that keeps it.
Leaves: making invitations to the server, trusting it to base/pinned_certificates.py, being a node
to agent.py.
Always: the token is in a file that this user alone reads; the same invitation is sent once, so that
a machine which could not join tries again with what it has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchyard.base import pinned_certificates
from torchyard.base.errors import NotAuthenticated
from torchyard.base.files import write_atomically
from torchyard.base.http import Transport
from torchyard.node_agent import facts

FILE = "membership.json"
# The server may have to start Ray's head first.
_PATIENCE_S = 1800.0


@dataclass(frozen=True)
class Membership:
    """`invitation` is the hash of the one that was accepted; `ca_cert` a PEM file, or empty."""

    invitation: str
    url: str
    token: str
    ca_cert: str
    workspace: str
    compute: str
    name: str


def read(folder: Path) -> Membership | None:
    """What an invitation gave this machine; None where none was accepted."""
    try:
        return Membership(**json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def accept(folder: Path, url: str, invitation: str, fingerprint: str, name: str) -> Membership:
    """
    Args:
        folder: of this machine's node.
        fingerprint: of the certificate that is trusted; empty for what this machine trusts.
        name: the machine's; empty for the one that the invitation names, or the host's.

    Raises:
        Unreachable: no server answers, or another one.
        NotAuthenticated: the invitation was used before, or has ended.
        Conflict: it is for another machine.
    """
    token_hash = hashlib.sha256(invitation.encode()).hexdigest()
    before = read(folder)
    if before is not None and before.invitation == token_hash:
        return before
    ca_cert = pinned_certificates.trust(folder, url, fingerprint) if fingerprint else ""
    answer = _exchange(url, invitation, ca_cert, name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    membership = Membership(
        token_hash,
        url,
        answer["token"],
        ca_cert,
        answer["workspace"],
        answer["compute"],
        answer["machine"],
    )
    with write_atomically(folder / FILE, mode=0o600) as file:
        file.write(json.dumps(asdict(membership)).encode())
    return membership


def _exchange(url: str, invitation: str, ca_cert: str, name: str) -> Mapping[str, Any]:
    with closing(Transport(url, invitation, _PATIENCE_S, ca_cert)) as transport:
        try:
            answer: Mapping[str, Any] = transport.post(
                "/v1/invitations/accept", {"machine": name, "host": facts.own_name()}
            )
        except NotAuthenticated as error:
            if error.code == "token_expired":
                raise
            raise NotAuthenticated(
                "this invitation was used before, or was withdrawn",
                "ask for another: `yard node invite`",
                code="invitation_used",
            ) from error
    return answer


def forget(folder: Path) -> None:
    """After the machine was removed at the server, where its token is not valid any more."""
    (folder / FILE).unlink(missing_ok=True)
