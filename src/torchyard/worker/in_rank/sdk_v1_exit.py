"""What a script logged by SDK v1 and did not flush, sent when its Python ends.

Owns: finding the values that the client still holds, stopping the threads that would take them.
Leaves: noticing the client's import to rank_hook.py, sending to the client itself, what is lost
when Python is killed to sdk_v1_unsent.py.
Always: nothing is imported that the script does not import; a failure in here is silent.
Runs on Python 3.6 and later.

The client collects the values of `run.log` for a second, in threads that end with the script. Azure
wraps scripts so that they flush; here they run unwrapped.
"""

import sys
import time

MYPY = False
if MYPY:
    from typing import Any

_UNSENT = "_torchyard_azure_unsent"
_BATCH = 45
_MOST_BATCHES = 10_000
_IN_HAND_S = 10.0


def expect(folder: str) -> None:
    """Flush before the pools of threads end; the client is being imported, which uses them.

    Args:
        folder: of the rank, for copies of what is not sent yet.
    """
    try:
        __import__(_UNSENT).watch(folder)
    except Exception:
        pass
    import threading
    from concurrent.futures import thread  # noqa: F401  # What comes later is asked earlier.

    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_silently)


def flush() -> None:
    """Send it, in this thread: at the end of a Python there may be no others."""
    runs = sys.modules.get("azureml._run_impl.run_base")
    if runs is None:
        return
    for client in _clients(runs):
        try:
            _flush(client)
        except Exception:
            pass


def _silently() -> None:
    try:
        flush()
    except Exception:
        pass


def _clients(runs: "Any") -> "list[Any]":
    """Of the runs that were not cleaned up."""
    clients = []  # type: list[Any]
    for handler in list(runs._RunBase._registered_kill_handlers.queue):
        client = handler.__self__._client.metrics
        if not any(other is client for other in clients):
            clients.append(client)
    return clients


def _flush(client: "Any") -> None:
    for queue, send in (
        (client._task_queue_v2_internal, client._log_batch_v2),
        (client._task_queue_internal, client._log_batch),
    ):
        items = getattr(queue, "_items", None)
        if items is None:
            continue
        _stop(queue._daemon)
        for _ in range(_MOST_BATCHES):
            if items.empty():
                break
            batch = []  # type: list[Any]
            while len(batch) < _BATCH and not items.empty():
                batch.append(items.get_nowait())
            # The queue's own, where its items are copied: it takes note of what was sent.
            getattr(queue, "_work_func", send)(batch)


def _stop(daemon: "Any") -> None:
    """What it has in hand it may still give to the pool."""
    daemon.stop()
    deadline = time.time() + _IN_HAND_S
    while daemon.current_thread is not None and time.time() < deadline:
        time.sleep(0.01)
