"""Deliver what is left on a node after its ranks have ended.

Owns: uploading outputs and the rest of the logs and metrics, and how long each is tried.
Leaves: the last event to node.py.
Always: after a success it waits for an unreachable server without a limit; after a failure or a
stop it gives up after a limit and reports that.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torchyard.shared import disk
from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files.node_folders import NodeFolders, file_mark
from torchyard.worker.files.steps import Step
from torchyard.worker.files.uploads import OnMissing, upload_folder
from torchyard.worker.server.control import Control

LIMIT_AFTER_FAILURE_S = 120.0
# Effectively no limit, but short enough for system calls that take milliseconds.
_NO_LIMIT_S = 864_000.0
_POLL_EVERY_S = 1.0


class Shipper(Protocol):
    """Ships logs or metrics; `finish` returns True once everything is delivered.

    Raises:
        Failure: the server refused a part.
    """

    def finish(self, timeout_s: float) -> bool: ...


def deliver(
    link: Connection,
    plan: LaunchPlan,
    folders: NodeFolders,
    shippers: tuple[Shipper, ...],
    control: Control,
    succeeded: bool,
    is_sent: Callable[[Path], bool] = lambda _: False,
    on_missing: OnMissing = lambda _: None,
) -> Failure | None:
    """Deliver everything; return the failure if something could not be delivered.

    Args:
        is_sent: whether the server has a file of the outputs already.
        on_missing: called for what files_below() names so.

    Raises:
        AttemptOver: the attempt is over on the server.
    """
    give_up = _give_up_check(control, succeeded)
    # Logs and metrics are shipped while the outputs are uploaded.
    finishing = [_finish(shipper, control) for shipper in shippers]
    failure: Failure | None = None
    is_unchanged = _unchanged(folders)
    for folder, target in delivered_folders(plan, folders):
        try:
            upload_folder(
                link,
                folder,
                target,
                give_up,
                lambda file: is_sent(file) or is_unchanged(file),
                on_missing,
            )
        except Failure as refusal:
            failure = failure or refusal
        except OSError as error:
            print(f"could not deliver {target}: {error}", file=sys.stderr, flush=True)
            failure = (
                failure or disk.failure(error) or _delivery_cut_off(f"outputs in `{folder.name}`")
            )
    for step in finishing:
        while step.running and not give_up():
            control.wait(_POLL_EVERY_S)
        try:
            if step.running or not step.result():
                failure = failure or _delivery_cut_off("the end of the logs or metrics")
        except Failure as refusal:
            failure = failure or refusal
    return failure


def _unchanged(folders: NodeFolders) -> Callable[[Path], bool]:
    """Whether a file is as it was fetched: the server has it, or a newer one of another node."""
    try:
        fetched: dict[str, list[int]] = json.loads(folders.fetched_outputs.read_text())
    except FileNotFoundError:
        return lambda _: False

    def is_unchanged(file: Path) -> bool:
        mark = fetched.get(str(file))
        return mark is not None and file.exists() and mark == file_mark(file)

    return is_unchanged


def _finish(shipper: Shipper, control: Control) -> Step[bool]:
    return Step("finish", lambda: shipper.finish(_NO_LIMIT_S), control.wake)


def delivered_folders(plan: LaunchPlan, folders: NodeFolders) -> list[tuple[Path, str]]:
    """The folders that are delivered, each with where on the server."""
    named_outputs = [
        (folders.outputs / name, f"/outputs/{name}")
        for name, output in plan.outputs.items()
        if output.mode != "direct"
    ]
    return [(folders.work / "outputs", "/files/outputs"), *named_outputs]


def _give_up_check(control: Control, succeeded: bool) -> Callable[[], bool]:
    started = time.monotonic()

    def give_up() -> bool:
        if control.over:
            return True
        if succeeded and not control.stopped:
            return False
        start = started if not succeeded else max(started, control.stopped_at)
        return time.monotonic() > start + LIMIT_AFTER_FAILURE_S

    return give_up


def _delivery_cut_off(description: str) -> Failure:
    return Failure(
        "delivery_cut_off",
        f"{description} could not be delivered in time",
        "the server was unreachable or kept failing; metrics that are still on the node are "
        "collected when it is cleaned up, for the rest submit the job again",
    )
