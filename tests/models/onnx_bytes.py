"""ONNX files for tests, written field by field: the onnx package is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FLOAT32, INT64 = 1, 7
Dimension = int | str
TensorOf = tuple[str, int, Sequence[Dimension]]


def model(
    inputs: Sequence[TensorOf],
    outputs: Sequence[TensorOf],
    opset: int = 20,
    metadata: Mapping[str, str] | None = None,
    weights: bytes = b"",
) -> bytes:
    graph = b"".join(
        [
            field(2, b"main"),
            field(5, weights),
            *(field(11, tensor(*entry)) for entry in inputs),
            *(field(12, tensor(*entry)) for entry in outputs),
        ]
    )
    entries = (
        field(14, field(1, key.encode()) + field(2, value.encode()))
        for key, value in (metadata or {}).items()
    )
    operators = field(8, field(1, b"") + number(2, opset))
    return b"".join(
        [number(1, 10), field(2, b"pytorch"), field(3, b"2.13.0"), field(7, graph), operators,
         *entries]
    )  # fmt: skip


def tensor(name: str, dtype: int, shape: Sequence[Dimension]) -> bytes:
    dimensions = b"".join(
        field(1, number(1, size) if isinstance(size, int) else field(2, size.encode()))
        for size in shape
    )
    kind = field(1, number(1, dtype) + field(2, dimensions))
    return field(1, name.encode()) + field(2, kind)


def field(key: int, content: bytes) -> bytes:
    return varint(key << 3 | 2) + varint(len(content)) + content


def number(key: int, value: int) -> bytes:
    return varint(key << 3) + varint(value)


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
