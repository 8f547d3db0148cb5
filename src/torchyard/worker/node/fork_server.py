"""Fork workers from one process that has imported what most of them need.

`python -I -S worker.pyz --fork-server FD`, as executors/fork_server.py starts it.

Owns: taking requests from the server, what a worker is given of its own before it begins.
Leaves: everything after that to supervised_worker.py.
Always: one thread that only imports and forks; it ends with the server that started it, and its
workers go on; a worker begins with the descriptors of its own request and no others.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path

from torchyard.worker.node import supervised_worker, supervisor

_REQUEST_BYTES = 1 << 16
_MOST_DESCRIPTORS = 253


def serve(descriptor: int) -> int:
    """Answer each request with the worker's pid until the server has closed its end.

    A request is a JSON object with `plan`, the path of its file, and `node`; with it come the file
    for the worker's output, then what is handed to the ranks. The answer is `{"pid": …}`, or
    `{"errno": …}` where no process can be had.
    """
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    _import_workers_modules()
    # Collections in a worker leave these objects alone, so that their pages stay shared.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, lambda *_: supervisor.reap_all())
    while True:
        content, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, _MOST_DESCRIPTORS)
        if not content:
            return 0
        request = json.loads(content)
        answer = _fork(channel, Path(request["plan"]), int(request["node"]), descriptors)
        for each in descriptors:
            os.close(each)
        channel.send(json.dumps(answer).encode())


def _fork(channel: socket.socket, plan: Path, node: int, descriptors: list[int]) -> dict[str, int]:
    sys.stderr.flush()
    try:
        pid = os.fork()
    except OSError as error:
        return {"errno": error.errno or 0}
    if pid == 0:
        os._exit(_be_worker(channel, plan, node, *descriptors))
    return {"pid": pid}


def _be_worker(channel: socket.socket, plan: Path, node: int, log: int, *handed: int) -> int:
    exit_code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        channel.close()
        for standard in (1, 2):
            os.dup2(log, standard)
        os.close(log)
        for each in handed:
            os.set_inheritable(each, True)
        exit_code = supervised_worker.run(plan, node)
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    return exit_code


def _import_workers_modules() -> None:
    """What a job of one process uses; the modules of rarer ones are imported where they are."""
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
