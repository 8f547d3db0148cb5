"""Score the files of a job with its scoring script, on each of the job's nodes.

Owns: the start and the end of a node: its scoring processes and their threads.
Leaves: mini-batches to coordinator.py, processes to processes.py, other nodes to nodes.py.
Always: the first node alone writes predictions; the job fails with one error that says why. Runs on
Python 3.7 and later with the standard library alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

from . import input_files, nodes
from . import settings as settings_of
from .coordinator import BatchFailed, Coordinator, say
from .link import LinkLost
from .metrics import Metrics
from .processes import ScoringProcess, ScriptFailed
from .progress import FAILED, FOLDER, Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_WAIT_S = 5.0
END_S = 60.0


def main() -> None:
    settings = settings_of.read()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    temporary = tempfile.mkdtemp(prefix="torchyard-batch-")
    slots: list[ScoringProcess] = []
    try:
        variables = settings_of.variables(settings, temporary)
        slots = [ScoringProcess(settings, variables) for _ in range(settings.processes)]
        if settings.node == 0:
            lead(settings, slots)
        else:
            serve(settings, slots)
    finally:
        for slot in slots:
            slot.close(is_kind=False)
        shutil.rmtree(temporary, ignore_errors=True)


def lead(settings: settings_of.Settings, slots: list[ScoringProcess]) -> None:
    """The first node: give out mini-batches, write what comes back."""
    folder, files = input_files.find(settings.input, settings.input_type)
    progress, metrics = Progress(settings, files), Metrics()
    if progress.done:
        count = sum(end - start for start, end in progress.done)
        say(f"{count} of {len(files)} files are done already")
    else:
        say(f"{len(files)} files to score")
    coordinator = Coordinator(settings, files, progress, metrics.log)
    server = nodes.Server(coordinator, settings) if settings.node_count > 1 else None

    def work(slot: ScoringProcess) -> None:
        while not coordinator.is_over:
            batch = coordinator.next(_WAIT_S)
            if batch is None:
                continue
            paths = [os.path.join(folder, path) for path in coordinator.paths(batch)]
            try:
                coordinator.report(batch, slot.run(paths))
            except Exception as error:
                coordinator.stop(reason_of(error))

    run_all(slots, work, lambda: bool(coordinator.failure))
    if server is not None:
        server.close(0 if coordinator.failure else END_S)
    coordinator.report_end()
    progress.close()
    metrics.close()
    if coordinator.failure:
        raise BatchFailed(coordinator.failure)


def serve(settings: settings_of.Settings, slots: list[ScoringProcess]) -> None:
    """Another node: score what the first one gives out."""
    # What an attempt before this one wrote is the first node's to keep.
    for path in (settings.predictions, os.path.join(settings.records, FAILED)):
        if os.path.isfile(path):
            os.remove(path)
    shutil.rmtree(os.path.join(settings.records, FOLDER), ignore_errors=True)
    folder = settings.input if os.path.isdir(settings.input) else os.path.dirname(settings.input)
    lost: list[str] = []

    def work(slot: ScoringProcess) -> None:
        def run(files: list[str]) -> dict[str, Any]:
            try:
                return slot.run([os.path.join(folder, path) for path in files])
            except Exception as error:
                return {"failed": reason_of(error)}

        try:
            nodes.follow(run)
        except LinkLost as error:
            lost.append(str(error))

    run_all(slots, work, lambda: bool(lost))
    if lost:
        raise LinkLost(f"the first node is gone: {lost[0]}")


def run_all(
    slots: list[ScoringProcess],
    work: Callable[[ScoringProcess], None],
    has_failed: Callable[[], bool],
) -> None:
    """A thread for each scoring process, until all have ended; at once when the job has failed."""

    def work_and_close(slot: ScoringProcess) -> None:
        work(slot)
        slot.close()

    threads = [threading.Thread(target=work_and_close, args=(slot,), daemon=True) for slot in slots]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # a signal is handled between two
            if has_failed():
                for slot in slots:
                    slot.kill()


def reason_of(error: Exception) -> str:
    return str(error) if isinstance(error, ScriptFailed) else f"{type(error).__name__}: {error}"
