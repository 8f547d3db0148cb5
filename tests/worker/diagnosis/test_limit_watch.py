"""What the user is told of a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.shared.plan import LimitsPlan
from torchyard.worker.diagnosis.limit_watch import LimitWatch, WatchedNode
from torchyard.worker.files.log_space import LogSpace
from torchyard.worker.files.node_folders import NodeFolders, make_folders


class _Space(LogSpace):
    """A disk that others fill and empty."""

    is_filled = False

    def is_full(self) -> bool:
        return self.is_filled


def test_a_disk_that_is_full_again_and_again_is_told_once(tmp_path: Path) -> None:
    folders = NodeFolders(tmp_path)
    make_folders(folders)
    notices: list[str] = []
    log = folders.user_logs / "std_log.txt"
    log.write_text("epoch 1\n")
    node = WatchedNode(0, "attempt:0", folders, (log,), counted=True)
    watch = LimitWatch(node, LimitsPlan(), notices.append)
    watch._space = space = _Space(tmp_path)
    for _ in range(3):
        for space.is_filled in (True, False):
            watch.check({})
    assert [notice for notice in notices if "no space left on `scratch`" in notice] == notices[:1]


class _Refusing(LimitWatch):
    """Of ranks that the kernel refused a process, just before they ended."""

    def _refused_more(self) -> bool:
        return True


def test_ranks_that_met_their_limit_of_processes_and_succeeded_are_told(tmp_path: Path) -> None:
    folders = NodeFolders(tmp_path)
    make_folders(folders)
    notices: list[str] = []
    node = WatchedNode(1, "attempt:1", folders, (), counted=True)
    watch = _Refusing(node, LimitsPlan(processes=4096), notices.append)
    assert watch.explain(None) is None
    (notice,) = notices
    assert notice.startswith(
        "the ranks on node 1 started more processes and threads than the 4,096 they may have at "
        "once, and the job went on: look for a program that starts"
    )


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("bash: fork: retry: Resource temporarily unavailable", True),
        ("run.sh: fork: Resource temporarily unavailable", True),
        ("sh: 0: Cannot fork", True),
        ("BlockingIOError: Resource temporarily unavailable", False),
    ],
)
@pytest.mark.parametrize("before", [0, 100_000])
def test_a_shell_that_could_start_no_process_is_told(
    tmp_path: Path, line: str, is_told: bool, before: int
) -> None:
    folders = NodeFolders(tmp_path)
    make_folders(folders)
    notices: list[str] = []
    log = folders.user_logs / "std_log.txt"
    watch = LimitWatch(
        WatchedNode(0, "attempt:0", folders, (log,), counted=False), LimitsPlan(), notices.append
    )
    log.write_text("x" * before + f"\n{line}\n" + "x" * 50_000)
    assert watch.explain(None) is None
    assert [notice.split(",")[0] for notice in notices] == is_told * [
        "a shell on node 0 could not start a process"
    ]
