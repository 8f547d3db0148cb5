"""Run a training script in a folder of its own, ended by a signal at a step or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src"

# What each script prints at its end.
WEIGHTS = """
import hashlib
weights = torch.cat([parameter.flatten() for parameter in model.parameters()])
print("resumed from", run.resumed_from, "now at", run.step)
print(hashlib.sha256(weights.detach().numpy().tobytes()).hexdigest())
"""


def train(
    script: Path,
    folder: Path,
    end_at: int = -1,
    by: signal.Signals = signal.SIGKILL,
    python: str = sys.executable,
) -> list[str]:
    """The last two lines that it printed; none when it was ended.

    The script calls `end(step)` before each step.
    """
    folder.mkdir(exist_ok=True)
    variables = {
        **os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "END_AT": str(end_at),
        "END_BY": str(int(by)), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    completed = subprocess.run(
        [python, str(script)], cwd=folder, capture_output=True, text=True, timeout=600,
        env=variables,
    )  # fmt: skip
    assert completed.returncode == (0 if end_at < 0 else -by), completed.stderr
    return completed.stdout.splitlines()[-2:] if end_at < 0 else []


def write(path: Path, text: str) -> Path:
    """The script, with what all of them need."""
    path.write_text(
        "import os, signal\nimport torch\nfrom torchyard.train import run\n"
        "def end(step):\n"
        "    if str(step) == os.environ['END_AT']:\n"
        "        os.kill(os.getpid(), int(os.environ['END_BY']))\n"
        f"{text}\n{WEIGHTS}"
    )
    return path
