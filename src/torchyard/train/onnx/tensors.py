"""What a module is called with: example files, random values, other batch sizes.

Owns: reading `.npy`, `.npz`, `.json` and `.csv`, the types of elements, drawing values.
Leaves: which dimensions are dynamic to exporting.
Always: the same seed draws the same values; a value that can't be read is named with its file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchyard.train.onnx.errors import ExportError

Tensors = dict[str, torch.Tensor]

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
EXAMPLES = (".npy", ".npz", ".json", ".csv")
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class InputSpec:
    """An input by its name, its dimensions and the type of its elements, a key of `DTYPES`."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


def dtype_name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


def read_example(file: Path, specs: Sequence[InputSpec]) -> Tensors:
    """The tensors of an example file, by the names of inputs.

    A `.npz` and an object in `.json` hold an array for each name; the other forms hold one array,
    whose name is that of the only spec, or `input`. Numbers of `.json` and `.csv` are float32
    where no spec says otherwise; a `.csv` may begin with a line of column names.

    Raises:
        ExportError: the file can't be read, or its shapes are not those of the specs.
    """
    try:
        arrays = _arrays(file)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(
            f"the example `{file.name}` can't be read: {error}",
            f"save it with `numpy.save`, or as one of: {', '.join(EXAMPLES)}",
        ) from error
    if set(arrays) == {""}:
        arrays = {specs[0].name if len(specs) == 1 else "input": arrays[""]}
    by_name = {spec.name: spec for spec in specs}
    if by_name and set(by_name) != set(arrays):
        raise ExportError(
            f"the example `{file.name}` holds {_quote_names(arrays)}, "
            f"`--input` names {_quote_names(by_name)}",
            "give both the same names, or leave out `--input`",
        )
    return {name: _fit(file.name, name, value, by_name.get(name)) for name, value in arrays.items()}


def _arrays(file: Path) -> dict[str, Any]:
    import numpy

    suffix = file.suffix.lower()
    if suffix == ".npy":
        return {"": numpy.load(file, allow_pickle=False)}
    if suffix == ".npz":
        with numpy.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    if suffix == ".json":
        body = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(body, Mapping):
            return {str(name): _numbers(value) for name, value in body.items()}
        return {"": _numbers(body)}
    if suffix == ".csv":
        with file.open(encoding="utf-8") as lines:
            first = lines.readline()
        try:
            [float(cell) for cell in first.split(",")]
            skipped = 0
        except ValueError:
            skipped = 1
        return {"": numpy.loadtxt(file, delimiter=",", skiprows=skipped, ndmin=2, dtype="float32")}
    raise ExportError(
        f"the example `{file.name}` has no known form", f"use one of: {', '.join(EXAMPLES)}"
    )


def _numbers(value: Any) -> Any:
    import numpy

    array = numpy.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ValueError("it holds something other than numbers, or rows of different lengths")
    return array.astype("float32") if array.dtype.kind == "f" else array


def _fit(file: str, name: str, array: Any, spec: InputSpec | None) -> torch.Tensor:
    if array.dtype.kind not in "biuf":
        raise ExportError(f"`{name}` of the example `{file}` does not hold numbers")
    if not array.size:
        raise ExportError(f"`{name}` of the example `{file}` is empty", "give it a row or more")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype("int64")
    value = torch.from_numpy(array.copy())
    if spec is None:
        return value
    if value.dim() != len(spec.shape) or tuple(value.shape[1:]) != spec.shape[1:]:
        raise ExportError(
            f"`{name}` of the example `{file}` has shape {list(value.shape)}, "
            f"`--input` says {list(spec.shape)}",
            "the first dimension may differ, the others must be the same",
        )
    return value.to(DTYPES[spec.dtype])


def draw(
    specs: Sequence[InputSpec], like: Tensors | None = None, batch: int | None = None, seed: int = 0
) -> Tensors:
    """Random values.

    Floats are normal, whole numbers 0 or 1; where `like` has the input they lie between its
    smallest and its largest value.

    Args:
        batch: the size of dimension 0 of every input; that of the specs when None.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = {}
    for spec in specs:
        shape = spec.shape
        if batch is not None and shape:
            shape = (batch, *shape[1:])
        real = (like or {}).get(spec.name)
        drawn[spec.name] = _draw(shape, DTYPES[spec.dtype], real, generator)
    return drawn


def _draw(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    real: torch.Tensor | None,
    generator: torch.Generator,
) -> torch.Tensor:
    has_range = real is not None and real.numel() > 0 and dtype is not torch.bool
    if dtype.is_floating_point:
        if not has_range:
            return torch.randn(shape, generator=generator).to(dtype)
        assert real is not None
        low, high = float(real.min()), float(real.max())
        return (torch.rand(shape, generator=generator) * (high - low) + low).to(dtype)
    low_int, high_int = 0, 1
    if has_range:
        assert real is not None
        low_int, high_int = int(real.min()), int(real.max())
    return torch.randint(low_int, high_int + 1, shape, generator=generator).to(dtype)


def with_batch(tensors: Tensors, batch: int) -> Tensors:
    """The first `batch` rows of every tensor, repeated where there are fewer."""
    sized = {}
    for name, value in tensors.items():
        if value.dim() and value.shape[0]:
            times = -(-batch // value.shape[0])
            value = value.repeat(times, *[1] * (value.dim() - 1))[:batch]
        sized[name] = value
    return sized


def specs_of(tensors: Tensors) -> list[InputSpec]:
    return [
        InputSpec(name, tuple(value.shape), dtype_name(value.dtype))
        for name, value in tensors.items()
    ]


def _quote_names(values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in values) or "nothing"
