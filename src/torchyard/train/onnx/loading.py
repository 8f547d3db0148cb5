"""Load a registered model's files, whatever torch or MLflow wrote them.

Owns: which format a file has, building a class around a state dict.
Leaves: exporting to exporting.
Always: a pickled module runs code when it is loaded, so that it is loaded only on request; MLflow
loads the models that it saved in its own way.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchyard.train.onnx.errors import ExportError

SUFFIXES = (".pt2", ".pt", ".pth", ".ckpt", ".bin", ".pkl")
_STATE_KEYS = ("state_dict", "model_state_dict", "model_state", "model")


@dataclass(frozen=True)
class Loader:
    """How to load: `module` is `FILE:CLASS` for a state dict, called with `arguments`."""

    module: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    allows_pickle: bool = False


def load(path: Path, loader: Loader) -> Any:
    """A module in evaluation mode on the CPU, an exported program, or a script.

    Args:
        path: a file, or a folder with an `MLmodel` or with one file of `SUFFIXES`.

    Raises:
        ExportError: no file of a known format, or one that needs what `loader` does not give.
    """
    if path.is_dir() and (path / "MLmodel").is_file():
        return _ready(_load_mlflow(path))
    file = _file_in(path)
    kind = kind_of(file)
    if kind == "program":
        return _read(file, torch.export.load)
    if kind == "script":
        return _ready(_read(file, lambda name: torch.jit.load(name, map_location="cpu")))
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        if not loader.allows_pickle:
            raise ExportError(
                f"`{file.name}` is a pickled object, and loading it runs code that it holds",
                "if you trust it, add `--allow-pickle`; files of `torch.export.save` need no trust",
            ) from error
        content = _read(file, lambda name: torch.load(name, map_location="cpu", weights_only=False))
    if isinstance(content, torch.nn.Module):
        return _ready(content)
    return _ready(_with_state(file, content, loader))


def kind_of(file: Path) -> str:
    """`program`, `script` or `pickle`, by the content of the file."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
        if any(name.startswith("models/") and name.endswith(".json") for name in names):
            return "program"
        if any(name.startswith("code/") for name in names):
            return "script"
        if "serialized_exported_program.json" in names:
            return "program"
    return "program" if file.suffix == ".pt2" else "pickle"


def _file_in(path: Path) -> Path:
    if path.is_file():
        return path
    files = [
        file for suffix in SUFFIXES for file in sorted(path.rglob(f"*{suffix}")) if file.is_file()
    ]
    best = [file for file in files if file.suffix == files[0].suffix]
    if len(best) == 1:
        return best[0]
    if not best:
        raise ExportError(
            "the model has no file of a known format",
            f"register an MLflow model, or a file that ends with {', '.join(SUFFIXES)}",
        )
    names = ", ".join(file.relative_to(path).as_posix() for file in best[:5])
    raise ExportError(
        f"the model has several files that could be meant: {names}", "register the one to export"
    )


def _load_mlflow(path: Path) -> Any:
    try:
        # By name: nothing of torchyard imports MLflow when it is read.
        flavor = importlib.import_module("mlflow.pytorch")
    except ImportError as error:
        raise ExportError(
            "an MLflow model is loaded by MLflow, which the environment does not have",
            "name an environment that has it: `--environment acpt-pytorch-2.13-cpu`",
        ) from error
    try:
        return flavor.load_model(str(path), map_location="cpu")
    except Exception as error:
        raise ExportError(
            f"MLflow can't load the model: {_gist(error)}",
            "its `pytorch` flavor is needed, and the packages that the model was saved with",
        ) from error


def _with_state(file: Path, content: Any, loader: Loader) -> torch.nn.Module:
    state = content
    if isinstance(content, Mapping):
        key = next((key for key in _STATE_KEYS if isinstance(content.get(key), Mapping)), "")
        state = content[key] if key else content
    if not isinstance(state, Mapping) or not all(
        isinstance(value, torch.Tensor) for value in state.values()
    ):
        raise ExportError(
            f"`{file.name}` holds neither a module nor the tensors of one",
            "save the module with `torch.export.save`, `torch.jit.save` or MLflow",
        )
    if not loader.module:
        raise ExportError(
            f"`{file.name}` is a state dict: {len(state)} tensors, and no module to put them into",
            "name the file and class of the module: `--module model.py:Net`, with its arguments "
            """as `--module-args '{"hidden": 64}'`""",
        )
    module = _build(loader)
    try:
        module.load_state_dict(dict(state))
    except RuntimeError as error:
        raise ExportError(
            f"the tensors of `{file.name}` do not fit `{loader.module}`: {_gist(error)}",
            "give the arguments that the module was made with: `--module-args`",
        ) from error
    return module


def _build(loader: Loader) -> torch.nn.Module:
    name, _, class_name = loader.module.partition(":")
    file = Path(name)
    try:
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        source = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = source
        sys.path.insert(0, str(file.parent))
        spec.loader.exec_module(source)
        kind = getattr(source, class_name)
        module = kind(**loader.arguments)
    except Exception as error:
        raise ExportError(
            f"`{loader.module}` can't be made: {type(error).__name__}: {_gist(error)}",
            "name a file and a class in it, and the arguments of the class by `--module-args`",
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise ExportError(f"`{loader.module}` is not a `torch.nn.Module`")
    return module


def _read(file: Path, read: Any) -> Any:
    try:
        return read(str(file))
    except Exception as error:
        raise ExportError(
            f"torch {torch.__version__} can't load `{file.name}`: {_gist(error)}",
            "save it with a version of torch that is no newer than that of the environment",
        ) from error


def _ready(module: Any) -> Any:
    """In evaluation mode on the CPU."""
    if isinstance(module, torch.nn.Module):
        return module.cpu().eval()
    return module


def _gist(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]
