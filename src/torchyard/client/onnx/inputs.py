"""Values for a model, read from a file and compared with what the model takes.

Owns: the forms of such a file, which values belong to which input, the shape and type of each.
Leaves: arrays to numpy, in the job.
Always: numpy is not imported; an input that does not fit is named with what the model takes, before
a job starts; a value that is not a finite number is refused.

Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from torchyard.base.errors import InvalidInput, nearest
from torchyard.base.terminal_text import plain

FORMS = (".json", ".csv", ".npy", ".npz")
LARGEST_BYTES = 128 << 20

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 16
_DESCR = re.compile(r"[<>|=]?([biufcUSOV])(\d{1,9})?\Z", re.ASCII)
_DEEPEST = 32
_BY_NAME = ("inputs", "input_data", "data")
_LISTED = 8
_KINDS = {
    "b": "truth values", "i": "integers", "u": "integers", "f": "numbers with a fraction",
    "U": "text",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """An input of a model, as its signature has it; sizes that are names are dynamic."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"`{self.name}`: {self.dtype}"
        sizes = ", ".join(str(size or "?") for size in self.shape)
        return f"`{self.name}`: {self.dtype} of shape [{sizes}]"


@dataclass(frozen=True)
class ScoreRequest:
    """What the job scores: its file's name there, and the content."""

    name: str
    content: bytes


@dataclass(frozen=True)
class _Array:
    """`kind` is a key of `_KINDS`: that of numpy's types."""

    shape: tuple[int, ...]
    kind: str


class _Unreadable(Exception):
    """The file does not hold what its name says; the message says what it holds."""


def read(source: str | Path | Mapping[str, Any], tensors: Sequence[Tensor]) -> ScoreRequest:
    """
    Args:
        source: a file, or values by the names of inputs: lists, or arrays with `tolist`.
        tensors: what the model takes; empty where that is unknown.

    Raises:
        InvalidInput: the file is missing, has another form, or does not fit.
    """
    if isinstance(source, Mapping):
        values = {str(name): _listed(value) for name, value in source.items()}
        return _from_values("the request", values, tensors)
    file = Path(source)
    title = f"`{plain(str(file))[:200]}`"
    suffix = file.suffix.lower()
    if suffix not in FORMS:
        raise InvalidInput(
            f"the input {title} has no known form",
            f"use one of: {', '.join(FORMS)}",
            at=("input",),
        )
    content = _content(file, title)
    try:
        if suffix == ".json":
            return _from_values(title, _json(content), tensors)
        if suffix == ".csv":
            return _from_values(title, _csv(content), tensors)
        if suffix == ".npy":
            arrays = {"": _header(io.BytesIO(content), len(content))}
        else:
            arrays = _archive(content)
    except _Unreadable as error:
        raise InvalidInput(
            f"the input {title} can't be read: {error}", _takes(tensors), at=("input",)
        ) from error
    _check(title, _with_names(title, arrays, tensors), tensors)
    return ScoreRequest(f"input{suffix}", content)


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _content(file: Path, title: str) -> bytes:
    try:
        if not file.is_file():
            there = "is a folder" if file.is_dir() else "does not exist"
            raise InvalidInput(f"the input {title} {there}", "name a file", at=("input",))
        size_bytes = file.stat().st_size
        if size_bytes > LARGEST_BYTES:
            raise InvalidInput(
                f"the input {title} has {size_bytes >> 20} MB, more than {LARGEST_BYTES >> 20}",
                "score many files by a job of several nodes: `yard batch-endpoint invoke`",
                at=("input",),
            )
        return file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            f"the input {title} can't be read ({reason})", "check its path", at=("input",)
        ) from error


def _json(content: bytes) -> Any:
    def refuse(text: str) -> None:
        raise _Unreadable(f"`{text}` is not a number of JSON")

    try:
        return json.loads(content, parse_constant=refuse)
    except ValueError as error:
        raise _Unreadable(f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise _Unreadable("its lists are nested too deep") from error


def _csv(content: bytes) -> Any:
    """The rows; a first one without a number is a line of column names."""
    try:
        rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"))) if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise _Unreadable(f"it is not CSV: {error}") from error
    if rows and not any(_number(cell) is not None for cell in rows[0]):
        rows = rows[1:]
    values = []
    for number, row in enumerate(rows, 1):
        cells = [_number(cell) for cell in row]
        if None in cells:
            wrong = plain(row[cells.index(None)])[:40]
            raise _Unreadable(
                f"row {number}, column {cells.index(None) + 1} holds `{wrong}`, not a number"
            )
        values.append(cells)
    return values


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _from_values(title: str, body: Any, tensors: Sequence[Tensor]) -> ScoreRequest:
    """As a request that an endpoint takes: `{"inputs": {name: values}}`, or `{"data": values}`."""
    values = _by_name(body, tensors)
    try:
        arrays = {name: _array(value) for name, value in values.items()}
    except _Unreadable as error:
        raise InvalidInput(f"the input {title}: {error}", _takes(tensors), at=("input",)) from error
    arrays = _with_names(title, arrays, tensors)
    _check(title, arrays, tensors)
    if set(arrays) == {""}:
        request = {"data": values[""]}
    else:
        request = {"inputs": dict(zip(arrays, values.values(), strict=True))}
    return ScoreRequest("input.json", json.dumps(request).encode())


def _by_name(body: Any, tensors: Sequence[Tensor]) -> dict[str, Any]:
    """Values by the names of inputs, "" for one without name."""
    if not isinstance(body, Mapping):
        return {"": body}
    names = {tensor.name for tensor in tensors}
    if set(body) != names:
        key = next((key for key in _BY_NAME if key in body), "")
        if key:
            body = body[key]
    if isinstance(body, Mapping) and "data" in body and "columns" in body:
        # A table, as Azure ML's and MLflow's requests have it.
        body = body["data"]
    return {str(name): value for name, value in body.items()} if isinstance(body, Mapping) else {
        "": body
    }  # fmt: skip


def _array(value: Any, at: tuple[int, ...] = ()) -> _Array:
    """
    Raises:
        _Unreadable: it holds something that no tensor holds, or rows of different lengths.
    """
    where = f" at {list(at)}" if at else ""
    if len(at) > _DEEPEST:
        raise _Unreadable(f"its lists are nested more than {_DEEPEST} deep")
    if not isinstance(value, (list, tuple)):
        return _Array((), _kind([value], at[:-1], at[-1] if at else 0))
    if not value:
        return _Array((0,), "f")
    if not any(isinstance(entry, (list, tuple)) for entry in value):
        return _Array((len(value),), _kind(value, at))
    parts = [_array(entry, (*at, index)) for index, entry in enumerate(value)]
    for index, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise _Unreadable(
                f"the lists{where} have different shapes: {list(parts[0].shape)} at 0, "
                f"{list(part.shape)} at {index}"
            )
    return _Array((len(value), *parts[0].shape), _common({part.kind for part in parts}, where))


def _kind(values: Sequence[Any], at: tuple[int, ...], first: int = 0) -> str:
    types = set(map(type, values))
    for index, value in enumerate(values, first) if not types <= {bool, int, float, str} else ():
        if type(value) not in (bool, int, float, str):
            content = "null" if value is None else f"a {type(value).__name__}"
            raise _Unreadable(f"the value at {list((*at, index))} is {content}, not a number")
    kinds = {"b"} if bool in types else set()
    kinds |= ({"i"} if int in types else set()) | ({"U"} if str in types else set())
    if float in types:
        floats = [value for value in values if isinstance(value, float)]
        if not all(map(math.isfinite, floats)):
            index = next(
                index for index, value in enumerate(values, first)
                if isinstance(value, float) and not math.isfinite(value)
            )  # fmt: skip
            value = values[index - first]
            raise _Unreadable(f"the value at {list((*at, index))} is {value}, not a finite number")
        kinds.add("i" if all(map(float.is_integer, floats)) else "f")
    return _common(kinds, f" at {list(at)}" if at else "")


def _common(kinds: set[str], where: str) -> str:
    if "U" in kinds and len(kinds) > 1:
        raise _Unreadable(f"the list{where} mixes text and numbers")
    return next(kind for kind in "Ufib" if kind in kinds)


def _archive(content: bytes) -> dict[str, _Array]:
    """The headers of a `.npz`, by the names of its arrays."""
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > LARGEST_BYTES:
                raise _Unreadable(f"its arrays have more than {LARGEST_BYTES >> 20} MB")
            for info in infos:
                with archive.open(info) as file:
                    name = info.filename.removesuffix(".npy")
                    arrays[name] = _header(file, info.file_size)  # type: ignore[arg-type]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError) as error:
        raise _Unreadable(f"it is not an archive of `numpy.savez`: {error}") from error
    if not arrays:
        raise _Unreadable("it holds no array")
    return arrays


def _header(file: BinaryIO, size_bytes: int) -> _Array:
    """What the header of a `.npy` says."""
    start = file.read(8)
    if start[:6] != _MAGIC or len(start) < 8:
        raise _Unreadable("it is not a file of `numpy.save`")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _LONGEST_HEADER:
        raise _Unreadable("its header is too long")
    try:
        header = ast.literal_eval(file.read(length).decode("utf-8").strip())
        descr, shape = header["descr"], header["shape"]
        sizes = tuple(int(size) for size in shape)
    except (ValueError, SyntaxError, LookupError, TypeError, RecursionError, MemoryError) as error:
        raise _Unreadable("its header can't be read") from error
    match = _DESCR.match(descr) if isinstance(descr, str) else None
    kind = match[1] if match else ""
    if kind == "O":
        raise _Unreadable("it holds Python objects: save it with a `dtype` such as float32")
    if match is None or kind not in _KINDS:
        raise _Unreadable(f"it holds {plain(str(descr))[:60]}, not numbers or text")
    item_bytes = int(match[2] or 1) * (4 if kind == "U" else 1)
    if 8 + width + length + math.prod(sizes) * item_bytes > size_bytes:
        raise _Unreadable(f"it is cut off: its header promises the shape {list(sizes)}")
    return _Array(sizes, kind)


def _with_names(
    title: str, arrays: Mapping[str, _Array], tensors: Sequence[Tensor]
) -> dict[str, _Array]:
    """
    Raises:
        InvalidInput: the names are not those of the model's inputs.
    """
    names = [tensor.name for tensor in tensors]
    if not names:
        return dict(arrays)
    if set(arrays) == {""} and names != [""]:
        if len(names) > 1:
            raise InvalidInput(
                f"the input {title} does not say which input of the model it is for",
                f'write `{{"inputs": {{name: values}}}}`, or a `.npz`; {_takes(tensors)}',
                at=("input",),
            )
        return {names[0]: arrays[""]}
    for name in arrays:
        if name not in names:
            guess = nearest(name, names)
            raise InvalidInput(
                f"the input {title} names `{plain(name)[:100]}`, which the model does not take",
                f"did you mean `{guess}`? {_takes(tensors)}" if guess else _takes(tensors),
                at=("input",),
            )
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidInput(
            f"the input {title} has no values for `{missing[0]}`", _takes(tensors), at=("input",)
        )
    return dict(arrays)


def _check(title: str, arrays: Mapping[str, _Array], tensors: Sequence[Tensor]) -> None:
    by_name = {tensor.name: tensor for tensor in tensors}
    for name, array in arrays.items():
        reason = _misfit(array, by_name.get(name))
        if reason:
            prefix = f"`{plain(name)}` of " if name else ""
            raise InvalidInput(
                f"{prefix}the input {title} {reason}", _hint(array, by_name.get(name), tensors),
                at=("input",),
            )  # fmt: skip


def _misfit(array: _Array, tensor: Tensor | None) -> str:
    if 0 in array.shape:
        return "is empty"
    if tensor is None:
        return ""
    accepted = _accepted(tensor.dtype)
    if accepted and array.kind not in accepted:
        return f"holds {_KINDS[array.kind]}, and the model takes {tensor.dtype}"
    if tensor.shape is not None and not (
        len(array.shape) == len(tensor.shape)
        and all(
            isinstance(expected, str) or size == expected
            for size, expected in zip(array.shape, tensor.shape, strict=True)
        )
    ):
        return f"has the shape {list(array.shape)}"
    return ""


def _accepted(dtype: str) -> str:
    """The kinds that become `dtype` without losing anything; empty where all may."""
    if dtype.startswith(("float", "bfloat")):
        return "biuf"
    if dtype.startswith(("int", "uint")):
        return "biu"
    return {"bool": "b", "string": "U"}.get(dtype, "")


def _hint(array: _Array, tensor: Tensor | None, tensors: Sequence[Tensor]) -> str:
    takes = _takes(tensors)
    if tensor is not None and tensor.shape is not None:
        batch = (1, *array.shape)
        if not _misfit(_Array(batch, array.kind), tensor):
            return f"{takes}; a single row needs one more pair of brackets around it"
    return takes


def _takes(tensors: Sequence[Tensor]) -> str:
    if not tensors:
        return "write values by the names of the model's inputs"
    few = "; ".join(plain(str(tensor)) for tensor in tensors[:_LISTED])
    more = f"; and {len(tensors) - _LISTED} more" if len(tensors) > _LISTED else ""
    return f"the model takes {few}{more}"
