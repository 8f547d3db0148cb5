"""Azure's document on ACPT: a custom environment `FROM` the curated image, and its job.

The files are those that the document prints, its Dockerfile what its picture shows. Every package
of the curated environment is a wheel of the test that holds its version alone: what is tried is the
way from the FROM line to the job, not the packages.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from containers.conftest import Machine
from environments import wheels
from torchyard.environments.names import curated_environments
from torchyard.environments.packages import pythons

# By hand: it was written on a machine too busy to run it.
pytestmark = [pytest.mark.containers, pytest.mark.long, pytest.mark.timeout(1200)]
ENVIRONMENT = """\
$schema: https://azuremlschemas.azureedge.net/latest/environment.schema.json
name: custom_aml_environment
build:
  path: docker
"""
DOCKERFILE = """\
FROM mcr.microsoft.com/azureml/curated/acpt-pytorch-1.12-py39-cuda11.6-gpu:3
RUN pip install transformers datasets
"""
JOB = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
type: command
description: Trains a 175B GPT model
experiment_name: "large_model_experiment"
compute: azureml:cluster-gpu

code: ../../src
environment: azureml:custom_aml_environment@latest
"""
SCRIPT = """\
import datasets, deepspeed, torch, transformers
print(torch.__version__, transformers.__version__, datasets.__version__)
"""
BASE = "acpt-pytorch-1.12-cpu"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """The folder that the document's paths are relative to."""
    files = {
        "cloud/environment/environment.yml": ENVIRONMENT,
        "cloud/environment/docker/Dockerfile": DOCKERFILE,
        "cloud/job/job.yml": JOB,
        "src/train.py": SCRIPT,
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_the_documents_custom_environment_runs_its_job(machine: Machine, document: Path) -> None:
    curated = curated_environments.find_by_name(BASE)
    assert curated is not None
    if curated.python not in pythons.installed():
        pytest.skip(f"the curated environment needs Python {curated.python}")
    versions = dict(line.split("==") for line in curated.pinned)
    for name, version in {**versions, "torch": f"{versions['torch']}+cpu"}.items():
        wheels.put(machine.wheels, name, version)
    wheels.put(machine.wheels, "datasets", "4.0.0", requires=("transformers>=4",))
    yard = machine.yard
    yard("environment", "create", "-f", str(document / "cloud/environment/environment.yml"))
    yard("compute", "create", "-n", "cluster-gpu", "--type", "amlcompute", "--max-instances", "1")
    # The document prints no command; its file stays as it is.
    job = ["-f", str(document / "cloud/job/job.yml"), "--set", "command=python train.py"]
    out = yard("job", "create", *job, "--query", "name", "-o", "tsv")
    name = out.strip().splitlines()[-1]
    yard.completed(name)
    (log,) = yard.logs(name).values()
    assert log.decode().split() == [f"{versions['torch']}+cpu", versions["transformers"], "4.0.0"]
    shown = json.loads(yard("environment", "show", "-n", "custom_aml_environment", "-o", "json"))
    assert shown["base"] == f"{BASE}:{curated.version}"
    assert yard.job(name)["experiment_name"] == "large_model_experiment"
