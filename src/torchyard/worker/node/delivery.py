"""Everything a node still owes the server when its ranks have ended.

Owns: outputs, the rest of the logs and of the metrics, and how long each is tried.
Leaves: the last event to node.py.
Always: after a success it waits for a server that is away without limit; after a failure or a
stop it gives up in time, and says so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torchyard.shared import disk
from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files.layout import Folders
from torchyard.worker.files.steps import Step
from torchyard.worker.files.uploads import upload_folder
from torchyard.worker.server.control import Orders

LIMIT_AFTER_FAILURE_S = 120.0
# As good as no limit, and short enough for every system call that takes milliseconds.
_NO_LIMIT_S = 864_000.0
_LOOK_EVERY_S = 1.0


class Finishing(Protocol):
    """A shipper; True when all it has is delivered.

    Raises:
        Failure: the server does not take something of it, and why.
    """

    def finish(self, timeout_s: float) -> bool: ...


def deliver(
    link: Connection,
    plan: LaunchPlan,
    folders: Folders,
    shippers: tuple[Finishing, ...],
    orders: Orders,
    succeeded: bool,
) -> Failure | None:
    """Send what is owed; the failure says what could not be delivered.

    Raises:
        AttemptOver: nobody wants it any more.
    """
    give_up = _patience(orders, succeeded)
    # The rest of the logs travels while the outputs do.
    finishing = [_finish(shipper, orders) for shipper in shippers]
    failure: Failure | None = None
    for folder, target in _folders(plan, folders):
        try:
            upload_folder(link, folder, target, give_up)
        except Failure as refused:
            failure = failure or refused
        except OSError as error:
            print(f"{target} not delivered: {error}", file=sys.stderr, flush=True)
            failure = failure or disk.failure(error) or _cut_off(f"outputs below `{folder.name}`")
    for step in finishing:
        while step.running and not give_up():
            orders.wait(_LOOK_EVERY_S)
        try:
            if step.running or not step.result():
                failure = failure or _cut_off("the end of the logs or metrics")
        except Failure as refused:
            failure = failure or refused
    return failure


def _finish(shipper: Finishing, orders: Orders) -> Step[bool]:
    return Step("finish", lambda: shipper.finish(_NO_LIMIT_S), orders.wake)


def _folders(plan: LaunchPlan, folders: Folders) -> list[tuple[Path, str]]:
    named = [
        (folders.outputs / name, f"/outputs/{name}")
        for name, wanted in plan.outputs.items()
        if wanted.mode != "direct"
    ]
    return [(folders.work / "outputs", "/files/outputs"), *named]


def _patience(orders: Orders, succeeded: bool) -> Callable[[], bool]:
    started = time.monotonic()

    def give_up() -> bool:
        if orders.over:
            return True
        if succeeded and not orders.stopped:
            return False
        since = started if not succeeded else max(started, orders.stopped_at)
        return time.monotonic() > since + LIMIT_AFTER_FAILURE_S

    return give_up


def _cut_off(what: str) -> Failure:
    return Failure(
        "delivery_cut_off",
        f"{what} could not be delivered in time",
        "the server was away, or failed all the while; metrics that are still on the node are "
        "taken up when it is cleaned, for the rest submit the job again",
    )
