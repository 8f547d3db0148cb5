"""`yard environment …` against the real server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.setenv("PIP_NO_INDEX", "1")
        made = RealServer(tmp_path_factory.mktemp("server"))
    yield made
    made.stop()


@pytest.fixture
def real(served: RealServer, monkeypatch: pytest.MonkeyPatch) -> RealServer:
    monkeypatch.setenv("TORCHYARD_URL", served.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", served.token)
    return served


def test_from_file_to_archive(real: RealServer, yard: Yard) -> None:
    Path("conda.yml").write_text("dependencies: [python=3.11, numpy=2.1, {pip: [six==1.16.0]}]\n")
    Path("env.yml").write_text(
        "$schema: x\nname: vision\nimage: python:3.10\nconda_file: conda.yml\ntags: {team: a}\n"
    )
    made = json.loads(yard("environment", "create", "-f", "env.yml", "-o", "json").out)
    assert (made["version"], made["tags"], made["build"]) == ("1", {"team": "a"}, "not built")
    assert made["packages"] == ["numpy==2.1.*", "six==1.16.0"]
    Path("requirements.txt").write_text("six==1.17.0  # newer\n")
    yard("environment", "create", "-n", "vision", "--pip-requirements", "requirements.txt")
    shown = json.loads(yard("environment", "show", "vision", "-o", "json").out)
    assert (shown["version"], shown["packages"]) == ("2", ["six==1.17.0"])
    assert "vision" in yard("environment", "list").text
    assert "Environment `vision` is archived." in yard("environment", "archive", "vision").err
    assert "vision" not in yard("environment", "list").text
    assert "vision" in yard("environment", "list", "--include-archived").text
    yard("environment", "restore", "vision:1")
    rows = json.loads(yard("environment", "list", "-n", "vision", "-o", "json").out)
    assert [row["version"] for row in rows] == ["1"]


def test_a_job_pins_the_version_it_names(real: RealServer, yard: Yard) -> None:
    for version in ("1.16.0", "1.17.0"):
        Path("requirements.txt").write_text(f"six=={version}\n")
        yard("environment", "create", "-n", "mine", "--pip-requirements", "requirements.txt")
    for number, reference in enumerate(["azureml:mine@latest", "mine:1", "sklearn-1.5"]):
        Path("job.yml").write_text(f"command: x\nenvironment: {reference}\nname: job-{number}\n")
        yard("job", "create", "-f", "job.yml")
    pinned = [
        json.loads(yard("job", "show", f"job-{number}", "-o", "json").out)["spec"]["environment"]
        for number in range(3)
    ]
    assert pinned == ["azureml:mine:2", "azureml:mine:1", "azureml:sklearn-1.5:3"]


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        ("name: AzureML-x\nimage: python\n", "env.yml:1:1: `AzureML-x` begins", "another name"),
        ("name: x\nimgae: python\n", "env.yml:2:1: unknown key `imgae`", "`image`"),
        ("name: x\nconda_file: no.yml\n", "env.yml:2:1: the path `no.yml` does not exist", "rel"),
        ("name: x\nimage: [7]\n", "env.yml:2:1: `image` is not a string", "`image`"),
        ("image: python\n", "env.yml:1:1: the environment has no `name`", "letters"),
    ],
)
def test_bad_files(real: RealServer, yard: Yard, document: str, message: str, hint: str) -> None:
    Path("env.yml").write_text(document)
    answer = yard("environment", "create", "-f", "env.yml")
    assert answer.code == 2
    assert f"error: {message}" in answer.err and "hint: " in answer.err and hint in answer.err


def test_resolve_explains(real: RealServer, yard: Yard) -> None:
    text = yard("environment", "resolve", "AzureML-PyTorch-1.6-GPU").text
    assert "takes its place" in text and "torch==1.6.0" in text
    text = yard("environment", "resolve", "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04").text
    assert "an Azure base image" in text
    answer = yard("environment", "resolve", "azureml:AzureML-AutoML@latest")
    assert answer.code == 2 and "automated machine learning" in answer.err


def test_a_fresh_workspace_has_the_curated_ones(real: RealServer, yard: Yard) -> None:
    rows = json.loads(yard("environment", "list", "-o", "json").out)
    environments = {row["name"]: row for row in rows}
    resolved = environments["acpt-pytorch-2.13-cpu"]
    assert (resolved["torch"], resolved["cuda"]) == ("2.13.0+cpu", "")
    assert any(line.startswith("deepspeed==") for line in resolved["packages"])
    assert environments["python"]["packages"] == []


def test_show_tells_what_each_component_is_here(real: RealServer, yard: Yard) -> None:
    text = yard("environment", "show", "-n", "acpt-pytorch-2.13-cpu").text
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "2.13.0+cpu" in lines["PyTorch"]
    assert "0.28.1 (torchyard's layer)" in lines["Horovod"]
    assert "not available: it is 400 MB" in lines["PySpark"] and "instead: " in lines["PySpark"]
    shown = json.loads(yard("environment", "show", "acpt-pytorch-2.0-cuda11.7", "-o", "json").out)
    states = {component["name"]: component["state"] for component in shown["components"]}
    assert (states["ONNX Runtime training"], states["Horovod"]) == ("installed", "layer")
    assert "components" not in json.loads(yard("environment", "show", "python", "-o", "json").out)


@pytest.mark.slow
def test_build_shows_its_log_and_its_failure(real: RealServer, yard: Yard) -> None:
    answer = yard("environment", "build", "python")
    assert (
        answer.code == 0
        and "Building environment" in answer.err
        and "`python` is ready" in answer.err
    )
    Path("requirements.txt").write_text("no-such-package-at-all==1.0\n")
    yard("environment", "create", "-n", "broken", "--pip-requirements", "requirements.txt")
    answer = yard("environment", "build", "broken")
    assert answer.code == 2 and "no-such-package-at-all" in answer.err
    assert json.loads(yard("environment", "show", "broken", "-o", "json").out)["build"] == "failed"


@pytest.mark.slow
def test_an_environment_becomes_an_image_once(real: RealServer, yard: Yard) -> None:
    answer = yard("environment", "export", "-n", "python", "--image", "python.tar", "-o", "json")
    exported = json.loads(answer.out)
    assert exported["path"] == "python.tar" and Path("python.tar").stat().st_size > 1 << 20
    assert exported["name"] == "localhost/python:1"
    assert exported["labels"]["torchyard.environment"] == "python:1"
    assert [layer["name"] for layer in exported["layers"]] == ["system", "python", "packages"]
    assert "no C compiler" in answer.err and "layer packages" in answer.err
    again = yard("environment", "export", "-n", "python", "--image", "python.tar")
    assert again.code == 2 and "`python.tar` exists already" in again.err
    assert [file.name for file in Path().iterdir()] == ["python.tar"]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--image", "a.tar", "--format", "conda"), "`--format` does not go with an image", "one"),
        (("--base", "debian:12"), "`--base` is for an image", "--image FILE.tar"),
        (("--overwrite",), "`--overwrite` is for an image", "--image FILE.tar"),
        (("--push", "vision"), "`vision` is not a place in a registry", "REGISTRY/NAME:TAG"),
        (("--image", "a.tar.gz"), "compressed already", "`.tar` file"),
        (("--image", "no/a.tar"), "`no` does not exist", "create it"),
        (("--image", "a.tar", "--base", "-x"), "`-x` is not a valid image name", "debian:12"),
    ],
)
def test_what_an_export_of_an_image_refuses(
    real: RealServer, yard: Yard, words: tuple[str, ...], message: str, hint: str
) -> None:
    answer = yard("environment", "export", "-n", "python", *words)
    assert answer.code in (1, 2) and message in answer.err and hint in answer.err
    assert not list(Path().iterdir())


def test_the_list_says_what_is_built_on_this_server(real: RealServer, yard: Yard) -> None:
    yard("environment", "create", "-n", "own", "--image", "python:3.11")
    Path("requirements.txt").write_text("no-such-package-at-all==1.0\n")
    yard("environment", "create", "-n", "failing", "--pip-requirements", "requirements.txt")
    yard("environment", "build", "failing")

    def states() -> dict[str, tuple[str, str]]:
        rows = json.loads(yard("environment", "list", "-o", "json").out)
        return {row["name"]: (row["status"], row["build"]) for row in rows}

    before = states()
    # With or without a record of what a build contains.
    for name in ("acpt-pytorch-2.13-cpu", "acpt-pytorch-2.13-cuda13.0", "lightgbm-3.3"):
        assert before[name] == ("curated", "not built"), name
    assert before["failing"] == ("registered", "failed")
    built = yard("environment", "build", "python")
    assert built.code == 0, built.err
    assert states()["python"] == ("curated", "ready")
    assert "BUILD" in yard("environment", "list").text.splitlines()[0]
