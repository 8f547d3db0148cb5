"""What a node is told of Slurm's variables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from torchyard.executors.slurm import on_node

_SHOW = "import json, os, sys\nprint(json.dumps([sys.argv, sorted(os.environ)]))\n"


def test_devices_are_those_that_slurm_gave() -> None:
    assert on_node.devices({"CUDA_VISIBLE_DEVICES": "0,3"}) == [
        {"kind": "nvidia", "index": 0, "uuid": ""},
        {"kind": "nvidia", "index": 3, "uuid": ""},
    ]
    assert on_node.devices({"CUDA_VISIBLE_DEVICES": "MIG-1f"}) == [
        {"kind": "nvidia", "index": 0, "uuid": "MIG-1f"}
    ]
    assert on_node.devices({"ROCR_VISIBLE_DEVICES": "1"}) == [
        {"kind": "amd", "index": 1, "uuid": ""}
    ]
    assert on_node.devices({"SLURM_STEP_GPUS": "2"}) == [{"kind": "nvidia", "index": 2, "uuid": ""}]
    assert on_node.devices({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}) == []
    assert on_node.devices({}) == []


def test_ranks_do_not_see_that_slurm_started_them() -> None:
    variables = {"SLURM_PROCID": "1", "SLURM_JOB_ID": "7", "PMIX_RANK": "1", "SLURM_NTASKS": "2"}
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(on_node.__file__)), _SHOW],
        env={**variables, "CUDA_VISIBLE_DEVICES": "1"}, capture_output=True, check=True,
    )  # fmt: skip
    words, names = json.loads(done.stdout)
    assert words[1:4] == ["--node", "1", "--die-with-parent"]
    assert json.loads(words[words.index("--devices") + 1])[0]["index"] == 1
    assert "SLURM_JOB_ID" in names
    assert not {"SLURM_PROCID", "SLURM_NTASKS", "PMIX_RANK"} & set(names)
