"""Prepare a node until its ranks can start.

Owns: which steps run in parallel, and abandoning them at a stop request.
Leaves: each step to its own module.
Always: it ends with everything the ranks need, or with the error of the first step that failed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.shared import disk
from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files.blobs import Blobs
from torchyard.worker.files.node_folders import Layout, NodeFolders, lay_out
from torchyard.worker.files.steps import Step
from torchyard.worker.launch.launch_ports import LaunchPorts, reserve_ports
from torchyard.worker.launch.node_setup import NodeSetup
from torchyard.worker.preflight import ports
from torchyard.worker.preflight.ports import HeldPort, PortMark
from torchyard.worker.preflight.rendezvous import Rendezvous, join_rendezvous
from torchyard.worker.relay.relay import Relay
from torchyard.worker.server.control import Control
from torchyard.worker.system import mounts, temporary
from torchyard.worker.system.mounts import Mount

if TYPE_CHECKING:
    from torchyard.worker.files.node_cache import NodeCache
    from torchyard.worker.preflight.preflight import Preflight

_STOP_WAIT_S = 5.0
_POLL_EVERY_S = 5.0


@dataclass(frozen=True)
class Prepared:
    """`port` is held only on node 0, and has a `mark` on the others; `launch_ports` depend on the
    type of distribution.
    """

    setup: NodeSetup
    port: HeldPort | None
    mark: PortMark
    launch_ports: LaunchPorts


def prepare(
    link: Connection,
    plan: LaunchPlan,
    node: int,
    folders: NodeFolders,
    relay: Relay,
    control: Control,
    preflight: Preflight | None = None,
    environ: Mapping[str, str] | None = None,
) -> Prepared | None:
    """Run all steps; return None if a stop was requested first.

    Args:
        environ: of the worker; says how much a node of another machine keeps.

    Raises:
        Failure: a step failed.
        AttemptOver: the attempt is over on the server.
    """
    port = ports.hold_port() if node == 0 else None
    prepared = None
    launch_ports = reserve_ports(plan, node, control.wake)
    try:
        prepared = _prepare(
            link, plan, node, folders, relay, control, preflight, port, launch_ports, environ or {}
        )
    finally:
        if prepared is None and port is not None:
            port.close()
    return prepared


def _prepare(
    link: Connection,
    plan: LaunchPlan,
    node: int,
    folders: NodeFolders,
    relay: Relay,
    control: Control,
    preflight: Preflight | None,
    port: HeldPort | None,
    launch_ports: LaunchPorts,
    environ: Mapping[str, str],
) -> Prepared | None:
    cache = _cache(plan, environ)
    blobs = Blobs(link, plan.blobs, lambda: control.stopped, cache)
    fetch_input = None if plan.blobs else _input_fetcher(link, control, cache)
    mark = PortMark()
    on_port = mark.set if port is None and plan.single_host else (lambda _: None)
    rendezvous_step = Step(
        "rendezvous",
        lambda: join_rendezvous(
            link, plan, node, port, control, preflight, launch_ports.facts, on_port
        ),
        control.wake,
    )
    layout_step = Step(
        "layout", lambda: _lay_out(link, plan, folders, blobs, fetch_input, control), control.wake
    )
    programs = _programs(plan, folders)
    relay_url = relay.start()
    while (rendezvous_step.running or layout_step.running) and not (
        rendezvous_step.failed or layout_step.failed or control.stopped
    ):
        control.wait(_POLL_EVERY_S)
    if control.stopped:
        # The layout writes into folders that are about to be removed; the rendezvous only waits.
        layout_step.wait_briefly(_STOP_WAIT_S)
        return None
    rendezvous, layout = _results(rendezvous_step, layout_step)
    setup = NodeSetup(
        hostname=socket.gethostname(),
        folders=folders,
        layout=layout,
        rendezvous=rendezvous,
        relay_url=relay_url,
        temporary=temporary.shorten(folders.temporary),
        programs=programs,
        cpu_count=len(os.sched_getaffinity(0)),
    )
    return Prepared(setup, port, mark, launch_ports)


def _lay_out(
    link: Connection,
    plan: LaunchPlan,
    folders: NodeFolders,
    blobs: Blobs,
    fetch_input: Callable[[str, Path], Path] | None,
    control: Control,
) -> Layout:
    layout = lay_out(plan, folders, blobs, fetch_input)
    if plan.attempt > 1 or any(output.is_shared for output in plan.outputs.values()):
        from torchyard.worker.files import previous_outputs  # Most attempts are the first one.

        previous_outputs.fetch_previous_outputs(link, folders, lambda: control.stopped)
    return _with_environment(plan, layout)


def _with_environment(plan: LaunchPlan, layout: Layout) -> Layout:
    """Add the shared environment as a read-only mount, unless the worker sees it read-only.

    Root ignores write permissions. An ordinary user gets the mount only if there are others anyway.
    If root can't mount anything, the server checks the environment before its next use.
    """
    if not plan.environment or (os.geteuid() != 0 and not layout.mounts):
        return layout
    if mounts.is_read_only(plan.environment):
        return layout
    environment_mount = Mount(plan.environment, plan.environment, for_good=False)
    return replace(layout, mounts=(*layout.mounts, environment_mount))


def _cache(plan: LaunchPlan, environ: Mapping[str, str]) -> NodeCache | None:
    if not plan.node_folder:
        return None
    from torchyard.worker.files import node_cache  # Not needed on the server's machine.

    return node_cache.of_plan(plan, environ)


def _input_fetcher(
    link: Connection, control: Control, cache: NodeCache | None
) -> Callable[[str, Path], Path]:
    """Download inputs, on a node that can't access the server's disk."""
    from torchyard.worker.files import remote_inputs  # Not needed on other nodes.

    return lambda name, folder: remote_inputs.fetch_input(
        link, name, folder, lambda: control.stopped, cache
    )


def _results(
    rendezvous_step: Step[Rendezvous], layout_step: Step[Layout]
) -> tuple[Rendezvous, Layout]:
    if layout_step.failed:
        layout_step.result()
    return rendezvous_step.result(), layout_step.result()


def _programs(plan: LaunchPlan, folders: NodeFolders) -> Path | None:
    if plan.image:
        from torchyard.worker.files import thin_environment

        thin_environment.put_hooks(
            folders.hooks,
            rehearsed=plan.rehearsed_gpus > 0,
            intercepted=plan.intercepts_saves,
        )
        return None  # the image's own variables locate its programs
    if plan.environment:
        from torchyard.worker.files import (
            thin_environment,  # Slow to import, and not always needed.
        )

        try:
            return thin_environment.create(
                Path(plan.environment),
                folders.environment,
                rehearsed=plan.rehearsed_gpus > 0,
                intercepted=plan.intercepts_saves,
            )
        except OSError as error:
            if disk.is_to_blame(error):
                raise
            raise Failure(
                "environment_failed",
                f"the environment `{plan.environment}` can't be used: {error}",
                "submit the job again to rebuild the environment",
            ) from error
    # Without an environment, `python` is the platform's.
    return Path(plan.python).parent if plan.python else None
