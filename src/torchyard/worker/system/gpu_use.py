"""How much of a node's GPUs is in use, asked of `nvidia-smi`.

Owns: when it is asked, how long it is waited for, reading its answer.
Leaves: which GPUs a node has to the plan; what becomes of the figures to node/system_metrics.py.
Always: nobody waits for it but one thread of its own. The program is killed when it takes too long
and not asked any more when that happens again and again. It is asked so rarely that it takes half a
percent of a core at most.

Source: `nvidia-smi --help-query-gpu`. Names and units are those of MLflow's system metrics.
"""

from __future__ import annotations

import csv
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from torchyard.shared.plan import DevicePlan
from torchyard.shared.processes import is_running, send, start_time

TIMEOUT_S = 10.0
LEAST_INTERVAL_S = 30.0
_SHARE = 0.005
_MOST_FAILURES = 3
_QUERY = "index,uuid,utilization.gpu,memory.used,memory.total,power.draw,enforced.power.limit"
_COMMAND = ("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
_MIB = 1 << 20


class GpuUse:
    """Asks again and again between `start` and `close`.

    Args:
        devices: of the node; GPUs are numbered by their place in it, from 0.
        record: gets the figures, in a thread of its own.
        interval_s: how long to wait between two questions; half a minute at least.
    """

    def __init__(
        self,
        devices: Sequence[DevicePlan],
        record: Callable[[Mapping[str, float]], None],
        interval_s: float = 0.0,
        timeout_s: float = TIMEOUT_S,
        command: Sequence[str] = _COMMAND,
        least_interval_s: float = LEAST_INTERVAL_S,
    ) -> None:
        self._devices = [device for device in devices if device.kind == "nvidia"]
        self._record = record
        self._interval_s = max(interval_s, least_interval_s)
        self._timeout_s = timeout_s
        self._command = command
        self._closed = threading.Event()
        self._lock = threading.Lock()
        # Those that run, by pid, with when they started.
        self._asked: dict[int, int] = {}

    def start(self) -> None:
        if self._devices:
            threading.Thread(target=self._run, name="gpus", daemon=True).start()

    @property
    def pids(self) -> Collection[int]:
        """Processes beside the ranks, for which nobody waits."""
        with self._lock:
            return [pid for pid, started in self._asked.items() if is_running(pid, started)]

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            for pid, started in self._asked.items():
                send(pid, started, signal.SIGKILL)

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set() and failures < _MOST_FAILURES:
            began = time.monotonic()
            try:
                answer = self._ask()
            except FileNotFoundError:
                return
            except OSError as error:
                answer, failures = "", failures + 1
                print(f"no figures of GPUs: {error}", file=sys.stderr, flush=True)
            took_s = time.monotonic() - began
            figures = read_answer(answer, self._devices)
            if figures and not self._closed.is_set():
                failures = 0
                self._record(figures)
            self._closed.wait(max(self._interval_s, took_s / _SHARE))

    def _ask(self) -> str:
        """
        Raises:
            OSError: it could not be started, or did not answer in time.
        """
        with self._lock:
            if self._closed.is_set():
                return ""
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                # Without the mark of the job's processes.
                env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            )
            # It may have ended, and been reaped by the main thread, which is as good.
            self._asked[process.pid] = started = start_time(process.pid)
        assert process.stdout is not None
        try:
            answer = _read(process.stdout.fileno(), time.monotonic() + self._timeout_s)
        except TimeoutError:
            # Its pid stays among those that nobody waits for.
            send(process.pid, started, signal.SIGKILL)
            raise
        finally:
            process.stdout.close()
            # The main thread reaps all children; Python must not look for this one.
            process.returncode = 0
        with self._lock:
            self._asked.pop(process.pid, None)
        return answer


def read_answer(answer: str, devices: Sequence[DevicePlan]) -> dict[str, float]:
    """The figures of these devices; without those that a GPU does not have, `[N/A]`."""
    figures: dict[str, float] = {}
    for row in csv.reader(answer.splitlines(), skipinitialspace=True):
        if len(row) < 7:
            continue
        index = next((n for n, device in enumerate(devices) if _is(device, row)), None)
        if index is not None:
            values = _figures(*[_number(field) for field in row[2:7]])
            for name, value in values.items():
                if value is not None:
                    figures[f"gpu_{index}_{name}"] = round(value, 2)
    return figures


def _figures(
    busy: float | None,
    used_mib: float | None,
    memory_mib: float | None,
    watts: float | None,
    most_watts: float | None,
) -> dict[str, float | None]:
    return {
        "utilization_percentage": busy,
        "memory_usage_megabytes": None if used_mib is None else used_mib * _MIB / 1e6,
        "memory_usage_percentage": _percentage(used_mib, memory_mib),
        "power_usage_watts": watts,
        "power_usage_percentage": _percentage(watts, most_watts),
    }


def _percentage(part: float | None, total: float | None) -> float | None:
    return None if part is None or not total else 100 * part / total


def _is(device: DevicePlan, row: Sequence[str]) -> bool:
    index, uuid = row[0].strip(), row[1].strip()
    return device.uuid == uuid if device.uuid.startswith("GPU-") else str(device.index) == index


def _number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None


def _read(file: int, deadline: float) -> str:
    """
    Raises:
        TimeoutError: it has no end in time.
    """
    content = b""
    while True:
        ready, _, _ = select.select([file], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("nvidia-smi did not answer in time")
        block = os.read(file, 65536)
        if not block:
            return content.decode(errors="replace")
        content += block
