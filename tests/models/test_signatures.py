"""What models take and give, read from their files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from models import onnx_bytes
from models.onnx_bytes import FLOAT32, INT64
from torchyard.assets.sources import Source
from torchyard.models import onnx_files, signatures
from torchyard.models.onnx_files import NotOnnx
from torchyard.models.types import Signature, Tensor

IMAGE = ("image", FLOAT32, ("batch", 3, 224, 224))
IDS = ("ids", INT64, (1, "tokens"))
LOGITS = ("logits", FLOAT32, ("batch", 10))


def write(folder: Path, name: str, content: bytes | str) -> Source:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return Source(((name, file),))


def test_an_onnx_file_gives_its_signature_and_properties(tmp_path: Path) -> None:
    metadata = {"torchyard.parity": "1.0e-07 at most", "other": "not shown"}
    content = onnx_bytes.model([IMAGE, IDS], [LOGITS], 20, metadata, weights=b"w" * 100_000)
    signature, properties = signatures.read(write(tmp_path, "net.onnx", content))
    assert signature == Signature(
        "onnx",
        (
            Tensor("image", "float32", ("batch", 3, 224, 224)),
            Tensor("ids", "int64", (1, "tokens")),
        ),
        (Tensor("logits", "float32", ("batch", 10)),),
    )
    assert properties == {
        "onnx.opset": "20",
        "onnx.ir_version": "10",
        "onnx.producer": "pytorch 2.13.0",
        "onnx.parity": "1.0e-07 at most",
    }
    assert signatures.from_json(json.loads(json.dumps(signatures.to_json(signature)))) == signature


def test_a_broken_onnx_file_is_refused_whatever_its_bytes(tmp_path: Path) -> None:
    model = onnx_bytes.model([IMAGE], [LOGITS])
    source = random.Random(0)
    file = tmp_path / "m.onnx"
    refused = 0
    for _ in range(400):
        broken = bytearray(model[: source.randrange(len(model))])
        for _ in range(source.randrange(4)):
            if broken:
                broken[source.randrange(len(broken))] = source.randrange(256)
        file.write_bytes(bytes(broken))
        try:
            onnx_files.read(file)
        except NotOnnx:
            refused += 1
    assert refused > 350
    assert signatures.read(write(tmp_path, "m.onnx", b"PK\x03\x04")) == (None, {})


@pytest.mark.parametrize("length", [1 << 40, 1 << 62, (1 << 64) - 1])
def test_a_length_beyond_the_file_is_not_followed(tmp_path: Path, length: int) -> None:
    content = onnx_bytes.number(1, 10) + onnx_bytes.varint(7 << 3 | 2) + onnx_bytes.varint(length)
    write(tmp_path, "m.onnx", content)
    with pytest.raises(NotOnnx):
        onnx_files.read(tmp_path / "m.onnx")


def test_texts_of_an_onnx_file_are_short_and_printable(tmp_path: Path) -> None:
    name = "a\x1b[31m\n" + "b" * 5000
    content = onnx_bytes.model([(name, FLOAT32, (1,))], [LOGITS])
    signature, _ = signatures.read(write(tmp_path, "m.onnx", content))
    assert signature is not None
    assert signature.inputs[0].name.startswith("a[31mb")
    assert len(signature.inputs[0].name) == 1000


def test_the_signature_of_mlflow_has_columns_or_tensors(tmp_path: Path) -> None:
    columns = json.dumps([{"name": "x", "type": "double", "required": False}])
    spec = {"dtype": "float32", "shape": [-1, 10]}
    tensors = json.dumps([{"type": "tensor", "tensor-spec": spec}])
    body = json.dumps({"flavors": {}, "signature": {"inputs": columns, "outputs": tensors}})
    signature, properties = signatures.read(write(tmp_path, "MLmodel", body))
    assert signature == Signature(
        "mlflow", (Tensor("x", "double", None, False),), (Tensor("", "float32", ("", 10)),)
    )
    assert properties == {}


@pytest.mark.parametrize(
    "body",
    [
        "", "[]", "signature: 3", "signature: {inputs: '[1]'}", "signature: {inputs: '{'}", "a: [",
        "signature: {inputs: '" + "[" * 100_000 + "'}", "[" * 50_000, "!!python/name:os.system x",
    ],
)  # fmt: skip
def test_an_mlmodel_without_a_readable_signature_has_none(tmp_path: Path, body: str) -> None:
    assert signatures.read(write(tmp_path, "MLmodel", body)) == (None, {})
