"""The guide's loop: stopped and started again, it ends with the weights of one that never was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

# As if the platform, or a crash, ended the script in the middle of a step.
END = """        if os.environ.get("END_AT") == str(loop.step):
            loop.checkpointer.wait()
            os.kill(os.getpid(), int(os.environ["END_BY"]))
"""


def test_the_guides_loop_goes_on_with_the_same_weights(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/checkpoints.md").read_text()
    script = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0]
    assert script.count("        optimizer.step()\n") == 1
    script = script.replace("        optimizer.step()\n", f"        optimizer.step()\n{END}")
    (tmp_path / "train.py").write_text(f"import os\n{script}")

    undisturbed = _run(tmp_path / "train.py", tmp_path / "undisturbed")
    assert undisturbed[0] == "resumed from None, now at 48"
    folder = tmp_path / "stopped"
    killed = _run(tmp_path / "train.py", folder, end_at=25, by=signal.SIGKILL)
    assert killed == []
    # The checkpoint of step 20 is in the middle of the second epoch.
    terminated = _run(tmp_path / "train.py", folder, end_at=37, by=signal.SIGTERM)
    assert terminated == []
    resumed = _run(tmp_path / "train.py", folder)
    assert resumed == ["resumed from 38, now at 48", undisturbed[1]]


def _run(
    script: Path, folder: Path, end_at: int = -1, by: signal.Signals = signal.SIGKILL
) -> list[str]:
    """What it printed, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    completed = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "END_AT": str(end_at), "END_BY": str(int(by)),
             "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert completed.returncode == (0 if end_at < 0 else -by), completed.stderr
    return completed.stdout.splitlines()
