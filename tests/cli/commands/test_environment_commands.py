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
    assert pinned == ["azureml:mine:2", "azureml:mine:1", "azureml:sklearn-1.5:2"]


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        ("name: AzureML-x\nimage: python\n", "env.yml:1:1: `AzureML-x` begins", "another name"),
        ("name: x\nimgae: python\n", "env.yml:2:1: unknown key `imgae`", "`image`"),
        ("name: x\nconda_file: no.yml\n", "env.yml:2:1: the path `no.yml` does not exist", "rel"),
        ("name: x\nimage: 7\n", "env.yml:2:1: `image` is not a text", "`image`"),
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
    assert environments["acpt-pytorch-2.13-cuda13.0"]["status"] == "curated, not built here"
    assert environments["python"]["packages"] == []


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
