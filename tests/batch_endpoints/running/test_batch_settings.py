"""The folder of the model, as scoring scripts and MLflow look at it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchyard.batch_endpoints.running.in_job import settings as settings_of


def variables(tmp_path: Path, model: Path, folder: str, **changes: Any) -> dict[str, str]:
    written: Any = SimpleNamespace(
        root="/code", script="score.py", output="/score", model=str(model), model_as="digits/3",
        model_folder=folder, processes=1, has_threads=False,
    )  # fmt: skip
    vars(written).update(changes)
    (tmp_path / "temporary").mkdir()
    return settings_of.variables(written, str(tmp_path / "temporary"))


def test_a_folder_is_below_the_models_name_and_nothing_leads_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "input" / "code").mkdir(parents=True)
    (tmp_path / "input" / "code" / "m.py").write_text("x")
    made = variables(tmp_path, tmp_path / "input", "model")
    model_folder = Path(made["AZUREML_MODEL_DIR"])
    assert model_folder.parts[-3:] == ("azureml-models", "digits", "3")
    files = [Path(top) / name for top, _, names in os.walk(model_folder) for name in names]
    assert files == [model_folder / "model" / "code" / "m.py"]
    assert files[0].resolve() == files[0] and files[0].read_text() == "x"
    assert made["AZUREML_BI_OUTPUT_PATH"] == "/score"


def test_a_single_file_is_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_text("x")
    model_folder = Path(variables(tmp_path, tmp_path / "model.pkl", "")["AZUREML_MODEL_DIR"])
    assert [file.name for file in model_folder.iterdir()] == ["model.pkl"]


def test_processes_of_a_node_share_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    (tmp_path / "m").mkdir()
    made = variables(tmp_path, tmp_path / "m", "", processes=3)
    assert made["OMP_NUM_THREADS"] == "2"
