"""The documents on PyTorch by SDK v1, from the first cell to the last, as people run them.

Two nodes under Horovod, the two forms of DistributedDataParallel's configuration, and both ways to
launch it, which must give the same losses and weights. docs/transcripts/sdk-v1.md has the same
with the documents' own scripts.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import client_venvs
import pytest
from yard_under_test import Yard

pytestmark = [pytest.mark.azure, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).with_name("v1_documents")
_LIMIT_S = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="module")
def results(yard: Yard, variables: dict[str, str], folder: Path) -> Iterator[dict[str, Any]]:
    """What the notebooks left, on a machine without a GPU."""
    yard("workspace", "config", "--path", str(folder))
    yard("workspace", "update", "--rehearse-on-cpu")
    try:
        command = [client_venvs.python(client_venvs.SDK_V1), SCRIPTS / "submit_all.py"]
        done = subprocess.run(
            [*command, SCRIPTS, folder / "results.json"],
            cwd=folder, env=variables, capture_output=True, text=True, timeout=_LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        yield json.loads((folder / "results.json").read_text()) | {"output": done.stdout}
    finally:
        yard("workspace", "update", "--no-rehearse-on-cpu")


def completed(results: dict[str, Any], key: str) -> dict[str, Any]:
    run: dict[str, Any] = results["runs"][key]
    assert run["status"] == "Completed", run["error"]
    return run


def logs(folder: Path, key: str) -> list[str]:
    """The last line of each rank."""
    files = sorted((folder / key / "user_logs").iterdir())
    return [file.read_text().strip().splitlines()[-1] for file in files]


def test_compute_and_environments(results: dict[str, Any]) -> None:
    assert results["compute"]["vmSize"].upper() == "STANDARD_NC6", results["compute"]
    assert results["saved"] == ["azureml_environment.json", "conda_dependencies.yml"]
    assert results["clone"] == "pytorch-1.6-gpu"


def test_one_process_trains_registers_and_is_downloaded(
    results: dict[str, Any], folder: Path
) -> None:
    run = completed(results, "train")
    assert logs(folder, "train") == ["epoch 2 on cuda"]
    assert results["model"][:2] == ["pytorch-birds", 1] and results["model"][2] > 0
    assert results["of the model"]
    assert "epoch 2 on cuda" in results["output"] and "Execution Summary" in results["output"]
    definition = run["definition"]
    assert definition["script"] == "pytorch_train.py"
    assert definition["arguments"] == ["--num_epochs", "3", "--output_dir", "./outputs"]


def test_a_registered_environment_with_a_published_name_wins(
    results: dict[str, Any],
) -> None:
    run = completed(results, "train")
    assert run["environment"] == "pytorch-1.6-gpu"
    conda = run["definition"]["environment"]["python"]["condaDependencies"]
    assert "horovod==0.19.5" in str(conda), conda


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not here")
def test_horovod_on_two_nodes(results: dict[str, Any], folder: Path) -> None:
    run = completed(results, "horovod")
    lines = [f"rank {rank} of 2, local 0, sum 3.0" for rank in (0, 1)]
    assert logs(folder, "horovod") == lines
    assert run["definition"]["communicator"] == "OpenMpi"


@pytest.mark.skipif(shutil.which("mpirun") is not None, reason="Open MPI is here")
def test_horovod_without_mpirun_says_what_is_missing(results: dict[str, Any]) -> None:
    assert "mpi_missing" in json.dumps(results["runs"]["horovod"]["error"])


@pytest.mark.parametrize("backend", ["Nccl", "Gloo"])
def test_a_process_group_by_arguments(results: dict[str, Any], folder: Path, backend: str) -> None:
    completed(results, backend)
    assert logs(folder, backend) == [f"rank {n} of 2, file://, sum 3.0" for n in (0, 1)]


def test_both_launches_give_the_same_losses_and_weights(
    results: dict[str, Any], folder: Path
) -> None:
    losses = {}
    for key in ("per process", "per node"):
        completed(results, key)
        losses[key] = [(folder / key / f"outputs/rank-{n}.txt").read_text() for n in (0, 1)]
    assert losses["per process"] == losses["per node"]
    first, second = (text.splitlines() for text in losses["per node"])
    assert first[1] == second[1] and first[0] != second[0]
