"""The program of the job that exports a registered model: `python -m torchyard.train.onnx.program`.

Owns: its request, a JSON file; which packages the environment must have; its exit code.
Leaves: everything else to the modules of this package, which scripts use, too.
Always: an expected failure is two lines, `error:` and `hint:`, and exit code 2.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")


def main(arguments: Sequence[str]) -> int:
    """Export as the request file says.

    Args:
        arguments: the request, the model's path, the output folder, perhaps the example.
    """
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    missing = _missing()
    if missing:
        return _fail(
            f"the environment lacks {', '.join(missing)}",
            "leave out `--environment`, or name one that has them: acpt-pytorch-2.13-cpu",
        )
    # After the check: these import torch.
    from torchyard.train.onnx.errors import ExportError

    try:
        example = Path(arguments[3]) if len(arguments) > 3 else None
        _export(request, Path(arguments[1]), Path(arguments[2]), example)
    except ExportError as error:
        return _fail(error.message, error.hint)
    return 0


def _export(
    request: Mapping[str, Any], model: Path, folder: Path, example_file: Path | None
) -> None:
    import torch

    from torchyard.train.onnx import loading, tensors
    from torchyard.train.onnx.exporting import Options, check, export_values
    from torchyard.train.onnx.tensors import InputSpec

    specs = [
        InputSpec(entry["name"], tuple(entry["shape"]), entry["dtype"])
        for entry in request.get("inputs", ())
    ]
    dynamic = request.get("dynamic")
    options = Options(
        output_names=tuple(request.get("output_names", ())),
        dynamic=None if dynamic is None else {name: tuple(dynamic[name]) for name in dynamic},
        opset=request.get("opset"),
        optimize=request.get("optimize", ""),
        quantize=bool(request.get("quantize")),
        tolerance=float(request.get("tolerance", 1e-3)),
        is_example_real=example_file is not None,
        source=request.get("source", ""),
    )
    check(options)
    torch.set_num_threads(max(1, min(8, len(os.sched_getaffinity(0)))))
    values = tensors.read_example(example_file, specs) if example_file else tensors.draw(specs)
    loader = loading.Loader(
        request.get("module", ""), request.get("module_args", {}), bool(request.get("allow_pickle"))
    )
    print(
        f"Loading {request.get('source') or model.name} with torch {torch.__version__}.", flush=True
    )
    module = loading.load(model, loader)
    print("Exporting to ONNX; this takes some seconds.", flush=True)
    report = export_values(module, values, folder, options, lambda line: print(line, flush=True))
    inputs = ", ".join(report.inputs)
    print(f"Wrote {report.file.name}: opset {report.opset}, inputs {inputs}, "
          f"outputs {', '.join(report.outputs)}.")  # fmt: skip


def _missing() -> list[str]:
    from importlib.util import find_spec

    return [name for name in _PACKAGES if find_spec(name) is None]


def _fail(message: str, hint: str = "") -> int:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.stderr.flush()
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
