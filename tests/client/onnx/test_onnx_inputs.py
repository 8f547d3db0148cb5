"""Values for a model: the forms of a file, and what does not fit."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.client.onnx import inputs
from torchyard.client.onnx.inputs import Tensor

X = [Tensor("x", "float32", ("batch", 2))]
TWO = [Tensor("ids", "int64", ("n", 4)), Tensor("mask", "bool", ("n", 4))]
ROWS = [[1, 2], [3, -4]]


def npy(descr: str, shape: tuple[int, ...], content: bytes) -> bytes:
    """A file as `numpy.save` writes it."""
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def npz(**arrays: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return written.getvalue()


def read(
    folder: Path, name: str, content: bytes | str, tensors: list[Tensor]
) -> inputs.ScoreRequest:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return inputs.read(file, tensors)


@pytest.mark.parametrize(
    "body",
    [
        ROWS,
        {"data": ROWS},
        {"x": ROWS},
        {"inputs": {"x": ROWS}},
        {"inputs": ROWS},
        {"input_data": ROWS},
        {"input_data": {"x": ROWS}},
        {"input_data": {"columns": ["a", "b"], "index": [0, 1], "data": ROWS}},
        {"columns": ["a", "b"], "data": ROWS},
    ],
)
def test_requests_of_every_form_become_one_that_endpoints_take(body: Any, tmp_path: Path) -> None:
    request = read(tmp_path, "request.json", json.dumps(body), X)
    assert request.name == "input.json"
    assert json.loads(request.content) == {"inputs": {"x": ROWS}}


def test_an_input_that_is_called_data_is_named_by_it(tmp_path: Path) -> None:
    tensors = [Tensor("data", "float32", (1,)), Tensor("inputs", "float32", (1,))]
    body = {"data": [1.5], "inputs": [2]}
    request = read(tmp_path, "request.json", json.dumps(body), tensors)
    assert json.loads(request.content) == {"inputs": body}


@pytest.mark.parametrize("text", ["a,b\n1,2\n3,-4\n", "1,2\r\n3,-4\r\n", "\ufeff1,2\n\n3,-4"])
def test_a_table_may_begin_with_the_names_of_its_columns(text: str, tmp_path: Path) -> None:
    request = read(tmp_path, "rows.csv", text, X)
    assert json.loads(request.content) == {"inputs": {"x": ROWS}}


def test_arrays_are_sent_as_they_are(tmp_path: Path) -> None:
    content = npy("<f8", (2, 2), bytes(32))
    assert read(tmp_path, "x.NPY", content, X) == inputs.ScoreRequest("input.npy", content)
    content = npz(ids=npy("<i4", (1, 4), bytes(16)), mask=npy("|b1", (1, 4), bytes(4)))
    assert read(tmp_path, "two.npz", content, TWO) == inputs.ScoreRequest("input.npz", content)


def test_values_in_memory_are_taken_by_the_names_of_inputs() -> None:
    class Array:
        def tolist(self) -> list[list[int]]:
            return ROWS

    request = inputs.read({"x": Array()}, X)
    assert json.loads(request.content) == {"inputs": {"x": ROWS}}


def test_a_model_whose_signature_is_unknown_takes_anything(tmp_path: Path) -> None:
    request = read(tmp_path, "a.json", json.dumps({"data": [["a"]]}), [])
    assert json.loads(request.content) == {"data": [["a"]]}
    request = read(tmp_path, "a.json", json.dumps({"inputs": {"q": [1]}}), [])
    assert json.loads(request.content) == {"inputs": {"q": [1]}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ('{"data": [', "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("[" * 60 + "1" + "]" * 60, "nested more than 32 deep"),
        ('{"data": [[1, NaN]]}', "`NaN` is not a number of JSON"),
        ('{"data": [[1, -Infinity]]}', "`-Infinity` is not a number of JSON"),
        ('{"data": [[1, 2], [3, 1e999]]}', r"the value at \[1, 1\] is inf, not a finite number"),
        ('{"data": [[1, null]]}', r"the value at \[0, 1\] is null, not a number"),
        ('{"data": [[1, {}]]}', r"the value at \[0, 1\] is a dict, not a number"),
        ('{"data": [[1, 2], [3]]}', "have different shapes"),
        ('{"data": [[1, "2"]]}', "mixes text and numbers"),
        ('{"data": [["a", "b"]]}', "holds text, and the model takes float32"),
        ('{"data": []}', "is empty"),
        ('{"data": [[1, 2, 3]]}', r"has the shape \[1, 3\]"),
        ('{"data": 5}', r"has the shape \[\]"),
        ('{"inputs": {"y": [[1, 2]]}}', "names `y`, which the model does not take"),
        ('{"inputs": {}}', "has no values for `x`"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_what_the_model_takes(
    text: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        read(tmp_path, "request.json", text, X)
    assert "the model takes `x`: float32 of shape [batch, 2]" in caught.value.hint


def test_a_single_row_is_told_about_its_brackets(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, "request.json", "[1, 2]", X)
    assert "one more pair of brackets" in caught.value.hint


@pytest.mark.parametrize(
    ("ids", "mask", "reason"),
    [
        ([[0, 1, 2, 2.5]], [[True] * 4], "`ids` .* numbers with a fraction, .* int64"),
        ([[0, 1, 2, 3]], [[0, 1, 1, 1]], "`mask` .* holds integers, and the model takes bool"),
        ([[0, 1, 2]], [[True] * 4], r"`ids` .* has the shape \[1, 3\]"),
    ],
)
def test_each_input_has_its_own_type(ids: Any, mask: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        inputs.read({"ids": ids, "mask": mask}, TWO)
    inputs.read({"ids": [[0.0, 1, 2, 3]], "mask": [[True] * 4]}, TWO)


def test_several_inputs_need_their_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not say which input"):
        read(tmp_path, "request.json", "[[1, 2, 3, 4]]", TWO)
    with pytest.raises(InvalidInput, match="has no values for `mask`"):
        inputs.read({"ids": [[1, 2, 3, 4]]}, TWO)
    with pytest.raises(InvalidInput, match="names `masc`") as caught:
        inputs.read({"ids": [[1, 2, 3, 4]], "masc": [[True] * 4]}, TWO)
    assert "did you mean `mask`?" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.npy", b"", "not a file of `numpy.save`"),
        ("x.npy", b"\x93NUMPY\x01\x00\xff\xff", "header can't be read"),
        ("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "header is too long"),
        ("x.npy", npy("|O", (1,), b""), "Python objects"),
        ("x.npy", npy("<c8", (1, 2), bytes(16)), "holds <c8"),
        ("x.npy", npy("<f4", (9, 2), bytes(8)), "cut off"),
        ("x.npy", npy("<f4", (1, 3), bytes(12)), r"shape \[1, 3\]"),
        ("x.npy", npy("<U3", (1, 2), bytes(24)), "holds text"),
        ("x.npy", npy("<f4" * 9000, (1, 2), bytes(8)), "holds <f4"),
        ("x.npz", b"PK", "not an archive"),
        ("x.npz", npz(), "holds no array"),
        ("x.npz", npz(x=b"nothing"), "not a file of `numpy.save`"),
        ("x.csv", "1,2\n3,b\n", "row 2, column 2 holds `b`, not a number"),
        ("x.csv", "1,2\n3,\n", "row 2, column 2 holds ``, not a number"),
        ("x.csv", "1,2\n3,nan\n", r"the value at \[1, 1\] is nan"),
        ("x.csv", "1,2\n3\n", "different shapes"),
        ("x.csv", "a,b\n", "is empty"),
        ("x.csv", b"\xff\xfe1,2", "not CSV"),
        ("x.pkl", b"", "has no known form"),
        ("x", b"", "has no known form"),
    ],
)
def test_files_that_do_not_hold_what_they_should_are_refused(
    name: str, content: bytes | str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        read(tmp_path, name, content, X)
    assert caught.value.hint


def test_a_small_archive_of_huge_arrays_is_not_unpacked(tmp_path: Path) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy("<f4", (1 << 25, 2), bytes(inputs.LARGEST_BYTES)))
    with pytest.raises(InvalidInput, match="more than 128 MB"):
        read(tmp_path, "x.npz", written.getvalue(), X)


def test_a_missing_a_huge_and_a_hostile_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        inputs.read(tmp_path / "x.npy", X)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(InvalidInput, match="is a folder"):
        inputs.read(tmp_path / "folder.npy", X)
    with (tmp_path / "huge.npy").open("wb") as file:
        file.truncate(inputs.LARGEST_BYTES + (1 << 20))
    with pytest.raises(InvalidInput, match="129 MB, more than 128") as caught:
        inputs.read(tmp_path / "huge.npy", X)
    assert "batch-endpoint" in caught.value.hint
    for name in ("a\0.npy", "a" * 5000 + ".npy"):
        with pytest.raises(InvalidInput, match=r"does not exist|can't be read"):
            inputs.read(name, X)
    with pytest.raises(InvalidInput) as caught:
        inputs.read(tmp_path / "a\x1b[31m.npy", X)
    assert "\x1b" not in caught.value.message
