"""`python -m torchyard.node_agent`, with a JSON object on its standard input.

Owns: reading what `yard node join` found out, signals, exit codes.
Leaves: being a node to agent.py.
Always: a token comes by the standard input, never by an argument or a variable; errors are printed
as the `yard` command prints them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

from torchyard.base.errors import TorchyardError
from torchyard.base.home.uv import find_uv
from torchyard.base.http import Transport
from torchyard.node_agent import facts, invitations, restarts
from torchyard.node_agent.agent import Agent, Machine, alone


def main() -> int:
    request: dict[str, Any] = json.load(sys.stdin)
    return restarts.run(lambda: _run(request), _say)


def _run(request: dict[str, Any]) -> int:
    try:
        agent = _agent(request)

        def stop(signum: int, frame: FrameType | None) -> None:
            agent.stop()

        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, stop)
        agent.run()
    except TorchyardError as error:
        sys.stderr.write(f"error: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return error.exit_code
    _say("Left: this machine takes no jobs any more.")
    return 0


def _agent(request: dict[str, Any]) -> Agent:
    folder = Path(request["folder"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    request |= _as_invited(request, folder)
    transport = Transport(request["url"], request["token"], ca_cert=request["ca_cert"])

    def find_address() -> str:
        return request["address"] or facts.address_towards(request["url"])

    membership = Machine(
        request["workspace"],
        request["compute"],
        request["name"] or facts.own_name(),
        find_address(),
    )
    environ = dict(os.environ)
    if request.get("runner"):
        environ["TORCHYARD_NODE_RUNNER"] = request["runner"]
    return Agent(transport, membership, folder, find_address, find_uv(), environ, _say)


def _as_invited(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What of the request is known by an invitation; nothing without one."""
    membership = None
    if request.get("invitation"):
        with alone(folder):
            membership = invitations.accept(
                folder,
                request["url"],
                request["invitation"],
                request["fingerprint"],
                request["name"],
            )
    elif not request["url"]:
        membership = invitations.read(folder)
    if membership is None:
        return {}
    return {
        "url": membership.url,
        "token": membership.token,
        "ca_cert": membership.ca_cert,
        "workspace": quote(membership.workspace, safe=""),
        "compute": quote(membership.compute, safe=""),
        "name": membership.name,
    }


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
