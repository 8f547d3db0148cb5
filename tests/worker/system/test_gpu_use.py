"""What `nvidia-smi` says, and what happens when it says nothing. The program is a script here."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from eventually import eventually
from torchyard.shared.plan import DevicePlan
from torchyard.shared.processes import is_running, start_time
from torchyard.worker.system.gpu_use import GpuUse, read_answer

DEVICES = [DevicePlan("nvidia", 3, "GPU-3c"), DevicePlan("nvidia", 0, "GPU-0a")]
ANSWER = """\
0, GPU-0a, 97, 40960, 81920, 350.50, 700.00
1, GPU-1b, 5, 100, 81920, 60.00, 700.00
3, GPU-3c, [N/A], 1000, [N/A], [Not Supported], 700.00
"""


@pytest.fixture
def closing() -> Iterator[list[GpuUse]]:
    made: list[GpuUse] = []
    yield made
    for gpus in made:
        gpus.close()


def program(folder: Path, text: str) -> list[str]:
    """A stand-in for nvidia-smi."""
    file = folder / "nvidia-smi.py"
    file.write_text(text)
    return [sys.executable, "-S", str(file)]


def test_devices_are_numbered_by_their_place_on_the_node() -> None:
    assert read_answer(ANSWER, DEVICES) == {
        "gpu_0_memory_usage_megabytes": 1048.58,
        "gpu_1_utilization_percentage": 97.0,
        "gpu_1_memory_usage_megabytes": 42949.67,
        "gpu_1_memory_usage_percentage": 50.0,
        "gpu_1_power_usage_watts": 350.5,
        "gpu_1_power_usage_percentage": 50.07,
    }


@pytest.mark.parametrize("answer", ["", "NVIDIA-SMI has failed because it couldn't …\n", "1, 2\n"])
def test_an_answer_without_figures_gives_none(answer: str) -> None:
    assert read_answer(answer, DEVICES) == {}


def test_figures_are_recorded_again_and_again(tmp_path: Path, closing: list[GpuUse]) -> None:
    twice = threading.Semaphore(0)
    recorded: list[Mapping[str, float]] = []

    def record(figures: Mapping[str, float]) -> None:
        recorded.append(figures)
        twice.release()

    command = program(tmp_path, f"print({ANSWER!r})")
    closing.append(GpuUse(DEVICES, record, command=command, least_interval_s=0.0))
    closing[0].start()
    assert twice.acquire(timeout=60)
    assert recorded[0]["gpu_1_utilization_percentage"] == 97.0


def test_a_program_that_hangs_is_killed_and_then_left_alone(
    tmp_path: Path, closing: list[GpuUse]
) -> None:
    pids = tmp_path / "pids"
    command = program(
        tmp_path,
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(600)\n",
    )
    gpus = GpuUse(DEVICES, print, timeout_s=3.0, command=command, least_interval_s=0.0)
    closing.append(gpus)
    gpus.start()
    eventually(lambda: pids.exists() and pids.read_text().strip(), "the program to write its pid")
    pid = int(pids.read_text().split()[0])
    eventually(lambda: not start_time(pid), "the program to be killed")
    assert not gpus.pids


def test_closing_ends_a_program_that_still_runs(tmp_path: Path) -> None:
    gpus = GpuUse(DEVICES, print, command=program(tmp_path, "import time; time.sleep(600)"))
    gpus.start()
    eventually(lambda: gpus.pids, "the program to run")
    (pid,) = gpus.pids
    started = start_time(pid)
    gpus.close()
    eventually(lambda: not is_running(pid, started), "the program to end")


def test_a_machine_without_the_program_is_not_asked_again(closing: list[GpuUse]) -> None:
    gpus = GpuUse(DEVICES, print, command=["/nowhere/nvidia-smi"], least_interval_s=0.0)
    closing.append(gpus)
    gpus.start()
    eventually(
        lambda: not any(thread.name == "gpus" for thread in threading.enumerate()),
        "the thread to end",
    )


def test_a_node_without_nvidia_devices_asks_nobody() -> None:
    gpus = GpuUse([DevicePlan("amd", 0, "GPU-1")], print, command=["/bin/false"])
    before = set(threading.enumerate())
    gpus.start()
    assert set(threading.enumerate()) <= before
