"""The program that runs a script on the client's machine."""

from __future__ import annotations

import time
from pathlib import Path

from torchyard.local_program import program
from torchyard.worker.launch.ranks import Rank, RankExit


def test_an_abort_after_the_scripts_end_is_only_printed(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    printed.write_text("epoch 3\n")
    exit = RankExit(Rank(0, 0, printed, "user_logs/std_log.txt"), 134, 6, 70, time.time())
    assert not program._is_late_abort(exit, tmp_path, printed)
    assert printed.read_text() == "epoch 3\n"
    (tmp_path / "70.end").touch()
    assert program._is_late_abort(exit, tmp_path, printed)
    assert "aborted (SIGABRT) after its script had ended" in printed.read_text()
