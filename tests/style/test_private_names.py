"""No private name of another library is used: it may change in any of its releases."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "torchyard"
# The standard library documents them.
DOCUMENTED = {"os._exit", "sys._getframe"}
# What torch has no public name for, by file. tests/train runs them with the torch of the lock.
OF_TORCH = {
    "train/checkpoint/loading.py": {
        "torch.distributed.checkpoint._nested_dict",
        "torch.distributed.checkpoint.default_planner._EmptyStateDictLoadPlanner",
    },
    "train/checkpoint/ranks.py": {"torch.distributed.distributed_c10d._get_default_store"},
    "train/checkpoint/shares.py": {"torch.distributed.checkpoint.filesystem._StorageInfo"},
    "train/checkpoint/whole_reads.py": {
        "torch.distributed.checkpoint.filesystem._create_file_view",
        "torch._C",
    },
    "train/onnx/exporting.py": {"torch.utils._pytree"},
    # The hook runs before threading may be imported.
    "worker/in_rank/collectives_hook.py": {"_thread"},
    "worker/in_rank/rank_hook.py": {"_thread"},
}


def private_names(tree: ast.Module) -> Iterator[str]:
    """Each private name of a module that is not torchyard's, up to its first private part."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield from _private(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.split(".")[0] not in ("torchyard", "__future__"):
                for alias in node.names:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                    yield from _private(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            first, _, rest = ast.unparse(node).partition(".")
            if first in modules and rest.replace("_", "a").replace(".", "a").isalnum():
                yield from _private(f"{modules[first]}.{rest}")


def _private(name: str) -> Iterator[str]:
    parts = name.split(".")
    for number, part in enumerate(parts):
        if _is_private(part):
            yield ".".join(parts[: number + 1])
            return


def _is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def test_no_private_name_of_another_library_is_used() -> None:
    names = {
        file.relative_to(SOURCE).as_posix(): set(private_names(ast.parse(file.read_text())))
        for file in SOURCE.rglob("*.py")
    }
    assert {
        file: used - DOCUMENTED for file, used in names.items() if used - DOCUMENTED
    } == OF_TORCH


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from uvicorn._types import ASGI3Application", "uvicorn._types"),
        ("from starlette.routing import _DefaultLifespan", "starlette.routing._DefaultLifespan"),
        (
            "import asyncio\nasyncio.events._set_running_loop(None)",
            "asyncio.events._set_running_loop",
        ),
        ("from torch import distributed as dist\ndist._world.pg", "torch.distributed._world"),
        ("import numpy as np\nnp._core.multiarray", "numpy._core"),
    ],
)
def test_a_private_name_is_seen(text: str, name: str) -> None:
    assert set(private_names(ast.parse(text))) == {name}


@pytest.mark.parametrize(
    "text", ["from torchyard.web import _x", "import json\njson.__version__", "self._x.y"]
)
def test_what_is_ours_or_public_is_not(text: str) -> None:
    assert set(private_names(ast.parse(text))) == set()
