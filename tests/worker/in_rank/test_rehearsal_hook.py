"""The import hook of a rehearsal, with packages that only bear the names: no torch is needed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import other_pythons
from torchyard import worker
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files import rehearsal
from torchyard.worker.launch import ranks

Run = Callable[..., str]
WORKER = Path(worker.__file__).parent / "in_rank"
PLAN = LaunchPlan(
    attempt_id="a", attempt=1, job="j", workspace="w", experiment="e", command="true",
    server_url="", report_token="", run_token="", scratch="",
)  # fmt: skip


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with the rehearsal as it lies in an attempt's environment."""
    package = tmp_path / rehearsal.PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    for name in rehearsal.FILES:
        (package / name).write_bytes((WORKER / name).read_bytes())
    return tmp_path


@pytest.fixture(params=[other_pythons.REHEARSAL, other_pythons.CURRENT])
def python(request: pytest.FixtureRequest, packages: Path) -> Run:
    """What a Python prints that starts with the hook."""
    interpreter = other_pythons.python(request.param)

    def run(source: str, *, gpus: str = "1") -> str:
        variables = {**os.environ, "PYTHONPATH": str(packages), rehearsal.VARIABLE: gpus}
        command = [interpreter, "-c", rehearsal.PTH + source]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return run


def test_every_file_of_the_rehearsal_is_named() -> None:
    assert set(rehearsal.FILES) == {file.name for file in WORKER.glob("rehearsal_*.py")}


def test_a_python_that_imports_no_torch_pays_for_one_module(python: Run) -> None:
    print_own = "import sys\nprint(sorted(n for n in sys.modules if 'rehearsal' in n))"
    expected = [rehearsal.PACKAGE, f"{rehearsal.PACKAGE}.rehearsal_hook"]
    assert python(print_own) == str(expected)
    assert python(print_own, gpus="") == "[]"
    assert python("import sys, json\nprint('torch' in sys.modules)") == "False"


def test_torch_is_changed_right_after_its_import_and_looks_untouched(
    packages: Path, python: Run
) -> None:
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").write_text("__version__ = '1.13.1'\n")
    source = (
        "try:\n    import torch\n"
        "except RuntimeError as error:\n    print(type(error).__name__, error)\n"
    )
    assert python(source) == (
        "CannotBeRehearsed cannot be rehearsed on CPU: torch 1.13.1 is older than 2.0"
    )
    assert python(source + "else:\n    print(torch.__version__)", gpus="") == "1.13.1"


@pytest.mark.parametrize("name", ["triton", "cupy", "flash_attn"])
def test_a_package_of_kernels_is_refused_by_name(packages: Path, python: Run, name: str) -> None:
    (packages / f"{name}.py").write_text("print('imported')\n")
    source = f"try:\n    import {name}\nexcept ImportError as error:\n    print(error.name, error)"
    printed = python(source)
    assert printed.startswith(f"{name} cannot be rehearsed on CPU: module `{name}`: ")
    assert python(source, gpus="") == "imported"


def test_a_module_inside_a_package_is_refused_and_its_package_is_not(
    packages: Path, python: Run
) -> None:
    (packages / "numba" / "cuda").mkdir(parents=True)
    (packages / "numba" / "__init__.py").write_text("")
    (packages / "numba" / "cuda" / "__init__.py").write_text("")
    source = "import numba\ntry:\n    import numba.cuda\nexcept ImportError as error:\n"
    printed = python(source + "    print(error)")
    assert printed.startswith("cannot be rehearsed on CPU: module `numba.cuda`")


def test_extensions_in_cpp_are_built_and_those_in_cuda_refused(packages: Path, python: Run) -> None:
    utils = packages / "torch" / "utils"
    utils.mkdir(parents=True)
    (packages / "torch" / "__init__.py").write_text("__version__ = '1.0'\n")
    (utils / "__init__.py").write_text("")
    (utils / "cpp_extension.py").write_text(
        "def load(name, sources, **more): return 'built'\n"
        "def load_inline(name, cpp_sources, cuda_sources=None, **more): return 'built'\n"
        "def CUDAExtension(*told, **more): return 'built'\n"
    )
    source = (
        # Only this module's change is looked at; torch here is not the real one.
        f"import importlib, sys\nsys.modules['torch'] = __import__('types').ModuleType('torch')\n"
        f"sys.modules['torch'].__path__ = [{str(packages / 'torch')!r}]\n"
        "import torch.utils.cpp_extension as made\n"
        "def tried(build, *told, **more):\n"
        "    try:\n        return build(*told, **more)\n"
        "    except RuntimeError as error:\n        return str(error).split('`')[1]\n"
        "print(tried(made.load, 'a', ['a.cpp']), tried(made.load, 'a', ['a.cpp', 'b.cu']),\n"
        "      tried(made.load_inline, 'a', ['int a;']),\n"
        "      tried(made.load_inline, 'a', [''], ['int b;']), tried(made.CUDAExtension, 'a'))\n"
    )
    at = "torch.utils.cpp_extension."
    assert python(source).split() == [
        "built", f"{at}load", "built", f"{at}load_inline", f"{at}CUDAExtension",
    ]  # fmt: skip


def test_a_rank_learns_of_it_and_its_log_begins_with_it(tmp_path: Path) -> None:
    planned = ranks.plan_ranks(0, 2, 2, tmp_path)
    rehearsed = replace(PLAN, rehearsed_gpus=4)
    assert rehearsal.variables(PLAN) == {}
    assert rehearsal.variables(rehearsed) == {"TORCHYARD_REHEARSAL": "4"}
    rehearsal.announce(PLAN, planned)
    assert not any(rank.log.exists() for rank in planned)
    rehearsal.announce(rehearsed, planned)
    for rank in planned:
        assert rank.log.read_text().startswith("[torchyard] rehearsal on CPU: ")
