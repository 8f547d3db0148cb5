"""Start a function on several ranks, each a process of its own with gloo.

Owns: the processes and what they answer.
Leaves: what they do to functions of modules below tests/train.
Always: no rank of a test outlives it.

One process imports torch and forks the ranks, because imports take most of a short test's time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src"


def run(function: str, ranks: int, *arguments: Any, timeout_s: float = 180) -> list[Any]:
    """Call `module:function(*arguments)` on every rank; returns what each returned, as JSON."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        process = start(function, ranks, folder, *arguments)
        try:
            code = process.wait(timeout_s)
        finally:
            end(process)
        logs = (folder / "log").read_text()
        assert code == 0, logs
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def start(
    function: str, ranks: int, folder: Path, *arguments: Any, **variables: str
) -> subprocess.Popen[bytes]:
    """Start all ranks; answers, the log and `pids` go to `folder`."""
    environment = {**_environment(ranks), **variables}
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "train.training_ranks", function, str(folder),
             json.dumps(arguments)],
            env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip


def _environment(ranks: int) -> dict[str, str]:
    environment = {
        **os.environ, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join((str(SOURCE), str(TESTS))), "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    # Without the compiled modules, each import of torch takes seconds more.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


class RankServer:
    """Starts ranks, and they their writers, from one process that has imported torch."""

    def __init__(self, log: Path) -> None:
        environment = _environment(1)
        self._log = log
        self._groups: list[int] = []
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "train.training_ranks"], env=environment, stderr=file,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip

    def start(self, function: str, ranks: int, folder: Path, *arguments: Any) -> int:
        """Start all ranks in a process group of their own; returns its number."""
        assert self._process.stdin is not None and self._process.stdout is not None
        line = json.dumps([function, ranks, str(folder), json.dumps(arguments)])
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()
        self._groups.append(int(answer))
        return self._groups[-1]

    def close(self) -> None:
        """Kill what still runs; writers end by themselves."""
        for group in self._groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()


class _ForkedWriter:
    """A writer's process in the place of `subprocess.Popen`, without importing torch again."""

    def __init__(self, command: list[str], *, pass_fds: list[int], **_: Any) -> None:
        self._lock = threading.Lock()
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            descriptors = sorted({0, 1, 2, *pass_fds})
            for low, high in zip(descriptors, [*descriptors[1:], 4096], strict=True):
                os.closerange(low + 1, high)
            try:
                importlib.import_module("torchyard.train.checkpoint.writer").main(pass_fds[0])
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(0)

    def wait(self) -> int:
        with self._lock:
            if self._code is None:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self._code


def fork_writers() -> None:
    """From now on this process forks its writers."""
    from torchyard.train import writing_process

    class Forking:
        Popen = _ForkedWriter
        DEVNULL = subprocess.DEVNULL

    vars(writing_process)["subprocess"] = Forking


def serve() -> None:
    for name in ("torch.distributed.checkpoint", "torchyard.train.checkpoint.writer"):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        function, ranks, folder, arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            log = os.open(Path(folder, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            for descriptor, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
                os.dup2(source, descriptor)
            os.environ["WORLD_SIZE"] = str(ranks)
            fork_writers()
            os._exit(main(function, folder, arguments))
        print(pid, flush=True)


def wait_until(condition: Callable[[], bool], notes: Path, timeout_s: float = 100) -> None:
    """Wait for ranks whose log is in `notes`; fails as soon as one of them has."""
    until = time.monotonic() + timeout_s
    while not condition():
        log = (notes / "log").read_text() if (notes / "log").exists() else ""
        assert "Traceback" not in log and time.monotonic() < until, log
        time.sleep(0.02)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the ranks; their writers end by themselves."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def main(function: str, folder: str, arguments: str) -> int:
    import torch.distributed as dist

    module, _, name = function.partition(":")
    called = getattr(importlib.import_module(module), name)
    ranks = int(os.environ["WORLD_SIZE"])
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            _run_rank(dist, called, rank, ranks, folder, json.loads(arguments))
        pids.append(pid)
    Path(folder, "pids.part").write_text(json.dumps(pids))
    os.rename(Path(folder, "pids.part"), Path(folder, "pids"))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return 0 if codes == [0] * ranks else 1


def _run_rank(
    dist: Any, called: Any, rank: int, ranks: int, folder: str, arguments: list[Any]
) -> None:
    """In a process of its own, which ends here as a Python does: with its exit functions."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    faulthandler.dump_traceback_later(150)
    try:
        if ranks > 1:
            file = f"file://{folder}/rendezvous"
            dist.init_process_group("gloo", file, rank=rank, world_size=ranks)
        answer = called(*arguments)
        Path(folder, f"{rank}.json").write_text(json.dumps(answer))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.exit(0)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    else:
        sys.exit(main(*sys.argv[1:]))
