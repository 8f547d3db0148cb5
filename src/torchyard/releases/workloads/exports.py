"""Workloads that take a model out of torch, or run it by something else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from . import checks

_TOLERANCE = 1e-4


def _export(folder: str) -> Any:
    """A model, its inputs, and the ONNX file that it was exported to."""
    torch = checks.need("torch")
    checks.need("onnx")
    checks.need("onnxscript")
    model, (inputs, _) = checks.mlp().eval(), checks.patterns(16)
    file = Path(folder) / "model.onnx"
    torch.onnx.export(model, (inputs,), str(file), dynamo=True, verbose=False)
    return model, inputs, file


def onnx_export() -> dict[str, Any]:
    """ONNX's own evaluator gives the answers of the module that was exported."""
    torch, onnx = checks.need("torch"), checks.need("onnx")
    evaluator = checks.need("onnx.reference")
    with tempfile.TemporaryDirectory() as folder:
        model, inputs, file = _export(folder)
        onnx.checker.check_model(str(file))
        loaded = onnx.load(str(file))
        session = evaluator.ReferenceEvaluator(loaded)
        answer = session.run(None, {session.input_names[0]: inputs.numpy()})[0]
    with torch.no_grad():
        difference = float((torch.from_numpy(answer.copy()) - model(inputs)).abs().max())
    return {
        "opset": max(each.version for each in loaded.opset_import),
        "difference": checks.close("the answers", difference, 0.0, _TOLERANCE),
    }


def onnxruntime_inference() -> dict[str, Any]:
    """ONNX Runtime gives the answers of the module that was exported."""
    torch, runtime = checks.need("torch"), checks.need("onnxruntime")
    with tempfile.TemporaryDirectory() as folder:
        model, inputs, file = _export(folder)
        # On a GPU where the build has one.
        preferred = "CUDAExecutionProvider", "CPUExecutionProvider"
        providers = [each for each in preferred if each in runtime.get_available_providers()]
        session = runtime.InferenceSession(str(file), providers=providers)
        answer = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})[0]
    with torch.no_grad():
        difference = float((torch.from_numpy(answer.copy()) - model(inputs)).abs().max())
    return {
        "version": runtime.__version__,
        "provider": session.get_providers()[0],
        "difference": checks.close("the answers", difference, 0.0, _TOLERANCE),
    }


def ortmodule_training() -> dict[str, Any]:
    """A module in ORTModule trains to the losses of the plain one."""
    modules = checks.need("torch_ort", "torch-ort")
    torch = checks.need("torch")
    inputs, labels = (tensor.to(checks.device()) for tensor in checks.patterns(256))
    losses = []
    for wrap in (lambda module: module, modules.ORTModule):
        model = wrap(checks.mlp().to(checks.device()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(10):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(float(loss.detach()))
    checks.expect(losses[0] < 2.0, f"the loss only fell to {losses[0]:.3f}")
    return {"loss": losses[0], "difference": checks.close("the loss", losses[1], losses[0], 1e-4)}


def torch_export() -> dict[str, Any]:
    """A program of torch.export, saved and loaded, gives the module's answers."""
    torch = checks.need("torch")
    if not hasattr(torch, "export"):
        checks.skip(f"torch {torch.__version__} has no torch.export")
    exporting = checks.need("torch.export")
    model, (inputs, _) = checks.mlp().eval(), checks.patterns(16)
    program = exporting.export(model, (inputs,))
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.pt2")
        exporting.save(program, file)
        loaded = exporting.load(file).module()
    with torch.no_grad():
        difference = float((loaded(inputs) - model(inputs)).abs().max())
    return {"difference": checks.close("the answers", difference, 0.0, 1e-6)}
