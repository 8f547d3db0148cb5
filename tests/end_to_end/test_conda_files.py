"""The two conda files of Azure's article on PyTorch at scale, built and used by a job each."""

from __future__ import annotations

import json

import pytest

from end_to_end.yard_under_test import Yard

# Each brings torch and a hundred packages of Azure's, on a disk that may be slow.
pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_the_conda_file_of_the_article(yard: Yard) -> None:
    yard("job", "create", "-f", "examples/conda_file/job.yml", "--set", "name=conda-file")
    done = yard.completed("conda-file", timeout_s=1500)
    assert any("openmpi4.1.0-ubuntu22.04" in notice for notice in done["notices"])
    log = b"".join(yard.logs("conda-file").values()).decode()
    accuracy = float(log.partition("accuracy ")[2].split()[0])
    assert "torch 2.13.0" in log and accuracy > 0.9


def test_the_conda_file_with_horovod(yard: Yard) -> None:
    yard("job", "create", "-f", "examples/horovod/job.yml", "--set", "name=conda-horovod")
    done = yard.completed("conda-horovod", timeout_s=1500)
    assert any("`horovod==0.19.5`" in notice for notice in done["notices"])
    log = b"".join(yard.logs("conda-horovod").values()).decode()
    assert "2 ranks, loss 0.000" in log
    command = ("environment", "list", "-o", "json")
    packages = [environment.get("packages", []) for environment in json.loads(yard(*command))]
    assert any("azureml-defaults==1.62.0" in lines for lines in packages)
