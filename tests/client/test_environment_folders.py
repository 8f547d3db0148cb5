"""Environments as folders of files; what azureml-core 1.61 wrote and reads is written down here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.client import environment_folders as folders

CONDA = {
    "channels": ["conda-forge"],
    "dependencies": ["python=3.11", {"pip": ["six==1.16.0", "packaging"]}],
}
IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"


def azures(image: str | None = IMAGE, managed: bool = False, **changes: Any) -> dict[str, Any]:
    """What `Environment.save_to_directory` of azureml-core 1.61 writes."""
    return {
        "name": "one",
        "version": None,
        "environmentVariables": {"EXAMPLE_ENV_VAR": "EXAMPLE_VALUE"},
        "python": {
            "userManagedDependencies": managed,
            "interpreterPath": "python",
            "condaDependenciesFile": None,
            "baseCondaEnvironment": None,
        },
        "docker": {
            "enabled": False,
            "baseImage": image,
            "baseDockerfile": None,
            "buildContext": None,
            "sharedVolumes": True,
            "shmSize": "2g",
            "arguments": [],
            "baseImageRegistry": {
                "address": None,
                "username": None,
                "password": None,
                "registryIdentity": None,
            },
            "platform": {"os": "Linux", "architecture": "amd64"},
        },
        "spark": {"repositories": [], "packages": [], "precachePackages": True},
        "databricks": {
            "mavenLibraries": [],
            "pypiLibraries": [],
            "rcranLibraries": [],
            "jarLibraries": [],
            "eggLibraries": [],
        },
        "r": None,
        "inferencingStackVersion": None,
        "assetId": None,
        **changes,
    }


def put(folder: Path, body: Any, conda: Any = None, dockerfile: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "azureml_environment.json").write_text(json.dumps(body, indent=4))
    if conda is not None:
        (folder / "conda_dependencies.yml").write_text(yaml.safe_dump(conda))
    if dockerfile:
        (folder / "BaseDockerfile").write_text(dockerfile)
    return folder


def loaded(folder: Path) -> tuple[dict[str, Any], list[str]]:
    warnings: list[str] = []
    return folders.load(folder, warnings.append), warnings


def test_what_azureml_core_wrote_is_read(tmp_path: Path) -> None:
    folder = put(tmp_path / "one", azures(), CONDA)
    assert loaded(folder) == ({"name": "one", "image": IMAGE, "conda_file": CONDA}, [])
    # It writes a conda file of its defaults even where that counts for nothing.
    folder = put(tmp_path / "two", azures("python:3.11-slim", managed=True), CONDA)
    assert loaded(folder) == ({"name": "one", "image": "python:3.11-slim"}, [])
    docker = {**azures()["docker"], "baseImage": None}
    del docker["baseDockerfile"]
    folder = put(tmp_path / "three", azures(managed=True, docker=docker), CONDA, "FROM python\n")
    build = {"path": str(folder), "dockerfile_path": "BaseDockerfile"}
    assert loaded(folder) == ({"name": "one", "build": build}, [])


@pytest.mark.parametrize(
    ("definition", "conda", "image"),
    [
        ({"image": IMAGE, "conda_file": CONDA}, CONDA, IMAGE),
        ({"conda_file": CONDA}, CONDA, None),
        ({"image": "python:3.11"}, None, "python:3.11"),
        (
            {"pip_requirements": ["six", "--pre"]},
            {"channels": ["conda-forge"], "dependencies": ["pip", {"pip": ["six", "--pre"]}]},
            None,
        ),
    ],
)
def test_what_is_written_is_what_azureml_core_writes(
    tmp_path: Path, definition: dict[str, Any], conda: Any, image: str | None
) -> None:
    folders.save(tmp_path / "saved", "one", "3", definition)
    body = json.loads((tmp_path / "saved" / "azureml_environment.json").read_text())
    assert body == azures(image, conda is None, version="3", environmentVariables={})
    assert list(body) == list(azures())
    file = tmp_path / "saved" / "conda_dependencies.yml"
    assert (yaml.safe_load(file.read_text()) if file.exists() else None) == conda
    back = {"image": image} if image else {}
    back |= {"conda_file": conda} if conda else {}
    assert loaded(tmp_path / "saved") == ({"name": "one", **back}, [])


def test_a_folder_is_overwritten_only_when_so_asked(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folders.save(folder, "one", "1", {"conda_file": CONDA})
    with pytest.raises(Conflict, match="exists already"):
        folders.save(folder, "one", "2", {"image": "python:3.11"})
    assert loaded(folder)[0]["conda_file"] == CONDA
    (folder / "mine.txt").touch()
    folders.save(folder, "one", "2", {"image": "python:3.11"}, overwrite=True)
    assert loaded(folder)[0] == {"name": "one", "image": "python:3.11"}
    assert (folder / "mine.txt").exists()


def test_what_an_environment_here_can_not_hold_is_told(tmp_path: Path) -> None:
    python = {**azures()["python"], "interpreterPath": "/opt/python", "baseCondaEnvironment": "a"}
    spark = {"repositories": [], "packages": [{"group": "a"}], "precachePackages": True}
    body = azures(environmentVariables={"A": "b"}, python=python, spark=spark, r={"rVersion": "4"})
    document, warnings = loaded(put(tmp_path / "one", body, CONDA))
    assert document["conda_file"] == CONDA
    for word in ("(A)", "environment_variables", "/opt/python", "`baseCond", "Spark", "R packages"):
        assert word in " ".join(warnings)


@pytest.mark.parametrize(
    ("changes", "conda", "dockerfile", "words"),
    [
        ({}, CONDA, "FROM python\n", "RUN pip install"),
        ({"docker": {"baseDockerfile": "FROM python"}}, None, "", "BaseDockerfile"),
        ({"docker": {"buildContext": {"locationType": "git"}}}, None, "", "build.path"),
        ({"docker": {}}, None, "", "userManagedDependencies"),
        ({"docker": {}}, "- a\n", "", "dependencies"),
    ],
)
def test_what_can_not_be_loaded(
    tmp_path: Path, changes: dict[str, Any], conda: Any, dockerfile: str, words: str
) -> None:
    folder = put(tmp_path / "one", azures(**changes), conda, dockerfile)
    with pytest.raises(InvalidInput) as refused:
        loaded(folder)
    assert words in refused.value.hint


def test_no_such_folder_and_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"azureml_environment\.json"):
        loaded(tmp_path / "none")
    (tmp_path / "azureml_environment.json").write_text("{")
    with pytest.raises(InvalidInput, match="not JSON"):
        loaded(tmp_path)
    with pytest.raises(InvalidInput, match="Dockerfile"):
        folders.save(tmp_path / "x", "one", "1", {"build": {"path": "."}})
