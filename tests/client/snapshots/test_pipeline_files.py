"""Which local things of a pipeline's document, and of the components it names, are looked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec, TorchyardError
from torchyard.client.snapshots import job_files
from torchyard.client.snapshots.local_paths import At

PREP = """\
$schema: https://example.com/commandComponent.schema.json
name: prep
command: python prep.py
code: ./src
environment:
  image: debian
  conda_file: conda.yml
inputs:
  raw: {type: uri_folder}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a pipeline, with the component `prep/prep.yml`."""
    write(tmp_path / "prep" / "prep.yml", PREP)
    write(tmp_path / "prep" / "conda.yml", "dependencies: [python=3.10]\n")
    write(tmp_path / "prep" / "src" / "prep.py", "")
    write(tmp_path / "data" / "x.csv", "1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def node(component: Any, **more: Any) -> dict[str, Any]:
    return {"type": "pipeline", "jobs": {"prep": {"component": component, **more}}}


def places(files: job_files.JobFiles) -> dict[At, Path]:
    return {path.at: path.place.resolve() for path in files.paths}


@pytest.mark.parametrize(
    "name", ["prep/prep.yml", "./prep/prep.yml", "file:./prep/prep.yml", "file:prep/prep.yml"]
)
def test_a_component_file_stands_in_its_node(folder: Path, name: str) -> None:
    document = node(name)
    files = job_files.find(document, folder)
    assert files.document["jobs"]["prep"]["component"] == {
        "name": "prep",
        "command": "python prep.py",
        "code": "local:./src",
        "environment": {"image": "debian", "conda_file": {"dependencies": ["python=3.10"]}},
        "inputs": {"raw": {"type": "uri_folder"}},
    }
    at = ("jobs", "prep", "component")
    assert places(files) == {(*at, "code"): folder / "prep" / "src"}
    assert files.places[(*at, "command")] == "prep/prep.yml:3:1"
    assert files.places[(*at, "environment", "conda_file", "dependencies", 0)].startswith(
        "prep/conda.yml:1:"
    )
    assert document == node(name)  # the caller's own is as it was


@pytest.mark.parametrize("kind", [{"type": "Pipeline"}, {}])
def test_the_local_things_of_a_pipeline_and_its_nodes_are_found(
    folder: Path, kind: dict[str, Any]
) -> None:
    data = {"type": "uri_folder", "path": "./data"}
    bound = {"type": "uri_folder", "path": "${{parent.inputs.data}}"}
    file = {"type": "uri_file", "path": "data/x.csv"}
    inputs = {"a": "${{parent.inputs.data}}", "b": bound, "c": file}
    jobs = {"inline": {"command": "ls", "code": "prep/src", "inputs": inputs}}
    files = job_files.find({**kind, "inputs": {"data": data, "lr": 0.1}, "jobs": jobs}, folder)
    at = ("jobs", "inline")
    assert places(files) == {
        ("inputs", "data", "path"): folder / "data",
        (*at, "code"): folder / "prep" / "src",
        (*at, "inputs", "c", "path"): folder / "data" / "x.csv",
    }
    assert files.document["jobs"]["inline"]["inputs"]["b"] == bound
    sent = files.with_snapshots(lambda path: path.place.name)
    assert sent["jobs"]["inline"]["code"] == "snapshot:src"


@pytest.mark.parametrize(
    "component",
    [
        "azureml:prep:1",
        "azureml:prep@latest",
        "prep@latest",
        "azureml://registries/azureml/components/prep/versions/1",
        "/subscriptions/s/resourceGroups/g/providers/p/workspaces/w/components/prep/versions/1",
    ],
)
def test_a_component_of_the_workspace_is_left_alone(folder: Path, component: str) -> None:
    files = job_files.find(node(component), folder)
    assert files.document == node(component) and files.paths == ()


def test_nodes_of_other_kinds_are_left_to_the_server(folder: Path) -> None:
    document = node("./missing.yml", type="spark", code="./missing")
    assert job_files.find(document, folder).document == document


def test_pipelines_nest_by_files_and_inline(folder: Path) -> None:
    write(folder / "inner" / "pipeline.yml", "jobs:\n  step: {component: ../prep/prep.yml}\n")
    inline = {"type": "pipeline", "jobs": {"deep": {"component": "inner/pipeline.yml"}}}
    files = job_files.find(node(inline, type="pipeline"), folder)
    at = ("jobs", "prep", "component", "jobs", "deep", "component", "jobs", "step", "component")
    assert places(files) == {(*at, "code"): folder / "prep" / "src"}
    alone = job_files.find({"type": "pipeline", "component": "inner/pipeline.yml"}, folder)
    assert places(alone) == {
        ("component", "jobs", "step", "component", "code"): folder / "prep" / "src"
    }


def test_a_sweep_in_a_pipeline_has_its_trials_file(folder: Path) -> None:
    jobs = {"tune": {"type": "sweep", "trial": "prep/prep.yml", "search_space": {}}}
    files = job_files.find({"jobs": jobs}, folder)
    assert places(files) == {("jobs", "tune", "trial", "code"): folder / "prep" / "src"}
    assert "inputs" not in files.document["jobs"]["tune"]["trial"]


def test_everything_that_is_missing_is_told_with_its_position(folder: Path) -> None:
    write(folder / "bad.yml", "command: ls\ncode: ./none\nenvironment: {conda_file: no.yml}\n")
    jobs = {
        "a": {"component": "bad.yml"},
        "b": {"component": "./no.yml"},
        "c": {"command": "ls", "code": "no", "environment": {"build": {"path": "no"}}},
    }
    with pytest.raises(InvalidSpec) as caught:
        job_files.find({"jobs": jobs, "inputs": {"x": {"path": "no"}}}, folder)
    errors = [caught.value, *caught.value.others]
    assert {error.at: error.message.partition(": ")[0] for error in errors} == {
        ("inputs", "x", "path"): "the path `no` does not exist",
        ("jobs", "a", "component", "code"): "bad.yml:2:1",
        ("jobs", "a", "component", "environment", "conda_file"): "bad.yml:3:15",
        ("jobs", "b", "component"): "the path `./no.yml` does not exist",
        ("jobs", "c", "code"): "the path `no` does not exist",
        ("jobs", "c", "environment", "build", "path"): "the path `no` does not exist",
    }
    files, _ = job_files.find_all({"jobs": jobs}, folder)
    assert files.document["jobs"]["a"]["component"] == {"command": "ls", "environment": {}}
    assert files.document["jobs"]["c"] == {"command": "ls", "environment": {"build": {}}}


def test_errors_of_the_server_about_a_component_begin_with_its_position(folder: Path) -> None:
    files = job_files.find(node("prep/prep.yml"), folder)
    with pytest.raises(InvalidSpec, match=r"^prep/prep.yml:9:3: ") as caught:
        with files.locating():
            raise InvalidSpec("wrong", at=("jobs", "prep", "component", "inputs", "raw"))
    assert caught.value.is_located


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.yml": "a.yml"}, "a.yml:1:12: `a.yml` names itself"),
        (
            {"a.yml": "b.yml", "b.yml": "./a.yml"},
            "b.yml:1:12: `a.yml` names itself through `b.yml`",
        ),
    ],
)
def test_a_component_that_names_itself(folder: Path, files: dict[str, str], message: str) -> None:
    for name, component in files.items():
        write(folder / name, f"jobs: {{x: {{component: {component}}}}}\n")
    with pytest.raises(InvalidSpec) as caught:
        job_files.find(node("a.yml"), folder)
    assert caught.value.message == message


def test_a_pipelines_own_file_is_no_component_of_it(folder: Path) -> None:
    write(folder / "pipeline.yml", "jobs: {x: {component: pipeline.yml}}\n")
    with pytest.raises(InvalidSpec, match=r"`pipeline\.yml` names itself") as caught:
        job_files.find(node("pipeline.yml"), folder, file=folder / "pipeline.yml")
    assert caught.value.at == ("jobs", "prep", "component")


@pytest.mark.parametrize(("levels", "is_good"), [(20, True), (21, False)])
def test_pipelines_nest_at_most_twenty_levels(folder: Path, levels: int, is_good: bool) -> None:
    document: dict[str, Any] = {"command": "ls", "code": "prep/src"}
    for _ in range(levels):
        document = node(document)
    errors = job_files.find_all(document, folder)[1]
    assert not errors if is_good else "more than 20 levels" in errors[0].message


@pytest.mark.parametrize("kind", ["large", "pipe", "folder", "binary", "list", "loop"])
def test_what_is_no_component_file(folder: Path, kind: str) -> None:
    file = folder / "odd.yml"
    if kind == "large":
        with open(file, "wb") as sparse:
            sparse.truncate(1 << 30)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file)
    else:
        file.write_bytes(b"\x00\x01" if kind == "binary" else b"- a\n")
    with pytest.raises(TorchyardError, match=r"odd\.yml") as caught:
        job_files.find(node("./odd.yml"), folder)
    assert caught.value.at == ("jobs", "prep", "component") and caught.value.hint


def test_the_code_of_several_nodes_is_walked_once(folder: Path) -> None:
    jobs = {name: {"component": "prep/prep.yml"} for name in ("a", "b")}
    first, second = job_files.find({"jobs": jobs}, folder).paths
    assert first.entries is second.entries
    assert first.at != second.at


def test_one_mapping_may_stand_in_many_nodes(folder: Path) -> None:
    component = {"type": "command", "command": "ls", "code": "prep/src"}
    jobs = {f"step_{n}": {"component": component, "inputs": {"n": n}} for n in range(1000)}
    files = job_files.find({"type": "pipeline", "jobs": jobs}, folder)
    sent = files.with_snapshots(lambda path: str(path.at[1]))
    assert len(files.paths) == 1000
    assert sent["jobs"]["step_0"]["component"]["code"] == "snapshot:step_0"
    assert sent["jobs"]["step_999"]["component"]["code"] == "snapshot:step_999"
