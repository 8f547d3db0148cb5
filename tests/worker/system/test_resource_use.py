"""What a machine, trees of processes and a cgroup use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from torchyard.worker.system.resource_use import GroupUse, MachineUse, Shares, TreeUse, Use

_STAT = "cpu  {user} 0 100 {idle} 50 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
_NETWORK = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: 9000000       9    0    0    0     0          0         0  9000000       9    0
  eth0: {received}    9    0    0    0     0          0         0  {sent}       9    0
"""
# Burns 0.3 s of CPU in a child that ends, then waits with 50 MB.
_TREE = """
import subprocess, sys, time
burn = "import time\\nwhile time.process_time() < 0.3: pass"
subprocess.run([sys.executable, "-c", burn])
hold = "import sys; x = bytearray(50_000_000); print(1, flush=True); sys.stdin.read()"
words = [sys.executable, "-c", hold]
child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
"""


def write_machine(proc: Path, user: int, idle: int, received: int, sent: int) -> None:
    (proc / "net").mkdir(parents=True, exist_ok=True)
    (proc / "stat").write_text(_STAT.format(user=user, idle=idle))
    (proc / "meminfo").write_text(
        "MemTotal:  1000000 kB\nMemFree: 10 kB\nMemAvailable:  250000 kB\n"
    )
    (proc / "net" / "dev").write_text(_NETWORK.format(received=received, sent=sent))


def test_a_machine_is_measured_between_two_readings(tmp_path: Path) -> None:
    write_machine(tmp_path, user=1000, idle=9000, received=5_000_000, sent=1_000_000)
    machine = MachineUse(tmp_path, tmp_path)
    write_machine(tmp_path, user=1300, idle=9100, received=7_500_000, sent=1_000_000)
    figures = machine.read()
    assert figures["cpu_utilization_percentage"] == 75.0
    assert figures["network_receive_megabytes"] == 2.5
    assert figures["network_transmit_megabytes"] == 0.0
    assert figures["system_memory_usage_percentage"] == 75.0
    assert figures["system_memory_usage_megabytes"] == 768.0
    assert 0 < figures["disk_usage_percentage"] <= 100
    assert figures["disk_available_megabytes"] > 0


def test_what_can_not_be_read_is_left_out(tmp_path: Path) -> None:
    machine = MachineUse(tmp_path / "gone", tmp_path / "gone")
    assert machine.read() == {}


def test_the_real_machine_has_all_figures(tmp_path: Path) -> None:
    machine = MachineUse(tmp_path)
    deadline = time.monotonic() + 60
    while True:
        figures = machine.read()
        if "cpu_utilization_percentage" in figures or time.monotonic() > deadline:
            break
    assert 0 <= figures["cpu_utilization_percentage"] <= 100
    assert 0 < figures["system_memory_usage_percentage"] < 100


def test_a_tree_counts_children_and_those_that_have_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as root:
        assert root.stdout is not None
        root.stdout.readline()
        use = TreeUse().read([root.pid])[root.pid]
        root.communicate()
    assert use.cpu_s >= 0.3
    assert use.memory_bytes >= 50_000_000


def test_a_tree_whose_root_has_ended_has_no_figures() -> None:
    root = subprocess.Popen([sys.executable, "-c", ""])
    root.wait()
    assert TreeUse().read([root.pid]) == {}


def test_a_number_that_passed_to_another_process_is_not_the_old_tree(tmp_path: Path) -> None:
    def write(started: int) -> None:
        (tmp_path / "77").mkdir(exist_ok=True)
        fields = ["S", "1", *["0"] * 9, "100", "50", "20", "10", *["0"] * 4, str(started), "0", "3"]
        (tmp_path / "77" / "stat").write_text(f"77 (a) b) {' '.join(fields)} 0 0\n")

    trees = TreeUse(tmp_path)
    write(started=5)
    ticks = os.sysconf("SC_CLK_TCK")
    assert trees.read([77]) == {77: Use(180 / ticks, 3 * os.sysconf("SC_PAGE_SIZE"))}
    write(started=6)
    assert trees.read([77]) == {}


def test_a_cgroup_of_version_2_is_read_without_pages_that_are_idle(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    assert GroupUse([tmp_path]).read() == (2.5, 800_000)


def test_a_cgroup_of_version_1_is_in_several_folders(tmp_path: Path) -> None:
    cpu, memory = tmp_path / "cpu", tmp_path / "memory"
    cpu.mkdir()
    memory.mkdir()
    (cpu / "cpuacct.usage").write_text("1500000000\n")
    (memory / "memory.usage_in_bytes").write_text("900\n")
    (memory / "memory.stat").write_text("total_inactive_file 1000\n")
    assert GroupUse([cpu, memory]).read() == (1.5, 0)


def test_without_a_cgroup_nothing_is_counted() -> None:
    assert GroupUse([]).read() == (None, None)


def test_a_share_needs_two_readings_and_is_never_negative() -> None:
    shares = Shares()
    assert shares.percentage("a", 10.0) is None
    assert shares.percentage("a", 9.0) == 0.0
