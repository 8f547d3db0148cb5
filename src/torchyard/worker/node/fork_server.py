"""Fork workers from one process that has imported the modules which most of them need.

Started as `python -I -S worker.pyz --fork-server FD` by executors/fork_server.py.

Owns: receiving requests from the server; a new worker's session, output and descriptors.
Leaves: everything after that to supervised_worker.py.
Always: it has one thread, which only imports and forks; it ends when the server that started it
ends, and its workers go on; a worker has the descriptors of its own request and no others.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path

from torchyard.shared import descriptors
from torchyard.worker.node import supervised_worker, supervisor

_REQUEST_BYTES = 1 << 16
# Linux's SCM_MAX_FD.
_MAX_DESCRIPTORS = 253


def serve(descriptor: int) -> int:
    """Fork a worker for each request until the server closes its end of the channel.

    A request is a JSON object with `plan`, the path of the plan's file, and `node`. Its descriptors
    are the file for the worker's output, then those that the ranks inherit. The response is
    `{"pid": …}`, or `{"errno": …}` if the fork failed.
    """
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    _import_modules()
    # A worker's garbage collections skip these objects, so that their pages stay shared.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, lambda *_: supervisor.reap_all())
    while True:
        content, passed, _ = descriptors.receive_message(channel, _REQUEST_BYTES, _MAX_DESCRIPTORS)
        if not content:
            return 0
        request = json.loads(content)
        response = _fork(channel, Path(request["plan"]), int(request["node"]), passed)
        for each in passed:
            os.close(each)
        channel.send(json.dumps(response).encode())


def _fork(channel: socket.socket, plan: Path, node: int, passed: list[int]) -> dict[str, int]:
    sys.stderr.flush()
    try:
        pid = os.fork()
    except OSError as error:
        return {"errno": error.errno or 0}
    if pid == 0:
        os._exit(_run_worker(channel, plan, node, *passed))
    return {"pid": pid}


def _run_worker(channel: socket.socket, plan: Path, node: int, log: int, *inherited: int) -> int:
    exit_code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        channel.close()
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        exit_code = supervised_worker.run(plan, node)
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    return exit_code


def _import_modules() -> None:
    """Import what a job of one process uses; workers import the modules of rarer jobs."""
    import encodings.idna
    import shutil
    import traceback

    from torchyard.worker.diagnosis import silent_faults, watches
    from torchyard.worker.files import thin_environment
    from torchyard.worker.node import node, system_metrics
    from torchyard.worker.relay import relay_server, run_state
    from torchyard.worker.system import mount_launcher

    del encodings, shutil, traceback, silent_faults, watches, thin_environment
    del node, system_metrics, relay_server, run_state, mount_launcher
