"""The import hook of torch.save, with packages that only bear the names: no torch is needed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import other_pythons
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files import interception, thin_environment
from torchyard.worker.launch import ranks

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PLAN = LaunchPlan(
    attempt_id="a", attempt=1, job="j", workspace="w", experiment="e", command="true",
    server_url="", report_token="", run_token="", scratch="",
)  # fmt: skip
USE = """
import torch, torch.serialization
print(torch.save is torch.serialization.save)
torch.save(1)
"""
TAKING = """
def install(module):
    module.save = lambda *arguments: print("taken", *arguments)
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A torch whose `save` prints, and the hooks as they lie in an attempt's environment."""
    folder = tmp_path / "packages"
    for name, text in {
        "torch/__init__.py": "from torch.serialization import save\n",
        "torch/serialization.py": "def save(*arguments): print('own', *arguments)\n",
        "torchyard/__init__.py": "",
        "torchyard/train/saved_files/interception.py": TAKING,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    thin_environment.put_hooks(tmp_path / "hooks", intercepted=True)
    return folder


@pytest.fixture(params=[other_pythons.IN_RANK, other_pythons.CURRENT])
def python(request: pytest.FixtureRequest, packages: Path, tmp_path: Path) -> Run:
    interpreter = other_pythons.python(request.param)

    def run(source: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join((str(tmp_path / "hooks"), str(packages)))
        return subprocess.run(
            [interpreter, "-c", source], check=True, text=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": path, interception.VARIABLE: "1", **variables},
        )  # fmt: skip

    return run


def test_torch_save_is_taken_over_under_each_of_its_names(python: Run) -> None:
    done = python(USE)
    assert (done.stdout.split(), done.stderr) == (["True", "taken", "1"], "")


def test_without_the_variable_nothing_happens(python: Run) -> None:
    assert python(USE, TORCHYARD_INTERCEPT="").stdout.split() == ["True", "own", "1"]


def test_without_torchyard_train_it_says_so_and_torch_is_as_ever(
    python: Run, packages: Path
) -> None:
    (packages / "torchyard/train/saved_files/interception.py").unlink()
    done = python(USE)
    assert done.stdout.split() == ["True", "own", "1"]
    assert done.stderr.startswith(
        "[torchyard] torch.save is not intercepted: the environment has no `torchyard-train`"
    )


def test_an_environment_without_torch_is_named_in_each_ranks_log(tmp_path: Path) -> None:
    library = tmp_path / "env/lib/python3.11/site-packages"
    (library / "torchyard/train").mkdir(parents=True)
    plan = replace(PLAN, intercepts_saves=True, environment=str(tmp_path / "env"))
    planned = ranks.plan_ranks(0, 2, 2, tmp_path)
    assert (interception.variables(PLAN), interception.variables(plan)) == (
        {}, {"TORCHYARD_INTERCEPT": "1"},
    )  # fmt: skip
    interception.announce(PLAN, planned)
    assert not any(rank.log.exists() for rank in planned)
    interception.announce(plan, planned)
    for rank in planned:
        assert rank.log.read_text() == (
            "[torchyard] torch.save is not intercepted: the environment has no `torch`\n"
        )
        rank.log.unlink()
    (library / "torch").mkdir()
    interception.announce(plan, planned)
    assert not any(rank.log.exists() for rank in planned)
