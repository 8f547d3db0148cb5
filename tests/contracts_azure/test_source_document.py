"""The job of the article on ACPT, its names and variables as printed: by the SDK and by `yard`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import client_venvs
import pytest
from yard_under_test import Yard

pytestmark = [pytest.mark.azure, pytest.mark.timeout(600)]

# As printed, but for the command, which the article leaves out.
YAML = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
type: command
description: Trains a 175B GPT model
experiment_name: "large_model_experiment"
compute: azureml:cluster-gpu
code: ../../src
environment: azureml:AzureML-ACPT-pytorch-1.12-py39-cuda11.6-gpu@latest
environment_variables:
  NCCL_DEBUG: 'WARN'
  NCCL_DEBUG_SUBSYS: 'WARN'
  CUDA_DEVICE_ORDER: 'PCI_BUS_ID'
  NCCL_SOCKET_IFNAME: 'eth0'
  NCCL_IB_PCI_RELAXED_ORDERING: '1'
command: python train.py
"""
TRAIN = """\
import os
for name in sorted(os.environ):
    if name.startswith("NCCL_") or name == "CUDA_DEVICE_ORDER":
        print(name, os.environ[name])
with open("outputs/weights.txt", "w") as file:
    file.write("trained")
"""
SUBMIT = """\
import sys, warnings
warnings.filterwarnings("ignore")
from azure.ai.ml import MLClient, command, load_job
from azure.identity import DefaultAzureCredential
config, file, name = sys.argv[1:]
ml = MLClient.from_config(DefaultAzureCredential(), path=config)
job = load_job(file)
job.name = name
ml.jobs.create_or_update(job)
job = command(
    name=name + "-snippet",
    environment="AzureML-ACPT-pytorch-1.12-py39-cuda11.6-gpu@latest",
    command=job.command,
    code=job.code,
    compute="cluster-gpu",
    environment_variables=job.environment_variables,
)
ml.jobs.create_or_update(job)
"""


def test_a_document_ends_alike_by_the_sdk_and_by_yard(
    yard: Yard, variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    file = tmp_path / "cloud" / "jobs" / "job.yml"
    file.parent.mkdir(parents=True)
    file.write_text(YAML)
    yard("compute", "create", "-n", "cluster-gpu", "--max-instances", "2")
    yard("workspace", "config", "--path", str(tmp_path))
    yard("job", "create", "-f", str(file), "--name", "by-yard")
    names = ["by-yard"]
    for client in client_venvs.CLIENTS:
        name = f"by-{client.replace('.', '-')}"
        config = str(tmp_path / ".azureml" / "config.json")
        command = [str(client_venvs.python(client)), "-c", SUBMIT, config, str(file), name]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        names += [name, f"{name}-snippet"]
    seen = {}
    for name in names:
        job = yard.completed(name)
        files = sorted(file["path"] for file in yard.get(f"jobs/{name}/files")["value"])
        seen[name] = (job["status"], job["exit_code"], files, yard.logs(name))
    first = seen["by-yard"]
    lines = first[3]["user_logs/std_log.txt"].decode().splitlines()
    assert [line for line in lines if not line.startswith("[torchyard]")] == [
        "CUDA_DEVICE_ORDER PCI_BUS_ID",
        "NCCL_DEBUG WARN",
        "NCCL_DEBUG_SUBSYS WARN",
        "NCCL_IB_PCI_RELAXED_ORDERING 1",
        "NCCL_SOCKET_IFNAME eth0",
    ]
    assert {name: end for name, end in seen.items() if end != first} == {}, json.dumps(
        seen, default=str
    )
