"""The program of the job that scores one input by an ONNX model.

Owns: reading the input's arrays, the file of answers, the exit code.
Leaves: running the model, and what fits it, to endpoints/running/in_instance/score_file.py,
which endpoints use, too.
Always: an input that does not fit ends with exit code 2, and the file of answers says why.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from typing import Any

ANSWERS = os.path.join("outputs", "answers.json")


def main(arguments: list[str]) -> int:
    """
    Args:
        arguments: the model's file or folder, the file with the input.
    """
    # Beside this file in the job; not by its name: who checks this code's types has no such module.
    score_file = importlib.import_module("score_file")
    path, source = arguments
    if os.path.isdir(path):
        path = score_file.model_file(path, (score_file.ONNX,))
    try:
        model = score_file.OnnxModel(path)
    except Exception as error:
        return _fail(
            f"ONNX Runtime can't load the model: {_gist(error)}",
            "name an environment with a newer onnxruntime by `--environment`",
        )
    session = model.session
    runtime = importlib.import_module("onnxruntime").__version__
    # It calls remote models, and is listed first on a machine without a GPU.
    providers = [each for each in session.get_providers() if each != "AzureExecutionProvider"]
    print(f"ONNX Runtime {runtime} scores on {providers[0]}.", flush=True)
    takes = "; ".join(
        f"`{each.name}`: {model.types[each.name]} of shape {each.shape}"
        for each in session.get_inputs()
    )
    try:
        arrays = model.outputs_of(_body(source))
    except ValueError as error:
        return _fail(_gist(error), f"the model takes {takes}")
    shapes = {name: list(getattr(each, "shape", ())) for name, each in arrays.items()}
    dtypes = {name: str(getattr(each, "dtype", "")) for name, each in arrays.items()}
    outputs = {name: score_file.as_list(each) for name, each in arrays.items()}
    not_finite = {name: _not_finite(each) for name, each in arrays.items()}
    _write(
        {
            "outputs": _finite(outputs),
            "shapes": shapes,
            "dtypes": dtypes,
            "not_finite": {name: count for name, count in not_finite.items() if count},
        }
    )
    return 0


def _not_finite(array: Any) -> int:
    import numpy

    is_float = getattr(getattr(array, "dtype", None), "kind", "") == "f"
    return int(array.size - numpy.isfinite(array).sum()) if is_float else 0


def _body(source: str) -> Any:
    """
    Raises:
        ValueError: an array holds NaN, or can't be read.
    """
    import numpy

    if source.endswith(".json"):
        with open(source, encoding="utf-8") as file:
            return json.load(file)
    loaded = numpy.load(source, allow_pickle=False)
    if source.endswith(".npy"):
        return {"data": _without_nan("the input", loaded)}
    return {"inputs": {name: _without_nan(f"`{name}`", loaded[name]) for name in loaded.files}}


def _without_nan(title: str, array: Any) -> Any:
    import numpy

    if array.dtype.kind == "f" and numpy.isnan(array).any():
        at = numpy.argwhere(numpy.isnan(array))[0].tolist()
        raise ValueError(f"{title} holds NaN at {at}")
    return array


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    if isinstance(value, dict):
        return {str(name): _finite(entry) for name, entry in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _fail(message: str, hint: str) -> int:
    print(f"error: {message}\nhint: {hint}", file=sys.stderr, flush=True)
    _write({"error": {"message": message, "hint": hint}})
    return 2


def _write(answers: Any) -> None:
    os.makedirs(os.path.dirname(ANSWERS), exist_ok=True)
    with open(ANSWERS, "w", encoding="utf-8") as file:
        json.dump(answers, file, allow_nan=False)


def _gist(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:600] or type(error).__name__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
