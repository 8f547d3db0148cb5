"""What needs no torch: which names have a layer, and where it is put."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from torchyard.environments import definition
from torchyard.environments.packages import layers
from torchyard.environments.types import Platform, from_json

LINUX = Platform("linux", "x86_64", "cpu")


@pytest.mark.parametrize("line", ["horovod", "horovod==0.19.5", "Horovod[pytorch]>=0.20"])
def test_a_listed_horovod_becomes_the_layer_and_says_so(line: str) -> None:
    spec = definition.resolve({"pip_requirements": ["six", line]}, LINUX)
    assert (spec.packages, spec.layers) == (("six",), ("horovod",))
    assert line in spec.notices[0] and "takes its place" in spec.notices[0]
    assert spec.hash != definition.resolve({"pip_requirements": ["six"]}, LINUX).hash
    assert from_json(spec.to_json()) == spec


def test_a_package_from_a_url_is_left_as_it_is() -> None:
    line = "horovod @ https://example.org/horovod-0.28.1.tar.gz"
    spec = definition.resolve({"pip_requirements": [line]}, LINUX)
    assert (spec.packages, spec.layers, spec.notices) == ((line,), (), ())


def test_the_conda_file_of_the_documents_has_it() -> None:
    conda = {"dependencies": ["python=3.11", {"pip": ["torch==2.13.0", "horovod==0.19.5"]}]}
    assert definition.resolve({"conda_file": conda}, LINUX).layers == ("horovod",)


def test_it_lies_there_as_a_package(tmp_path: Path) -> None:
    layers.put(["horovod"], tmp_path)
    assert (tmp_path / "horovod" / "torch" / "__init__.py").exists()
    from importlib.metadata import distributions

    (package,) = distributions(path=[str(tmp_path)])
    assert (package.metadata["Name"], package.version) == ("horovod", "0.28.1+torchyard")


def test_it_exports_all_that_it_names() -> None:
    file = layers._source("horovod") / "horovod" / "torch" / "__init__.py"
    tree = ast.parse(file.read_text())
    imported = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    (assigned,) = [node for node in tree.body if isinstance(node, ast.Assign)]
    assert set(ast.literal_eval(assigned.value)) == imported
