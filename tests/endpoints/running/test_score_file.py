"""Values of a request as tensors of the types that an ONNX file has."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.endpoints.running.in_instance.score_file import NotFitting, OnnxModel

numpy = pytest.importorskip("numpy")


@pytest.fixture
def model() -> OnnxModel:
    """Without a session, which needs ONNX Runtime."""
    made = OnnxModel.__new__(OnnxModel)
    made.types = {"ids": "int32", "x": "float32", "label": "object"}
    return made


@pytest.mark.parametrize("value", [[[1, 2]], [[1.0, 2.0]], [[True, False]], [[2**31 - 1]]])
def test_whole_numbers_become_integers(model: OnnxModel, value: Any) -> None:
    tensor = model.tensor("ids", value)
    assert (tensor.dtype, tensor.tolist()) == ("int32", value)


@pytest.mark.parametrize("value", [[[1.5]], [[2**31]], [["a"]], [[1], [2, 3]], "array of int64"])
def test_numbers_that_would_become_others_do_not_fit(model: OnnxModel, value: Any) -> None:
    if value == "array of int64":
        value = numpy.array([[2**40]])
    with pytest.raises(NotFitting, match="input `ids`"):
        model.tensor("ids", value)


def test_other_types_take_what_numpy_makes_of_them(model: OnnxModel) -> None:
    assert model.tensor("x", [[1, 2.5]]).dtype == "float32"
    assert model.tensor("label", ["a", "b"]).tolist() == ["a", "b"]
