"""`yard environment export`, `save`, `load`, `clone`, `shell` against the real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    made = RealServer(tmp_path_factory.mktemp("server"))
    yield made
    made.stop()


@pytest.fixture
def real(served: RealServer, monkeypatch: pytest.MonkeyPatch) -> RealServer:
    monkeypatch.setenv("TORCHYARD_URL", served.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", served.token)
    return served


def test_a_curated_one_is_saved_changed_and_loaded(real: RealServer, yard: Yard) -> None:
    answer = yard("environment", "save", "-n", "AzureML-Tutorial", "-d", "mine")
    assert answer.code == 0 and "`sklearn-1.5` takes its place" in answer.err
    assert yard("environment", "save", "sklearn-1.5", "-d", "mine").code == 2
    conda = Path("mine/conda_dependencies.yml")
    conda.write_text(conda.read_text().replace("scikit-learn==1.5.2", "scikit-learn==1.5.1"))
    answer = yard("environment", "load", "mine")
    assert answer.code == 2 and "is a curated environment's name" in answer.err
    made = json.loads(yard("environment", "load", "-d", "mine", "-n", "mine", "-o", "json").out)
    assert (made["name"], made["version"]) == ("mine", "1")
    assert {"scikit-learn==1.5.1", "pandas==1.5.3"} <= set(made["packages"])
    resolved = json.loads(yard("environment", "show", "sklearn-1.5", "-o", "json").out)
    assert "scikit-learn==1.5.2" in resolved["packages"]


def test_a_clone_is_a_version_of_its_own(real: RealServer, yard: Yard) -> None:
    Path("requirements.txt").write_text("six==1.16.0\n")
    yard("environment", "create", "-n", "first", "--pip-requirements", "requirements.txt",
         "--tags", "team=a", "--description", "of ours")  # fmt: skip
    answer = yard("environment", "clone", "first:1", "--new-name", "second", "-o", "json")
    clone = json.loads(answer.out)
    assert (clone["name"], clone["version"], clone["tags"]) == ("second", "1", {})
    assert (clone["packages"], clone["description"]) == (["six==1.16.0"], "of ours")
    for wrong, word in (("AzureML-x", "reserved"), ("sklearn-1.5", "curated"), ("a/b", "name")):
        answer = yard("environment", "clone", "-n", "first", "--new-name", wrong)
        assert answer.code == 2 and word in answer.err
    answer = yard("environment", "clone", "-n", "frist", "--new-name", "x")
    assert answer.code == 2 and "`first`" in answer.err


def test_export_prints_or_writes(real: RealServer, yard: Yard) -> None:
    Path("requirements.txt").write_text("six==1.16.0\n")
    yard("environment", "create", "-n", "small", "--pip-requirements", "requirements.txt")
    answer = yard("environment", "export", "small", "--format", "requirements")
    assert answer.text.splitlines()[-1] == "six==1.16.0"
    assert "warning: `small:1` was never built here" in answer.err
    assert "FROM python:3" in yard("environment", "export", "-n", "small").text
    yard("environment", "export", "small", "--format", "conda", "--file", "conda.yml")
    assert "  - six==1.16.0\n" in Path("conda.yml").read_text()
    assert yard("environment", "export", "small", "--format", "docker").code == 2
    assert yard("environment", "export", "smal").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name either an environment"),
        (("python", "-f", "env.yml"), "name either an environment"),
        (("pyton",), "did you mean `python`"),
        (("-f", "no.yml"), "no.yml"),
        (("python", "true"), "unexpected extra argument"),
        (("a", "-n", "b"), "two names"),
    ],
)
def test_wrong_usage_of_shell_is_refused(
    real: RealServer, yard: Yard, arguments: tuple[str, ...], message: str
) -> None:
    answer = yard("environment", "shell", *arguments)
    assert answer.code == 2 and message in answer.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "no folder is given"), (("a", "--prefix", "b"), "two folders are given: `a` and `b`")],
)
def test_installing_names_one_folder(
    real: RealServer, yard: Yard, arguments: tuple[str, ...], message: str
) -> None:
    answer = yard("environment", "install", "sklearn-1.5", *arguments)
    assert answer.code == 2 and message in answer.err


def test_the_folder_to_install_into_is_an_argument_or_an_option(
    real: RealServer, yard: Yard
) -> None:
    Path("full").mkdir()
    Path("full", "file").write_text("x")
    for arguments in (("full",), ("--prefix", "full")):
        answer = yard("environment", "install", "sklearn-1.5", *arguments)
        assert answer.code == 2 and "is not an empty folder" in answer.err


def test_a_shell_in_an_image_is_refused_before_anything_is_built(
    real: RealServer, yard: Yard
) -> None:
    Path("env.yml").write_text("image: pypy:3\n")
    answer = yard("environment", "shell", "-f", "env.yml", "--", "true")
    assert answer.code == 2 and "needs a container" in answer.err and "Building" not in answer.err


def test_every_form_of_reference_in_a_job(real: RealServer, yard: Yard) -> None:
    Path("requirements.txt").write_text("six==1.16.0\n")
    yard("environment", "create", "-n", "named", "--pip-requirements", "requirements.txt")
    azures = (
        "/subscriptions/0-0/resourceGroups/rg/providers/Microsoft.MachineLearningServices"
        "/workspaces/{}/environments/{}"
    )
    for number, (reference, pinned) in enumerate(
        {
            "azureml:named@latest": "named:1",
            f"azureml:{azures.format('default', 'named/versions/1')}": "named:1",
            azures.format("Default", "AZUREML-SKLEARN-1.5/labels/latest"): "sklearn-1.5:3",
            "azureml://registries/azureml/environments/sklearn-1.5/labels/latest": "sklearn-1.5:3",
            "AzureML-Sklearn-1.5": "sklearn-1.5:3",
        }.items()
    ):
        Path("job.yml").write_text(f"command: x\nenvironment: {reference}\nname: form-{number}\n")
        assert yard("job", "create", "-f", "job.yml").code == 0
        shown = json.loads(yard("job", "show", f"form-{number}", "-o", "json").out)
        assert shown["spec"]["environment"] == f"azureml:{pinned}"
    other = f"azureml:{azures.format('other', 'named/versions/1')}"
    Path("job.yml").write_text(f"command: x\nenvironment: {other}\n")
    answer = yard("job", "create", "-f", "job.yml")
    assert (
        answer.code == 2 and "job.yml:2:1" in answer.err and "is in workspace `other`" in answer.err
    )
