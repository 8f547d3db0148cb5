"""Build contexts that a job or an environment's document names on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from torchyard.base.errors import InvalidSpec, LimitExceeded
from torchyard.client.snapshots import environment_files, job_files
from torchyard.client.snapshots.local_paths import LocalPath
from torchyard.client.snapshots.walk import Limits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docker" / "more").mkdir(parents=True)
    (tmp_path / "docker" / "Dockerfile").write_text("FROM debian\n")
    (tmp_path / "docker" / "more" / "a.txt").write_text("a\n")
    (tmp_path / "docker" / "left.out").write_text("x\n")
    (tmp_path / "docker" / ".amlignore").write_text("*.out\n")
    return tmp_path


def names(path: LocalPath) -> list[str]:
    return [entry[0] for entry in path.entries]


def test_the_context_of_a_job(folder: Path) -> None:
    document = {"command": "true", "environment": {"build": {"path": "docker"}}}
    files = job_files.find(document, folder)
    assert files.document["environment"]["build"]["path"] == "local:docker"
    (context,) = files.paths
    assert context.at == ("environment", "build", "path")
    assert [name for name in names(context) if name != ".amlignore"] == ["Dockerfile", "more/a.txt"]
    sent = files.with_snapshots(lambda path: "0" * 64)
    assert sent["environment"]["build"]["path"] == f"snapshot:{'0' * 64}"
    assert document["environment"] == {"build": {"path": "docker"}}  # the caller's own is as it was


def test_the_context_of_a_file_is_beside_that_file(folder: Path) -> None:
    (folder / "deep").mkdir()
    body = {"name": "mine", "build": {"path": "../docker", "dockerfile_path": "Dockerfile"}}
    (folder / "deep" / "environment.yml").write_text(yaml.safe_dump(body))
    files = job_files.find({"environment": "file:deep/environment.yml"}, folder)
    assert files.paths[0].place.resolve() == folder / "docker"
    alone = job_files.find_environment(body, folder / "deep")
    assert alone.paths[0].at == ("build", "path")
    assert alone.document["build"] == {"path": "local:../docker", "dockerfile_path": "Dockerfile"}


def test_what_lies_elsewhere_is_left_to_the_server(folder: Path) -> None:
    for path in ("https://github.com/a/b.git#main", "snapshot:" + "0" * 64, "azureml://x", 3, ""):
        body = {"build": {"path": path}}
        files = job_files.find_environment(body, folder)
        assert (files.paths, files.document) == ((), body)
    builds: tuple[Any, ...] = ("docker", None, {})
    for build in builds:
        assert job_files.find_environment({"build": build}, folder).paths == ()


def test_a_context_that_can_not_be_sent(folder: Path) -> None:
    for path, words in (("docker/Dockerfile", "is a file"), ("none", "does not exist")):
        with pytest.raises(InvalidSpec, match=words) as refused:
            job_files.find({"environment": {"build": {"path": path}}}, folder)
        assert refused.value.at == ("environment", "build", "path")
    other = {"build": {"path": "docker", "dockerfile_path": "Dokerfile"}}
    with pytest.raises(InvalidSpec, match="holds no `Dokerfile`") as absent:
        job_files.find_environment(other, folder)
    assert absent.value.at == ("build", "dockerfile_path")
    document = {"build": {"path": "docker", "dockerfile_path": "./more/a.txt"}}
    assert job_files.find_environment(document, folder).paths
    with pytest.raises(LimitExceeded) as full:
        job_files.find_environment({"build": {"path": "docker"}}, folder, Limits(files=1))
    assert full.value.at == ("build", "path")


def test_requirements_of_several_lines_are_no_path(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("six\n")
    lines = "six==1.16.0\npackaging\n"
    assert environment_files.read({"pip_requirements": lines}, tmp_path) == {
        "pip_requirements": lines
    }
    read = environment_files.read({"pip_requirements": "r.txt"}, tmp_path)
    assert read == {"pip_requirements": ["six"]}


def test_a_requirement_of_one_line_is_no_path(tmp_path: Path) -> None:
    by_url, for_posix = "six @ https://x.org/six.whl", "six; os_name == 'posix'"
    for text in ("torch==2.13.0", "ray[train]", "numpy>=1,<3", by_url, for_posix):
        document = {"pip_requirements": text}
        assert environment_files.read(document, tmp_path) == document
    (tmp_path / "torch==2.13.0").write_text("six\n")
    read = environment_files.read({"pip_requirements": "torch==2.13.0"}, tmp_path)
    assert read == {"pip_requirements": ["six"]}
    with pytest.raises(InvalidSpec, match="`requirments` does not exist") as raised:
        environment_files.read({"pip_requirements": "requirments"}, tmp_path)
    assert raised.value.hint.endswith("; a package is written as a list, `[requirments]`")
    with pytest.raises(InvalidSpec, match="does not exist") as raised:
        environment_files.read({"pip_requirements": "a/requirements.txt"}, tmp_path)
    assert "list" not in raised.value.hint
