"""What the user is told of a full disk."""

from __future__ import annotations

from pathlib import Path

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
