"""From a plan to a node on which the ranks can start.

Owns: what is prepared beside what, and leaving it when a stop order comes.
Leaves: each step to its own module.
Always: it ends with everything the ranks need, or with the error of the first step that failed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.shared import disk
from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files.blobs import Blobs
from torchyard.worker.files.layout import Folders, Layout, lay_out
from torchyard.worker.files.steps import Step
from torchyard.worker.launch import launching as launching_of
from torchyard.worker.launch.launching import Launching
from torchyard.worker.launch.surroundings import Surroundings
from torchyard.worker.preflight import ports, rendezvous
from torchyard.worker.preflight.ports import HeldPort
from torchyard.worker.preflight.rendezvous import Meeting
from torchyard.worker.relay.relay import Relay
from torchyard.worker.server.control import Orders
from torchyard.worker.system import temporary
from torchyard.worker.system.mounts import Mount

if TYPE_CHECKING:
    from torchyard.worker.preflight.preflight import Preflight

_LEAVE_S = 5.0
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class Prepared:
    """`port` is held by node 0 alone; `launching` is what the kind of distribution needs."""

    surroundings: Surroundings
    port: HeldPort | None
    launching: Launching


def prepare(
    link: Connection,
    plan: LaunchPlan,
    node: int,
    folders: Folders,
    relay: Relay,
    orders: Orders,
    preflight: Preflight | None = None,
) -> Prepared | None:
    """Do all steps; None when a stop order came first.

    Raises:
        Failure: a step failed.
        AttemptOver: the server disowns the attempt.
    """
    port = ports.hold_port() if node == 0 else None
    prepared = None
    launching = launching_of.begin(plan, node, orders.wake)
    try:
        prepared = _prepare(link, plan, node, folders, relay, orders, preflight, port, launching)
    finally:
        if prepared is None and port is not None:
            port.close()
    return prepared


def _prepare(
    link: Connection,
    plan: LaunchPlan,
    node: int,
    folders: Folders,
    relay: Relay,
    orders: Orders,
    preflight: Preflight | None,
    port: HeldPort | None,
    launching: Launching,
) -> Prepared | None:
    blobs = Blobs(link, plan.blobs, lambda: orders.stopped)
    bring = None if plan.blobs else _bringing(link, orders)
    meets = Step(
        "meeting",
        lambda: rendezvous.meet(link, plan, node, port, orders, preflight, launching.ports),
        orders.wake,
    )
    lays = Step("layout", lambda: _lay_out(link, plan, folders, blobs, bring, orders), orders.wake)
    programs = _programs(plan, folders)
    relay_url = relay.start()
    while (meets.running or lays.running) and not (meets.failed or lays.failed or orders.stopped):
        orders.wait(_LOOK_EVERY_S)
    if orders.stopped:
        # It writes into folders that are about to go; the meeting only waits for an answer.
        lays.leave(_LEAVE_S)
        return None
    place, layout = _results(meets, lays)
    surroundings = Surroundings(
        hostname=socket.gethostname(),
        folders=folders,
        layout=layout,
        meeting=place,
        relay_url=relay_url,
        temporary=temporary.shorten(folders.temporary),
        programs=programs,
        cpu_count=len(os.sched_getaffinity(0)),
    )
    return Prepared(surroundings, port, launching)


def _lay_out(
    link: Connection,
    plan: LaunchPlan,
    folders: Folders,
    blobs: Blobs,
    bring: Callable[[str, Path], Path] | None,
    orders: Orders,
) -> Layout:
    layout = lay_out(plan, folders, blobs, bring)
    if plan.attempt > 1:
        from torchyard.worker.files import previous_outputs  # Most attempts are the first.

        previous_outputs.bring(link, folders, lambda: orders.stopped)
    return _with_environment(plan, layout)


def _with_environment(plan: LaunchPlan, layout: Layout) -> Layout:
    """Root writes where no write bits are: it gets the shared environment as a read-only mount.

    So does an ordinary user who has mounts anyway; for one who has none, write bits are enough.
    Where root can mount nothing, the server looks at the environment before its next use.
    """
    if not plan.environment or (os.geteuid() != 0 and not layout.mounts):
        return layout
    own = Mount(plan.environment, plan.environment, for_good=False)
    return replace(layout, mounts=(*layout.mounts, own))


def _bringing(link: Connection, orders: Orders) -> Callable[[str, Path], Path]:
    """For a node that does not see the server's disk."""
    from torchyard.worker.files import remote_inputs  # Not needed where it does.

    return lambda name, folder: remote_inputs.bring(link, name, folder, lambda: orders.stopped)


def _results(meets: Step[Meeting], lays: Step[Layout]) -> tuple[Meeting, Layout]:
    if lays.failed:
        lays.result()
    return meets.result(), lays.result()


def _programs(plan: LaunchPlan, folders: Folders) -> Path | None:
    if plan.image:
        from torchyard.worker.files import thin_environment

        thin_environment.put_hooks(folders.hooks, rehearsed=plan.rehearsed_gpus > 0)
        return None  # the image says itself where its programs are
    if plan.environment:
        from torchyard.worker.files import (
            thin_environment,  # Costly to import, and not always needed.
        )

        try:
            return thin_environment.create(
                Path(plan.environment), folders.environment, rehearsed=plan.rehearsed_gpus > 0
            )
        except OSError as error:
            if disk.is_to_blame(error):
                raise
            raise Failure(
                "environment_failed",
                f"no environment could be made over `{plan.environment}`: {error}",
                "submit the job again: that builds what is missing",
            ) from error
    # Without an environment `python` is the platform's, wherever that is.
    return Path(plan.python).parent if plan.python else None
