"""The table of workloads, and the program that runs them."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.environments.selftest import in_environment
from torchyard.releases import workload_list
from torchyard.releases.workload_list import WORKLOADS

PROGRAMS = Path(workload_list.__file__).parent / "workloads"
ANSWER = Path(in_environment.__file__).with_name("answer.py")


def test_every_workload_is_a_function() -> None:
    for workload in WORKLOADS:
        file = PROGRAMS / f"{workload.module.rpartition('.')[2]}.py"
        names = {
            node.name
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        assert workload.function in names, workload


def test_every_function_is_a_workload() -> None:
    functions = {workload.function for workload in WORKLOADS}
    for file in PROGRAMS.glob("*.py"):
        if file.stem in ("__init__", "main", "checks", "bert"):
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert node.name in functions, f"{file.name}: {node.name}"


def test_examples_are_in_the_package() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for name in workload_list.EXAMPLES:
        target = f"torchyard/releases/workloads/examples/{name}"
        assert f'"examples/{name}/src" = "{target}"' in pyproject


def test_there_are_two_dozen_and_more() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS) >= 24


def test_a_name_that_is_no_workload_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidSpec, match="fsdp3") as refused:
        workload_list.selected(WORKLOADS, ["fsdp3"])
    assert refused.value.hint == "did you mean `fsdp2`?"
    assert tuple(refused.value.at) == ("only", 0)


OWN = """
import os, time
from torchyard_validation import checks


def passes():
    return {"answer": 42}


def skips():
    checks.need("surely_not_installed")


def loses():
    checks.at_least("accuracy", 0.41, 0.95)


def crashes():
    os.abort()


def leaves():
    os._exit(3)


def wraps():
    try:
        {}["operators"]
    except KeyError as error:
        raise ImportError("can't import it") from error


def hangs():
    time.sleep(60)
"""


def test_each_workload_has_its_own_result(tmp_path: Path) -> None:
    package = tmp_path / "torchyard_validation"
    package.mkdir()
    for file in (*PROGRAMS.glob("*.py"), ANSWER):
        shutil.copy(file, package)
    (package / "own").mkdir()
    (package / "own" / "mine.py").write_text(OWN)
    names = ["crashes", "hangs", "leaves", "loses", "wraps", "skips", "passes"]
    workloads = [
        {
            "name": name,
            "module": "own/mine.py",
            "function": name,
            "limit_s": 2 if name == "hangs" else 100,
        }
        for name in names
    ]
    settings = {"workloads": workloads, "requested": [], "variables": ["PATH", "UNSET"]}
    (package / "settings.json").write_text(json.dumps(settings))
    program = "import sys; from torchyard_validation.main import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1, ended.stderr
    lines = (tmp_path / "outputs" / "validation" / "rank-0.jsonl").read_text().splitlines()
    assert "hardware" in json.loads(lines[0])
    answer = json.loads(lines[1])["answer"]
    assert answer["variables"] == {"PATH": os.environ["PATH"]}
    assert answer["packages"]["pytest"] == pytest.__version__
    results: dict[str, Any] = {row["name"]: row for row in map(json.loads, lines[2:])}
    assert list(results) == names
    assert results["passes"]["figures"] == {"answer": 42}
    assert results["skips"]["status"] == "skipped"
    assert results["skips"]["reason"] == "`surely_not_installed` is not in the environment"
    reasons = {name: results[name]["reason"] for name in names[:5]}
    assert reasons == {
        "crashes": "its process ended by SIGABRT",
        "hangs": "not done after 2 s",
        "leaves": "its process ended with exit code 3",
        "loses": "accuracy is 0.41, below 0.95",
        "wraps": "ImportError: can't import it (because of KeyError: 'operators')",
    }
