"""Change an ONNX file: quantize it, optimize its graph, write what is known about it into it.

Owns: ONNX Runtime's tools, the keys of the file's metadata.
Leaves: whether the result is still right to parity.
Always: a file is replaced by a finished one; tensors that lie beside it stay beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.train.onnx.errors import ExportError

LEVELS = ("basic", "extended", "all")
PREFIX = "torchyard."
"""What the keys of the metadata begin with; the server reads them from a registered file."""

# Convolutions have no quantized kernel of this kind on CPUs; ONNX Runtime's guide quantizes these
# dynamically.
_QUANTIZED = ["MatMul", "Gemm", "Attention", "LSTM", "GRU", "Gather"]


def quantize(file: Path) -> int:
    """Store weights as 8-bit integers, and quantize activations as they come.

    Returns the number of operators that now compute with them; 0 leaves the file as it was.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = file.with_name(f".quantized-{file.name}")
    try:
        # Whole 8-bit weights overflow the sums of CPUs without VNNI: errors grow tenfold.
        quantize_dynamic(
            str(file), str(target), op_types_to_quantize=_QUANTIZED, weight_type=QuantType.QInt8,
            reduce_range=True,
        )  # fmt: skip
        graph = onnx.load(str(target), load_external_data=False).graph
        count: int = sum(
            node.op_type in ("MatMulInteger", "DynamicQuantizeLSTM", "QAttention", "QGemm")
            or (node.op_type == "DequantizeLinear" and "Gather" in node.name)
            for node in graph.node
        )
        if count:
            os.replace(target, file)
        return count
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(
            f"ONNX Runtime can't quantize the model: {_first_line(error)}",
            "leave out `--quantize`",
        ) from error
    finally:
        target.unlink(missing_ok=True)


def optimize(file: Path, level: str) -> None:
    """Store the graph as ONNX Runtime optimizes it, at one of `LEVELS`.

    At `all` the file is for processors like this one.
    """
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    target = file.with_name(f".optimized-{file.name}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = {
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }[level]
    options.optimized_model_filepath = str(target)
    try:
        onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        os.replace(target, file)
    except Exception as error:
        raise ExportError(
            f"ONNX Runtime can't optimize the model: {_first_line(error)}",
            "leave out `--optimize`",
        ) from error
    finally:
        target.unlink(missing_ok=True)


def describe(file: Path, metadata: Mapping[str, str], axis_name: Callable[[str, int], str]) -> int:
    """Write metadata into the file, and return the version of its standard operators.

    Args:
        axis_name: what a dynamic dimension of an input is called, which torch numbers.
    """
    import onnx

    model = onnx.load(str(file), load_external_data=False)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    properties |= {f"{PREFIX}{key}": value for key, value in metadata.items()}
    del model.metadata_props[:]
    for key, value in properties.items():
        model.metadata_props.add(key=key, value=value)
    _rename_dimensions(model.graph, axis_name)
    target = file.with_name(f".described-{file.name}")
    target.write_bytes(model.SerializeToString())
    os.replace(target, file)
    return next(
        (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0
    )


def _rename_dimensions(graph: Any, axis_name: Callable[[str, int], str]) -> None:
    names: dict[str, str] = {}
    for entry in graph.input:
        for axis, dimension in enumerate(entry.type.tensor_type.shape.dim):
            if dimension.dim_param:
                names.setdefault(dimension.dim_param, axis_name(entry.name, axis))
    for entry in (*graph.input, *graph.output, *graph.value_info):
        for dimension in entry.type.tensor_type.shape.dim:
            if dimension.dim_param in names:
                dimension.dim_param = names[dimension.dim_param]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
