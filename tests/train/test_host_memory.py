"""How much memory a copy may take, by files like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.train.host_memory import available_bytes


@pytest.mark.parametrize(
    ("group", "limited"), [("/", "."), ("/job/rank", "job/rank"), ("/job/rank", "job")]
)
def test_cached_files_of_a_control_group_are_available(
    tmp_path: Path, group: str, limited: str
) -> None:
    _machine(tmp_path, group)
    _limit(tmp_path / "sys/fs/cgroup" / limited, "1000000")
    assert available_bytes(tmp_path) == 600_000


def test_the_tightest_limit_counts_and_is_never_below_nothing(tmp_path: Path) -> None:
    _machine(tmp_path, "/job/rank")
    _limit(tmp_path / "sys/fs/cgroup/job/rank", "1000000")
    _limit(tmp_path / "sys/fs/cgroup/job", "300000")
    assert available_bytes(tmp_path) == 0


def test_without_limits_the_machines_own_memory_counts(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    _machine(tmp_path, "/job")
    assert available_bytes(tmp_path) == 2_048_000
    _limit(tmp_path / "sys/fs/cgroup/job", "max")
    assert available_bytes(tmp_path) == 2_048_000


def _machine(root: Path, group: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    2000 kB\n")
    (root / "proc/self/cgroup").write_text(f"1:cpu:/x\n0::{group}\n")


def _limit(folder: Path, limit: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit + "\n")
    (folder / "memory.current").write_text("900000\n")
    (folder / "memory.stat").write_text(
        "anon 400000\nfile 500000\ninactive_file 300000\nactive_file 200000\n"
    )
