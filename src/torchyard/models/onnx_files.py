"""Read what an ONNX file says of itself, without the onnx package.

Owns: the few fields of ONNX's protobuf messages that describe a model.
Leaves: what becomes of them to signatures.py.
Always: weights are skipped, not read, whatever the file's size; a file is hostile: every length is
checked against the file's end, and what is kept of it is bounded.

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_FIELDS = 4_000_000
_MOST_TENSORS = 256
_MOST_DIMENSIONS = 64
_MOST_METADATA = 64
_LONGEST_TEXT = 1_000
_STANDARD = ("", "ai.onnx")
_DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16",
}  # fmt: skip


class NotOnnx(Exception):
    """The file is not an ONNX model."""


@dataclass(frozen=True)
class OnnxTensor:
    """An input or output; a dimension is a size, or the name of a dynamic one, "" without name.

    `shape` is None where the file does not say; `dtype` is empty for other things than tensors.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True)
class OnnxFile:
    """`opset` is the version of the standard operators, 0 for none; `domains` are the others."""

    ir_version: int
    producer: str
    opset: int
    domains: tuple[str, ...]
    inputs: tuple[OnnxTensor, ...]
    outputs: tuple[OnnxTensor, ...]
    metadata: dict[str, str]


@dataclass(frozen=True)
class _Field:
    """Of a varint `value` is the number; else the content lies at `start`, `size` bytes long."""

    number: int
    wire_type: int
    value: int
    start: int
    size: int


def read(path: Path) -> OnnxFile:
    """
    Raises:
        NotOnnx: it is another kind of file, or a broken one.
    """
    try:
        with path.open("rb") as file:
            return _Reader(file).model()
    except (OSError, UnicodeDecodeError) as error:
        raise NotOnnx(str(error)) from error


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = file.seek(0, os.SEEK_END)
        self._fields = 0

    def model(self) -> OnnxFile:
        ir_version, producer, version = 0, "", ""
        opsets: dict[str, int] = {}
        metadata: dict[str, str] = {}
        graph: _Field | None = None
        for field in self._in(0, self._end):
            if field.number == 1 and field.wire_type == _VARINT:
                ir_version = field.value
            elif field.wire_type != _BYTES:
                continue
            elif field.number == 2:
                producer = self._text(field)
            elif field.number == 3:
                version = self._text(field)
            elif field.number == 7:
                graph = field
            elif field.number == 8 and len(opsets) < _MOST_METADATA:
                domain, number = self._opset(field)
                opsets[domain] = number
            elif field.number == 14 and len(metadata) < _MOST_METADATA:
                key, value = self._entry(field)
                metadata[key] = value
        if graph is None or not 0 < ir_version < 1000 or not opsets:
            raise NotOnnx("it has no graph, no version or no operators")
        inputs, outputs = self._graph(graph)
        return OnnxFile(
            ir_version=ir_version,
            producer=f"{producer} {version}".strip(),
            opset=next((opsets[domain] for domain in _STANDARD if domain in opsets), 0),
            domains=tuple(sorted(domain for domain in opsets if domain not in _STANDARD)),
            inputs=inputs,
            outputs=outputs,
            metadata=metadata,
        )

    def _graph(self, graph: _Field) -> tuple[tuple[OnnxTensor, ...], tuple[OnnxTensor, ...]]:
        inputs: list[OnnxTensor] = []
        outputs: list[OnnxTensor] = []
        for field in self._below(graph):
            tensors = {11: inputs, 12: outputs}.get(field.number)
            if tensors is None or field.wire_type != _BYTES:
                continue
            if len(tensors) == _MOST_TENSORS:
                raise NotOnnx(f"it has more than {_MOST_TENSORS} inputs or outputs")
            tensors.append(self._tensor(field))
        return tuple(inputs), tuple(outputs)

    def _tensor(self, field: _Field) -> OnnxTensor:
        name, dtype = "", ""
        shape: tuple[int | str, ...] | None = None
        for part in self._below(field, _BYTES):
            if part.number == 1:
                name = self._text(part)
            elif part.number == 2:
                for kind in self._below(part, _BYTES):
                    if kind.number == 1:
                        dtype, shape = self._tensor_type(kind)
        return OnnxTensor(name, dtype, shape)

    def _tensor_type(self, field: _Field) -> tuple[str, tuple[int | str, ...] | None]:
        dtype = ""
        shape: tuple[int | str, ...] | None = None
        for part in self._below(field):
            if part.number == 1 and part.wire_type == _VARINT:
                dtype = _DTYPES.get(part.value, f"type {part.value}")
            elif part.number == 2 and part.wire_type == _BYTES:
                dimensions = [
                    self._dimension(entry)
                    for entry in self._below(part, _BYTES)
                    if entry.number == 1
                ]
                shape = tuple(dimensions[:_MOST_DIMENSIONS])
        return dtype, shape

    def _dimension(self, field: _Field) -> int | str:
        dimension: int | str = ""
        for part in self._below(field):
            if part.number == 1 and part.wire_type == _VARINT:
                # A size below 0 is a 64-bit complement: unknown.
                dimension = part.value if part.value < 1 << 63 else ""
            elif part.number == 2 and part.wire_type == _BYTES:
                dimension = self._text(part)
        return dimension

    def _opset(self, field: _Field) -> tuple[str, int]:
        domain, version = "", 0
        for part in self._below(field):
            if part.number == 1 and part.wire_type == _BYTES:
                domain = self._text(part)
            elif part.number == 2 and part.wire_type == _VARINT:
                version = min(part.value, 1 << 31)
        return domain, version

    def _entry(self, field: _Field) -> tuple[str, str]:
        texts = {part.number: self._text(part) for part in self._below(field, _BYTES)}
        return texts.get(1, ""), texts.get(2, "")

    def _text(self, field: _Field) -> str:
        """At most `_LONGEST_TEXT` characters, without any that don't print."""
        self._file.seek(field.start)
        text = self._file.read(min(field.size, 4 * _LONGEST_TEXT)).decode("utf-8", "replace")
        return "".join(char for char in text if char.isprintable())[:_LONGEST_TEXT]

    def _below(self, field: _Field, wire_type: int | None = None) -> Iterator[_Field]:
        for part in self._in(field.start, field.start + field.size):
            if wire_type is None or part.wire_type == wire_type:
                yield part

    def _in(self, start: int, end: int) -> Iterator[_Field]:
        at = start
        while at < end:
            self._fields += 1
            if self._fields > _MOST_FIELDS:
                raise NotOnnx("it has too many fields")
            self._file.seek(at)
            tag, at = self._varint(at, end)
            number, wire_type = tag >> 3, tag & 7
            value = size = 0
            if wire_type == _VARINT:
                value, at = self._varint(at, end)
            elif wire_type == _BYTES:
                size, at = self._varint(at, end)
            elif wire_type in (_FIXED64, _FIXED32):
                size = 8 if wire_type == _FIXED64 else 4
            else:
                raise NotOnnx(f"a field has the unknown type {wire_type}")
            if number == 0 or size > end - at:
                raise NotOnnx("a field does not end inside of its message")
            yield _Field(number, wire_type, value, at, size)
            at += size

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """The number at `at`, where the file stands, and the place after it."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self._file.read(1)
            at += 1
            if not byte or at > end:
                raise NotOnnx("a number does not end")
            value |= (byte[0] & 0x7F) << shift
            if not byte[0] & 0x80:
                return value, at
        raise NotOnnx("a number is too long")
