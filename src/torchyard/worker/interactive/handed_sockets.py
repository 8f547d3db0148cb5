"""Sockets that the job's script inherits, already listening.

Owns: making them where the server did not, on other machines than its own; letting go of them here.
Leaves: connecting to them to service_programs.py on other machines, and to the server on its own.
Always: after the ranks have started, nobody but they and what they start has the descriptor, so
that the name refuses connections as soon as they are gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchyard.shared import unix_sockets
from torchyard.shared.plan import LaunchPlan, ServicePlan


def of_node(plan: LaunchPlan, node: int) -> list[ServicePlan]:
    """The services of a node whose sockets are handed in."""
    return [each for each in plan.services if each.is_handed and node == 0]


def path(temporary: Path, service: ServicePlan) -> Path:
    """Where the node makes a socket; below a folder that its own user alone enters."""
    return temporary / "handed" / service.name


@contextmanager
def handing_in(plan: LaunchPlan, node: int, temporary: Path) -> Iterator[None]:
    """Have what is started within the block inherit the sockets of the node's services."""
    services = of_node(plan, node)
    descriptors = unix_sockets.inherited() if services else []
    for service in services:
        listener = None if service.socket else unix_sockets.listen(path(temporary, service))
        if listener is not None:
            os.set_inheritable(listener.fileno(), True)
            descriptors.append(listener.detach())
    try:
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
