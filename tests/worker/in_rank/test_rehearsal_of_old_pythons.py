"""Environments whose Python is older than what a rehearsal needs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files import rehearsal


@pytest.mark.parametrize(
    ("configuration", "old"),
    [
        ("home = /x\nversion_info = 3.6.15\n", "3.6"),
        ("version = 3.7.16\n", "3.7"),
        ("version_info = 3.8.18\n", ""),
        ("version_info = 3.13\n", ""),
        ("home = /x\n", ""),
        (None, ""),
    ],
)
def test_they_are_left_alone_and_the_log_says_so(
    tmp_path: Path, configuration: str | None, old: str
) -> None:
    if configuration is not None:
        (tmp_path / "pyvenv.cfg").write_text(configuration)
    plan = LaunchPlan(
        attempt_id="a", attempt=1, job="j", workspace="w", experiment="e", command="true",
        server_url="", report_token="", run_token="", scratch="", environment=str(tmp_path),
        rehearsed_gpus=1,
    )  # fmt: skip
    rank = SimpleNamespace(log=tmp_path / "log")
    rehearsal.announce(plan, [rank])
    log = rank.log.read_text()
    if old:
        assert rehearsal.variables(plan) == {}
        assert f"not supported with Python {old};" in log
    else:
        assert rehearsal.variables(plan) == {rehearsal.VARIABLE: "1"} and "NCCL is gloo" in log
