"""Export registered models to ONNX, by a job.

Owns: the options of an export and their written forms, the job's document and code.
Leaves: exporting to torchyard.train.onnx, which travels with the job; registering the result to
the job's output.
Always: neither torch nor onnx is imported here.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, did_you_mean
from torchyard.client.onnx.environments import Needs

EXPERIMENT = "onnx-exports"
ENVIRONMENT = "acpt-pytorch-2.13-cpu"
# Its torch.export has what the exporter needs.
NEEDS = Needs(
    ("torch", "onnx", "onnxscript", "onnxruntime"), ENVIRONMENT, f"`{ENVIRONMENT}`", (2, 6)
)
OUTPUT = "onnx"
LEVELS = ("basic", "extended", "all")
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip
EXAMPLES = (".npy", ".npz", ".json", ".csv")
FILES = (".pt2", ".pt", ".pth", ".ckpt", ".bin", ".pkl")

_INPUT = re.compile(r"([A-Za-z_][\w.]*)=([0-9,]*)/([A-Za-z0-9]+)\Z", re.ASCII)
_DYNAMIC = re.compile(r"([A-Za-z_][\w.]*)=(\d{1,2}(?:,\d{1,2})*)\Z", re.ASCII)
_MODULE = re.compile(r"(.+\.py):([A-Za-z_]\w*)\Z", re.ASCII)
_LARGEST_INPUT = 1 << 28
# Sent as files, never imported: they run in the job.
_TRAIN = Path(__file__).resolve().parents[2] / "train"
_REQUEST = "onnx-export.json"


@dataclass(frozen=True)
class OnnxInput:
    """An input of the model: its dimensions, and the type of its elements, one of `DTYPES`."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class OnnxExport:
    """How to export a model; see `Models.export_onnx`."""

    inputs: tuple[OnnxInput, ...] = ()
    example: Path | None = None
    dynamic: Mapping[str, Sequence[int]] | None = None
    output_names: tuple[str, ...] = ()
    opset: int | None = None
    optimize: str = ""
    quantize: bool = False
    tolerance: float = 1e-3
    module: str = ""
    module_args: Mapping[str, Any] = field(default_factory=dict)
    allow_pickle: bool = False
    register_as: str = ""
    environment: str = ""
    compute: str = ""


def read_input(text: str) -> OnnxInput:
    """An input written as `image=1,3,224,224/float32`.

    Raises:
        InvalidInput: it has another form.
    """
    match = _INPUT.match(text.strip())
    sizes = match[2].split(",") if match and match[2] else []
    if match is None or not all(sizes):
        raise InvalidInput(
            f"`{text[:200]}` is not an input",
            "write its name, its shape and its type: `image=1,3,224,224/float32`",
            at=("inputs",),
        )
    dtype = match[3].lower()
    if dtype not in DTYPES:
        raise InvalidInput(
            f"input `{match[1]}` has the unknown type `{match[3]}`",
            did_you_mean(dtype, DTYPES),
            at=("inputs",),
        )
    shape = tuple(int(size) for size in sizes)
    if 0 in shape or math.prod(shape) > _LARGEST_INPUT:
        raise InvalidInput(
            f"input `{match[1]}` has the shape {list(shape)}, which is empty or too large",
            "give the shape of a small batch: `image=1,3,224,224/float32`",
            at=("inputs",),
        )
    return OnnxInput(match[1], shape, dtype)


def read_dynamic(texts: Sequence[str]) -> Mapping[str, Sequence[int]] | None:
    """Dynamic dimensions written as `image=0,2,3`, or `none`; None where nothing is written.

    Raises:
        InvalidInput: one has another form.
    """
    if not texts:
        return None
    if [text.strip().lower() for text in texts] == ["none"]:
        return {}
    dynamic: dict[str, Sequence[int]] = {}
    for text in texts:
        match = _DYNAMIC.match(text.strip())
        if match is None:
            raise InvalidInput(
                f"`{text[:200]}` does not name dynamic dimensions",
                "write an input and its dimensions, counted from 0: `image=0,2,3`; or `none`",
                at=("dynamic",),
            )
        dynamic[match[1]] = tuple(int(axis) for axis in match[2].split(","))
    return dynamic


def check(export: OnnxExport, model: Mapping[str, Any]) -> None:
    """
    Raises:
        InvalidInput: an option can't be honoured, or the model has no file that can be exported.
    """
    if not export.inputs and export.example is None:
        raise InvalidInput(
            "neither an input nor an example was given",
            "write `--input image=1,3,224,224/float32`, or `--example FILE` with real values",
            at=("inputs",),
        )
    names = [entry.name for entry in export.inputs]
    if len(set(names)) < len(names):
        raise InvalidInput("an input was given twice", "give each input once", at=("inputs",))
    if export.optimize and export.optimize not in LEVELS:
        raise InvalidInput(
            f"`{export.optimize}` is not a level of optimization",
            f"use one of: {', '.join(LEVELS)}",
            at=("optimize",),
        )
    if not 0 < export.tolerance < math.inf:
        raise InvalidInput("the tolerance is not above 0", "1e-3 is usual", at=("tolerance",))
    unknown = [name for name in export.dynamic or {} if names and name not in names]
    if unknown:
        raise InvalidInput(
            f"`{unknown[0]}` has dynamic dimensions and is not an input",
            f"the inputs are: {', '.join(names)}",
            at=("dynamic",),
        )
    _check_files(export)
    _check_model(model)


def _check_files(export: OnnxExport) -> None:
    if export.example is not None:
        if export.example.suffix.lower() not in EXAMPLES:
            raise InvalidInput(
                f"the example `{export.example.name}` has no known form",
                f"use one of: {', '.join(EXAMPLES)}",
                at=("example",),
            )
        if not export.example.is_file():
            raise InvalidInput(
                f"the example `{export.example}` does not exist", "check the path", at=("example",)
            )
    if export.module:
        match = _MODULE.match(export.module)
        if match is None:
            raise InvalidInput(
                f"`{export.module}` does not name a module",
                "write a file and a class in it: `--module model.py:Net`",
                at=("module",),
            )
        if not Path(match[1]).is_file():
            raise InvalidInput(
                f"the file `{match[1]}` does not exist", "check the path", at=("module",)
            )


def _check_model(model: Mapping[str, Any]) -> None:
    paths = [str(file["path"]) for file in model.get("files") or ()]
    title = f"{model['name']}:{model['version']}"
    if not paths:
        raise InvalidInput(
            f"model `{title}` has no files here: it lies at `{model.get('source', '')}`",
            "register it from there with `yard model create`",
        )
    if "MLmodel" in paths or any(path.lower().endswith(FILES) for path in paths):
        return
    if any(path.lower().endswith(".onnx") for path in paths):
        raise InvalidInput(f"model `{title}` is an ONNX model already", "use it as it is")
    few = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    raise InvalidInput(
        f"model `{title}` has no file of a known format: {few}",
        f"register an MLflow model, or a file that ends with {', '.join(FILES)}",
    )


@contextmanager
def job_document(
    export: OnnxExport, model: Mapping[str, Any], environment: str | dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The job, whose code lies in a folder until the block ends."""
    title = f"{model['name']}:{model['version']}"
    with tempfile.TemporaryDirectory(prefix="onnx-export-") as folder:
        _write_code(export, title, Path(folder))
        inputs: dict[str, Any] = {"model": {"type": "custom_model", "path": f"azureml:{title}"}}
        command = (
            f"python -m torchyard.train.onnx.program {_REQUEST} "
            '"${{inputs.model}}" "${{outputs.onnx}}"'
        )
        if export.example is not None:
            inputs["example"] = {"type": "uri_file", "path": str(export.example.absolute())}
            command += ' "${{inputs.example}}"'
        document: dict[str, Any] = {
            "command": command,
            "code": folder,
            "environment": environment,
            "experiment_name": EXPERIMENT,
            "display_name": f"{title} to ONNX",
            "description": f"exports model {title} to ONNX",
            "tags": {"torchyard": "onnx export"},
            "inputs": inputs,
            "outputs": {OUTPUT: {"type": "onnx_model", "name": target_name(export, model)}},
        }
        if export.compute:
            document["compute"] = export.compute
        yield document


def target_name(export: OnnxExport, model: Mapping[str, Any]) -> str:
    return export.register_as or f"{model['name']}-onnx"


def _write_code(export: OnnxExport, title: str, folder: Path) -> None:
    package = folder / "torchyard"
    shutil.copytree(
        _TRAIN, package / "train", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    # It comes before any torchyard of the environment.
    (package / "__init__.py").write_text("", encoding="utf-8")
    module = export.module
    if match := _MODULE.match(module):
        file = Path(match[1])
        shutil.copyfile(file, folder / file.name)
        module = f"{file.name}:{match[2]}"
    request = {
        **vars(replace(export, module=module)),
        "inputs": [vars(entry) for entry in export.inputs],
        "example": None,
        "source": title,
    }
    text = json.dumps(request, default=str, indent=1)
    (folder / _REQUEST).write_text(text, encoding="utf-8")
