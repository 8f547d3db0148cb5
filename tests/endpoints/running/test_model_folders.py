"""AZUREML_MODEL_DIR of an instance: a model's files below the name of its folder."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from torchyard.endpoints.running.in_instance import score_file, score_mlflow, supervise


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "inputs" / "0"
    (folder / "data").mkdir(parents=True)
    (folder / "MLmodel").write_text("flavors: {}\n")
    (folder / "data" / "net.onnx").write_text("weights")
    # As an input that is kept elsewhere may be.
    (tmp_path / "elsewhere").write_text("labels")
    (folder / "labels.txt").symlink_to(tmp_path / "elsewhere")
    return folder


def options(model: Path, leaf: str) -> argparse.Namespace:
    return argparse.Namespace(model=str(model), model_as="net/3", leaf=leaf)


def test_files_of_a_model_are_no_links_to_another_folder(model: Path, tmp_path: Path) -> None:
    top = Path(supervise.model_folder(options(model, "linear"), str(tmp_path)))
    assert top == tmp_path / "azureml-models" / "net" / "3"
    files = [Path(path) / name for path, _, names in os.walk(top) for name in names]
    names = {str(file.relative_to(top)) for file in files}
    assert names == {"linear/MLmodel", "linear/data/net.onnx", "linear/labels.txt"}
    assert not [file for file in files if file.is_symlink()]
    assert (top / "linear/labels.txt").read_text() == "labels"
    assert (top / "linear/data/net.onnx").samefile(model / "data/net.onnx")
    assert score_mlflow.model_folder(str(top)) == str(top / "linear")
    assert score_file.model_file(str(top)) == str(top / "linear/data/net.onnx")


def test_a_model_without_a_folders_name_is_where_it_is(model: Path, tmp_path: Path) -> None:
    assert supervise.model_folder(options(model, ""), str(tmp_path)) == str(model)


def test_a_model_of_one_file_is_below_its_own_name(model: Path, tmp_path: Path) -> None:
    top = supervise.model_folder(options(model / "data" / "net.onnx", ""), str(tmp_path))
    assert os.listdir(top) == ["net.onnx"] and not (Path(top) / "net.onnx").is_symlink()


def test_files_that_can_have_no_other_name_are_links_and_scripts_of_ours_follow_them(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: str, name: str) -> None:
        raise PermissionError("another's file")

    monkeypatch.setattr(os, "link", refuse)
    top = supervise.model_folder(options(model, "linear"), str(tmp_path))
    assert (Path(top) / "linear" / "MLmodel").is_symlink()
    assert score_mlflow.model_folder(top) == str(model)
    assert score_file.model_file(top) == str(model / "data" / "net.onnx")
