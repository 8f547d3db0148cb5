"""MSCCL's settings become NCCL's, at the start of each Python and before anything else runs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest

from torchyard.environments import definition
from torchyard.environments.packages import layers
from torchyard.environments.types import Platform

LINUX = Platform("linux", "x86_64", "cpu")
ALGORITHM = '<algo name="two_step" proto="LL" ngpus="8" coll="allreduce"></algo>'


@pytest.fixture
def msccl() -> ModuleType:
    file = layers._source("msccl") / "msccl" / "__init__.py"
    spec = importlib.util.spec_from_file_location("msccl", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_listed_msccl_becomes_the_layer_and_says_so() -> None:
    spec = definition.resolve({"pip_requirements": ["six", "msccl"]}, LINUX)
    assert (spec.packages, spec.layers) == (("six",), ("msccl",))
    assert "NCCL's own" in spec.notices[0]
    assert not layers.is_published("msccl")


@pytest.mark.parametrize(
    ("algorithms", "expected"),
    [
        ("MSCCL,RING,TREE", None),
        ("msccl, tree, ring", None),
        ("MSCCL", None),
        ("MSCCL,RING", "RING"),
        ("Tree,MSCCL,NVLS", "Tree,NVLS"),
        ("RING,TREE", "RING,TREE"),
        ("allreduce:tree", "allreduce:tree"),
    ],
)
def test_its_algorithms_are_left_out(
    msccl: ModuleType, algorithms: str, expected: str | None
) -> None:
    result, notices = msccl.translate({"NCCL_ALGO": algorithms, "NCCL_DEBUG": "INFO"})
    assert (result.get("NCCL_ALGO"), result["NCCL_DEBUG"]) == (expected, "INFO")
    assert [algorithms in notice for notice in notices] == [True] * (algorithms != expected)


def test_its_files_are_named_with_what_they_hold(msccl: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(ALGORITHM)
    (tmp_path / "b.xml").write_text("<algo")
    files = ":".join(str(tmp_path / name) for name in ("a.xml", "b.xml", "c.xml"))
    result, (notice,) = msccl.translate({"MSCCL_XML_FILES": files})
    assert result == {}
    assert "a.xml: two_step, allreduce on 8 GPUs" in notice
    assert "b.xml: ParseError" in notice and "c.xml: FileNotFoundError" in notice


def test_what_it_lacks_is_named(msccl: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no `language`"):
        _ = msccl.language


def run(variables: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    code = (
        f"import site; site.addsitedir({str(folder)!r})\n"
        "import os; print(os.environ.get('NCCL_ALGO'), 'MSCCL_XML_FILES' in os.environ)"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", code], env=dict(variables), capture_output=True, text=True
    )


def test_an_environment_translates_when_a_python_of_it_starts(tmp_path: Path) -> None:
    layers.put(["msccl"], tmp_path)
    (package,) = distributions(path=[str(tmp_path)])
    assert (package.metadata["Name"], package.version) == ("msccl", "2.3.0+torchyard")
    done = run({"NCCL_ALGO": "MSCCL,RING", "MSCCL_XML_FILES": "x.xml"}, tmp_path)
    assert done.stdout == "RING False\n", done.stderr
    assert done.stderr.count("torchyard's msccl:") == 2
    quiet = run({"NCCL_ALGO": "RING"}, tmp_path)
    assert (quiet.stdout, quiet.stderr) == ("RING False\n", "")
