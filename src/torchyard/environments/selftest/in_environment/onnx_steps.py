"""One real step of ONNX, of ONNX Runtime and of what trains with it.

Always: a package is imported inside the step of its own component only; numbers are asserted.
"""

from __future__ import annotations

import os
from typing import Any


def _exported() -> tuple[Any, Any, Any]:
    """A small network, an input, its answer, and the network as `network.onnx`."""
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    network.eval()
    x = torch.randn(3, 4)
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 9):
        torch.onnx.export(network, (x,), "network.onnx", dynamo=True, verbose=False)
    else:
        torch.onnx.export(network, (x,), "network.onnx")
    return network, x, network(x)


def onnx() -> str:
    """Export a network, check it, read it back."""
    import onnx

    _exported()
    model = onnx.load("network.onnx")
    onnx.checker.check_model(model)
    kinds = sorted({node.op_type for node in model.graph.node})
    assert "Gemm" in kinds and "Relu" in kinds, kinds
    return f"exported and checked, opset {model.opset_import[0].version}: {', '.join(kinds)}"


def onnxruntime() -> str:
    """Run an exported network; its answers are torch's."""
    import onnxruntime
    import torch

    _, x, expected = _exported()
    session = onnxruntime.InferenceSession("network.onnx", providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    difference = (torch.from_numpy(answer) - expected).abs().max().item()
    assert difference < 1e-5, difference
    return f"answers of an exported network: {difference:.0e} from torch's at most"


def onnxruntime_training() -> str:
    """Train an exported network for some steps by ONNX Runtime's own training."""
    import numpy
    import onnx
    import torch
    from onnxruntime.training import artifacts
    from onnxruntime.training.api import CheckpointState, Module, Optimizer

    torch.manual_seed(0)
    torch.onnx.export(
        torch.nn.Linear(4, 1),
        (torch.randn(16, 4),),
        "line.onnx",
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        export_params=True,
        input_names=["x"],
        output_names=["y"],
    )
    model = onnx.load("line.onnx")
    os.makedirs("artifacts", exist_ok=True)
    artifacts.generate_artifacts(
        model,
        requires_grad=[item.name for item in model.graph.initializer],
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory="artifacts",
    )
    state = CheckpointState.load_checkpoint("artifacts/checkpoint")
    module = Module("artifacts/training_model.onnx", state, "artifacts/eval_model.onnx")
    optimizer = Optimizer("artifacts/optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.05)
    x = numpy.random.default_rng(0).standard_normal((16, 4)).astype("float32")
    y = x.sum(1, keepdims=True)
    losses = []
    module.train()
    for _ in range(60):
        losses.append(float(module(x, y)))
        optimizer.step()
        module.lazy_reset_grad()
    assert losses[-1] < losses[0] / 2, losses
    return f"60 steps by ONNX Runtime itself: loss {losses[0]:.3f} to {losses[-1]:.3f}"


def ortmodule() -> str:
    """Train through ORTModule, with the losses of the module itself."""
    import torch
    from torch_ort import ORTModule

    torch.manual_seed(0)
    x = torch.randn(64, 4)
    runs = []
    for wrapped in (False, True):
        torch.manual_seed(1)
        network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        trained = ORTModule(network) if wrapped else network
        optimizer = torch.optim.SGD(trained.parameters(), 0.1)
        losses = []
        for _ in range(10):
            loss = (trained(x) - x.sum(1, keepdim=True)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        runs.append(losses)
    difference = max(abs(left - right) for left, right in zip(*runs, strict=True))
    assert difference < 1e-5 and runs[1][-1] < runs[1][0], runs
    return f"10 steps: losses {difference:.0e} from the module's own at most"
