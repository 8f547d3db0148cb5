"""Run workloads one after the other, each in a process of its own, and write down each result.

Owns: the processes, their time limits, the file and the lines of results, asking the environment
about itself.
Leaves: what a workload does to its module, what the results mean to the server.
Always: a workload that crashes or hangs is a failed one, and the next one runs; a result is
written before the next workload starts; every rank has its own file, and every workload a store of
its own; CUDA is never begun in this process, since a fork could not use it.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from . import checks

RESULTS = Path("outputs/validation")
PREFIX = "validation: "
_HARDWARE = {"name": "hardware", "module": "torchyard_validation.checks", "limit_s": 300,
             "function": "hardware"}  # fmt: skip
_HERE = Path(__file__).parent
# At the first port each rank learns the ports of the others, one store for each workload.
_STORES = (
    "import sys; from datetime import timedelta; from torch.distributed import TCPStore\n"
    "def store(port):\n"
    "    return TCPStore(sys.argv[1], port, -1, True, timedelta(seconds=600),"
    " wait_for_workers=False)\n"
    "first = store(int(sys.argv[2]))\n"
    "others = [store(0) for _ in range(int(sys.argv[3]))]\n"
    "first.set('ports', ' '.join(str(other.port) for other in others))\n"
    "print('ready', flush=True); sys.stdin.read()\n"
)


def main() -> int:
    """1 where a workload failed."""
    settings = json.loads((_HERE / "settings.json").read_text(encoding="utf-8"))
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    answer = _answer(settings["variables"])
    _prepare()
    RESULTS.mkdir(parents=True, exist_ok=True)
    hardware: dict[str, Any] = _run(_HARDWARE, settings, rank)["figures"]
    stores: subprocess.Popen[bytes] | None = None
    ports: list[str] = []
    if ranks > 1 and importlib.util.find_spec("torch") is not None:
        stores, ports = _stores(rank, ranks, len(settings["workloads"]), hardware)
    failed = 0
    with open(RESULTS / f"rank-{rank}.jsonl", "w", encoding="utf-8") as results:
        _write(results, {"hardware": hardware, "rank": rank, "ranks": ranks})
        _write(results, {"answer": answer, "rank": rank})
        for number, workload in enumerate(settings["workloads"]):
            if ports:
                os.environ["MASTER_PORT"] = ports[number]
            print(f"validation of {workload['name']} begins", flush=True)
            result = _run(workload, settings, rank)
            failed += result["status"] == "failed"
            _write(results, result)
    if stores is not None:
        stores.terminate()
        stores.wait()
    return 1 if failed else 0


def _answer(variables: list[str]) -> dict[str, Any]:
    """What the environment says of itself, before anything here changes it."""
    program = importlib.import_module(".answer", __package__)
    answer: dict[str, Any] = program.answer(variables)
    return answer


def _prepare() -> None:
    # Nothing of a hub is needed, and looking for one would cost minutes without a network.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("MPLBACKEND", "Agg")
    sys.path.append(str(_HERE / "own"))  # for what a user's workloads share
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch")  # once: the processes are forked


def _stores(
    rank: int, ranks: int, count: int, hardware: dict[str, Any]
) -> tuple[subprocess.Popen[bytes] | None, list[str]]:
    """The process of the stores at which ranks meet, on rank 0, and the port of each workload's.

    Of one store for all, a rank may read where the others were in the workload before: torch's own
    agents have a new one for each attempt. NCCL wants a GPU for each rank: where one lacks it, all
    use their processors.
    """
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    process = None
    if rank == 0:
        process = subprocess.Popen(
            [sys.executable, "-c", _STORES, address, port, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
    distributed = importlib.import_module("torch.distributed")
    first = distributed.TCPStore(address, int(port), -1, False, timedelta(seconds=600))
    has_gpu = len(hardware.get("gpus", ())) > int(os.environ.get("LOCAL_RANK", "0"))
    first.set(f"gpu/{rank}", "yes" if has_gpu else "no")
    if any(first.get(f"gpu/{other}") != b"yes" for other in range(ranks)):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return process, first.get("ports").decode().split()


def _run(workload: dict[str, Any], settings: dict[str, Any], rank: int) -> dict[str, Any]:
    """Run one in a forked process; its result."""
    name, limit_s = workload["name"], float(workload["limit_s"])
    began = time.monotonic()
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setpgid(0, 0)
        _in_child(workload, settings, write)
    with suppress(OSError):
        os.setpgid(child, child)  # the first of the two does it
    os.close(write)
    outcome = _outcome(child, read, began + limit_s, limit_s)
    seconds = round(time.monotonic() - began, 3)
    return {"name": name, "rank": rank, "seconds": seconds, "figures": {}, "reason": "", **outcome}


def _outcome(child: int, read: int, until: float, limit_s: float) -> dict[str, Any]:
    os.set_blocking(read, False)
    text, status = b"", None
    while status is None:
        try:
            while piece := os.read(read, 1 << 16):
                text += piece
        except BlockingIOError:
            pass
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = code
        elif time.monotonic() > until:
            _end(child)
            return {"status": "failed", "reason": f"not done after {limit_s:g} s"}
        else:
            time.sleep(0.02)
    try:
        while piece := os.read(read, 1 << 16):
            text += piece
    except BlockingIOError:
        pass  # a process that it left behind has the pipe open
    os.close(read)
    _end(child)  # what it left behind in its process group
    if text:
        outcome: dict[str, Any] = json.loads(text)
        return outcome
    if os.WIFSIGNALED(status):
        reason = f"its process ended by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        reason = f"its process ended with exit code {os.WEXITSTATUS(status)}"
    return {"status": "failed", "reason": reason}


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        os.waitpid(group, 0)
    except ChildProcessError:
        pass


def _in_child(workload: dict[str, Any], settings: dict[str, Any], write: int) -> None:
    """Run it, send its outcome, end the process without the parent's cleanup."""
    faulthandler.enable()
    try:
        module = _module(workload["module"])
        figures = getattr(module, workload["function"])(*_arguments(workload, settings))
        outcome = {"status": "passed", "figures": figures or {}}
    except checks.Skipped as skipped:
        outcome = {"status": "skipped", "reason": str(skipped)}
    except BaseException as error:
        traceback.print_exc()
        outcome = {"status": "failed", "reason": _reason(error)}
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(write, json.dumps(outcome, default=float).encode())
    os._exit(0)


def _reason(error: BaseException) -> str:
    """What it says, and what the first error was that led to it."""
    words = " ".join(str(error).split())[:500]
    reason = words if isinstance(error, AssertionError) else f"{type(error).__name__}: {words}"
    if error.__cause__ is not None:
        while error.__cause__ is not None:
            error = error.__cause__
        reason += f" (because of {type(error).__name__}: {' '.join(str(error).split())[:300]})"
    return reason


def _module(name: str) -> Any:
    """By its name, or by its file below this folder, which is a user's own."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, _HERE / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments(workload: dict[str, Any], settings: dict[str, Any]) -> list[Any]:
    return [settings["requested"]] if workload.get("takes_requested") else []


def _write(results: Any, line: dict[str, Any]) -> None:
    text = json.dumps(line, sort_keys=True)
    results.write(text + "\n")
    results.flush()
    os.fsync(results.fileno())
    print(PREFIX + text, flush=True)
