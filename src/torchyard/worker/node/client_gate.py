"""What leads Azure's clients on this node to the server.

Owns: the gate's socket, the file of certificates that clients trust, the variables that name both.
Leaves: connections to relay/server_gate.py, what else is in the variables to the server.
Always: clients speak TLS with the server itself; the worker reads nothing of it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Optional

from torchyard.shared import trusted_certificates
from torchyard.shared.plan import GATE_HOST, GatePlan, LaunchPlan
from torchyard.shared.trusted_certificates import UnreadableCertificates
from torchyard.worker.relay.server_gate import ServerGate, ServerTls
from torchyard.worker.system.networks import LOOPBACK

_BUNDLE = "certificates.pem"


def open_gate(
    plan: LaunchPlan,
    gate: GatePlan,
    folder: Path,
    environ: Mapping[str, str],
    listener: Optional[socket.socket] = None,
) -> tuple[LaunchPlan, ServerGate]:
    """Listen, and return the plan with the variables that lead there.

    Args:
        folder: the node's; ranks can read it.
        environ: of the worker; names its proxy, and the certificates that it trusts.
        listener: a socket that listens in the job's own network, where it has one.
    """
    listener = listener or socket.create_server((LOOPBACK, 0), backlog=128)
    host = f"{LOOPBACK}:{listener.getsockname()[1]}"
    variables = {
        name: value.replace(GATE_HOST, host) if GATE_HOST in value else value
        for name, value in plan.variables.items()
    }
    certificates = _certificates(plan, gate, f"https://{host}", folder, environ)
    opened = ServerGate([(listener, ServerTls(gate, environ).connect)])
    return replace(plan, variables={**variables, **certificates}), opened


def _certificates(
    plan: LaunchPlan, gate: GatePlan, url: str, folder: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    packages = Path(plan.environment).glob("lib/python3*/site-packages/certifi/cacert.pem")
    certifi = next(packages, None) if plan.environment else None
    try:
        content = trusted_certificates.bundle(url, gate.authority, environ, certifi)
    except UnreadableCertificates:
        # A variable names certificates that can't be read: the job's own clients report it.
        return {}
    file = folder / _BUNDLE
    file.write_bytes(content)
    return {"REQUESTS_CA_BUNDLE": str(file), "SSL_CERT_FILE": str(file)}
