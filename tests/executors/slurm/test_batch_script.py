"""The batch script: what it says to whom."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from torchyard.executors.slurm import batch_script
from torchyard.shared.node_start import NodeStart, from_json

_HOSTILE = 'it\'s "$(touch hacked)" `touch hacked` \\ %s {x}'


def run(
    script: str, folder: Path, srun: str, shell: str = "sh"
) -> subprocess.CompletedProcess[str]:
    """Run the script where `srun` and `scontrol` are programs of the test."""
    for name, text in {"srun": srun, "scontrol": 'printf "%s\\n" "$@" >scontrol.txt'}.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    variables = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_NUM_NODES": "2"}
    variables |= {"SLURM_JOB_ID": "7", "TMPDIR": str(folder)}
    return subprocess.run(
        [shell], input=script, env=variables, cwd=folder, text=True, capture_output=True, timeout=60
    )


def test_the_start_reaches_the_nodes_by_standard_input_alone(tmp_path: Path) -> None:
    start = NodeStart("a1", ["http://x"], f"tyr_token {_HOSTILE}", "0" * 64, folder=_HOSTILE)
    script = batch_script.text(start, f"/opt/{_HOSTILE}/python3", "torchyard server s attempt a1")
    done = run(script, tmp_path, 'cat >stdin.txt; printf "%s\\n" "$@" >words.txt; env >env.txt')
    assert done.returncode == 0, done.stderr
    assert from_json((tmp_path / "stdin.txt").read_text()) == start
    words = (tmp_path / "words.txt").read_text()
    assert f"/opt/{_HOSTILE}/python3" in words
    assert "tyr_token" not in words + (tmp_path / "env.txt").read_text()
    assert not (tmp_path / "hacked").exists()
    assert not list(tmp_path.glob("torchyard-*"))


def test_what_nodes_say_that_could_not_start_is_kept_in_the_comment(tmp_path: Path) -> None:
    start = NodeStart("a1", ["http://x"], "tyr_token", "0" * 64)
    script = batch_script.text(start, "python3", "torchyard server s attempt a1")
    srun = "echo 'srun: error: n1: task 0: Exited with exit code 127'; echo 'no python3'; exit 127"
    assert run(script, tmp_path, srun).returncode == 127
    comment = (tmp_path / "scontrol.txt").read_text()
    assert "Comment=torchyard server s attempt a1 | no python3" in comment


# /bin/sh is the one on some systems, the other on others.
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_exit_code_of_a_step_that_ends_at_once_is_kept(tmp_path: Path, shell: str) -> None:
    start = NodeStart("a1", ["http://x"], "tyr_token", "0" * 64)
    script = batch_script.text(start, "python3", "torchyard server s attempt a1")
    codes = [run(script, tmp_path, "exit 3", shell).returncode for _ in range(20)]
    assert codes == [3] * 20


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_it_waits_for_the_step_after_a_signal(tmp_path: Path, shell: str) -> None:
    start = NodeStart("a1", ["http://x"], "tyr_token", "0" * 64)
    script = batch_script.text(start, "python3", "torchyard server s attempt a1")
    srun = 'kill -TERM "$PPID"; sleep 1; kill -TERM "$PPID"; sleep 1; touch ended; exit 3'
    assert run(script, tmp_path, srun, shell).returncode == 3
    assert (tmp_path / "ended").exists()
