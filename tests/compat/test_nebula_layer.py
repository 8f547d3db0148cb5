"""What needs no torch: `nebulaml` becomes a layer, and lies there with what it is made of."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from torchyard.base.errors import BuildFailed
from torchyard.environments import definition
from torchyard.environments.packages import layers
from torchyard.environments.types import EnvironmentSpec, Platform

LINUX = Platform("linux", "x86_64", "cpu")
# A DeepSpeed that has removed the block and the argument, as far as the layer looks at it.
DEEPSPEED = {
    "__init__.py": """
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.checkpoint_engine.utils import create_checkpoint_engine

def _add_core_arguments(parser):
    return parser

def add_config_arguments(parser):
    return _add_core_arguments(parser)
""",
    "runtime/__init__.py": "",
    "runtime/config.py": """
_REMOVED_TOP_LEVEL_CONFIG_KEYS = {"nebula": "removed", "amp": "removed"}

class DeepSpeedConfig:
    checkpoint_config = {"writer": None}

    def __init__(self, block):
        removed = set(block) & set(_REMOVED_TOP_LEVEL_CONFIG_KEYS)
        if removed:
            raise ValueError(*removed)
        self._initialize_params(block)

    def _initialize_params(self, param_dict):
        pass
""",
    "runtime/checkpoint_engine/__init__.py": "",
    "runtime/checkpoint_engine/utils.py": """
def create_checkpoint_engine(config_params, groups):
    return "torch.save"
""",
}
# In place of the engine, which needs torch.
ENGINE = """
import collections
Settings = collections.namedtuple("Settings", "enabled")
def parse(block): return Settings(block.get("enabled", False))
def NebulaCheckpointEngine(settings): return "nebula"
"""


@pytest.mark.parametrize("line", ["nebulaml", "torch-nebula", "torch_nebula==0.16.1"])
def test_a_listed_package_of_nebula_becomes_the_layer_and_says_so(line: str) -> None:
    spec = definition.resolve({"pip_requirements": ["six", line]}, LINUX)
    assert (spec.packages, spec.layers) == (("six",), ("nebulaml", "torchyard-train"))
    assert line in spec.notices[0] and "torchyard's layer takes its place" in spec.notices[0]


def test_both_names_of_nebula_lie_there_with_torchyard_train(tmp_path: Path) -> None:
    layers.put(["nebulaml", "torchyard-train"], tmp_path)
    packages = {package.metadata["Name"] for package in distributions(path=[str(tmp_path)])}
    assert packages == {"nebulaml", "torch-nebula", "torchyard-train"}
    for file in ("nebulaml/writer.py", "torch_nebula/__init__.py"):
        assert (tmp_path / file).is_file()
    assert (tmp_path / "torchyard/train/checkpoint/messages.py").is_file()
    # No part of the server comes along.
    assert [entry.name for entry in (tmp_path / "torchyard").iterdir()] == ["train"]


def test_it_needs_the_python_of_torchyard_train() -> None:
    spec = EnvironmentSpec("3.9", (), "linux-x86_64-cpu", layers=("nebulaml", "torchyard-train"))
    with pytest.raises(BuildFailed, match=r"`nebulaml` is not available for Python 3.9"):
        layers.refuse(spec)
    assert layers.oldest_python(spec.layers) == "3.10"


@pytest.fixture
def layer_with_deepspeed(tmp_path: Path) -> Path:
    layers.put(["nebulaml"], tmp_path)
    for path, text in DEEPSPEED.items():
        file = tmp_path / "deepspeed" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "torch_nebula/__init__.py").write_text("")
    (tmp_path / "torch_nebula/deepspeed_engine.py").write_text(ENGINE)
    return tmp_path


def _run(folder: Path, program: str) -> str:
    start = f"import site; site.addsitedir({str(folder)!r})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", start + program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("block", "engine"),
    [
        ("{}", "torch.save"),
        ("{'nebula': {'enabled': False}}", "torch.save"),
        ("{'nebula': {'enabled': True}}", "nebula"),
    ],
)
def test_a_deepspeed_without_nebula_takes_its_block(
    layer_with_deepspeed: Path, block: str, engine: str
) -> None:
    program = (
        "import deepspeed\n"
        f"print(deepspeed.create_checkpoint_engine(deepspeed.DeepSpeedConfig({block}), None))"
    )
    assert _run(layer_with_deepspeed, program) == engine


def test_what_else_deepspeed_removed_stays_refused(layer_with_deepspeed: Path) -> None:
    program = """
import deepspeed
try:
    deepspeed.DeepSpeedConfig({"amp": {}})
except ValueError as error:
    print(error)
"""
    assert _run(layer_with_deepspeed, program) == "amp"


def test_deepspeed_takes_the_argument_of_its_first_years(layer_with_deepspeed: Path) -> None:
    program = """
import argparse, deepspeed
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
print(parser.parse_args(["--deepspeed_mpi"]).deepspeed_mpi, parser.format_help().count("mpi"))
"""
    assert _run(layer_with_deepspeed, program) == "True 0"


def test_a_python_without_deepspeed_imports_one_module_more(layer_with_deepspeed: Path) -> None:
    program = "import json, sys; print([name for name in sys.modules if 'nebula' in name])"
    assert _run(layer_with_deepspeed, program) == "['nebulaml_deepspeed']"
