"""What a model takes and gives, read from its files when it is registered.

Owns: the signature of an ONNX file and of an `MLmodel`; the properties that an ONNX file gives.
Leaves: the file's bytes to onnx_files.py.
Always: files without a readable signature have none; registering them goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.assets.sources import Source
from torchyard.base.bodies import yaml_documents
from torchyard.base.errors import InvalidInput
from torchyard.models import onnx_files
from torchyard.models.onnx_files import NotOnnx, OnnxFile, OnnxTensor
from torchyard.models.types import Signature, Tensor

_MLMODEL = "MLmodel"
_SUFFIX = ".onnx"
_FROM_OURS = "torchyard."
_OURS = ("parity", "latency", "optimized", "quantized", "source")
_LARGEST_MLMODEL = 256 << 10
_MOST_COLUMNS = 2_000
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)


def read(source: Source) -> tuple[Signature | None, dict[str, str]]:
    """The signature, and properties that the files say of themselves."""
    by_path = dict(source.files)
    if _MLMODEL in by_path:
        return _of_mlmodel(by_path[_MLMODEL]), {}
    file = onnx_file(source)
    if file is None:
        return None, {}
    try:
        return _of_onnx(file)
    except NotOnnx:
        return None, {}


def onnx_file(source: Source) -> Path | None:
    """The only ONNX file; None where there are several, or none."""
    files = [file for path, file in source.files if path.lower().endswith(_SUFFIX)]
    return files[0] if len(files) == 1 else None


def to_json(signature: Signature | None) -> dict[str, Any] | None:
    if signature is None:
        return None
    return {
        "format": signature.format,
        "inputs": [_tensor_json(tensor) for tensor in signature.inputs],
        "outputs": [_tensor_json(tensor) for tensor in signature.outputs],
    }


def from_json(body: Mapping[str, Any] | None) -> Signature | None:
    """What `to_json` made."""
    if not body:
        return None
    inputs, outputs = (
        tuple(
            Tensor(
                entry["name"],
                entry["dtype"],
                None if entry["shape"] is None else tuple(entry["shape"]),
                entry.get("required", True),
            )
            for entry in body[key]
        )
        for key in ("inputs", "outputs")
    )
    return Signature(body["format"], inputs, outputs)


def _tensor_json(tensor: Tensor) -> dict[str, Any]:
    shape = None if tensor.shape is None else list(tensor.shape)
    body = {"name": tensor.name, "dtype": tensor.dtype, "shape": shape}
    return body if tensor.required else {**body, "required": False}


def _of_onnx(file: Path) -> tuple[Signature, dict[str, str]]:
    content = onnx_files.read(file)
    signature = Signature("onnx", _tensors(content.inputs), _tensors(content.outputs))
    return signature, _properties(content)


def _properties(content: OnnxFile) -> dict[str, str]:
    recorded = {
        f"onnx.{key}": content.metadata[_FROM_OURS + key]
        for key in _OURS
        if content.metadata.get(_FROM_OURS + key)
    }
    return {
        "onnx.opset": str(content.opset),
        "onnx.ir_version": str(content.ir_version),
        "onnx.producer": content.producer,
        **({"onnx.domains": ", ".join(content.domains)[:1000]} if content.domains else {}),
        **recorded,
    }


def _tensors(tensors: Sequence[OnnxTensor]) -> tuple[Tensor, ...]:
    return tuple(Tensor(tensor.name, tensor.dtype, tensor.shape) for tensor in tensors)


def _of_mlmodel(file: Path) -> Signature | None:
    """MLflow writes each half as JSON text: columns, or tensors with a `tensor-spec`."""
    try:
        if file.stat().st_size > _LARGEST_MLMODEL:
            return None
        body = yaml_documents.load(file.read_text(encoding="utf-8"), "the MLmodel")
        written = body["signature"]
        halves = [_half(written.get(key)) for key in ("inputs", "outputs")]
    except (*_UNREADABLE, InvalidInput, RecursionError):
        return None
    return Signature("mlflow", halves[0], halves[1]) if any(halves) else None


def _half(text: str | None) -> tuple[Tensor, ...]:
    entries = json.loads(text) if text else []
    return tuple(_mlflow_tensor(entry) for entry in entries[:_MOST_COLUMNS])


def _mlflow_tensor(entry: Mapping[str, Any]) -> Tensor:
    name = str(entry.get("name") or "")[:1000]
    spec = entry.get("tensor-spec")
    if spec is None:
        return Tensor(name, str(entry["type"])[:100], None, bool(entry.get("required", True)))
    # Its dynamic dimensions are -1.
    shape = tuple(int(size) if int(size) >= 0 else "" for size in spec["shape"])
    return Tensor(name, str(spec["dtype"])[:100], shape)
