"""What a rehearsal on the CPU costs a training step.

    .venv/bin/python benchmarks/rehearsal.py --python <a Python that has torch>

Three processes in turn, many rounds: the script written for the CPU; the same with `cuda` in it,
rehearsed; and, as the peer, the same under a TorchFunctionMode that changes devices, which is
torch's own hook over every function. Prints milliseconds of processor time a step: the median over
the rounds, and the least; and what starting costs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parents[1] / "src" / "torchyard" / "worker"
CASES = ("cpu", "rehearsed", "function mode")
MODELS = {"mlp": 400, "cnn": 40, "transformer": 20}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--case", choices=CASES, help="what a child measures")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case)))
        return
    figures: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "_torchyard_rehearsal")
        package.mkdir()
        (package / "__init__.py").touch()
        for file in WORKER.glob("rehearsal_*.py"):
            shutil.copy(file, package)
        for _ in range(arguments.rounds):
            for case in CASES:
                figures[case].append(_child(arguments.python, case, folder))
    _print(figures)


def _child(python: str, case: str, folder: str) -> dict[str, float]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": folder}
    if case == "rehearsed":
        variables["TORCHYARD_REHEARSAL"] = "1"
    done = subprocess.run(
        [python, __file__, "--case", case],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(case: str) -> dict[str, float]:
    """Milliseconds a step by model, `import` in ms, and the loss, everywhere the same."""
    if case == "rehearsed":
        __import__("_torchyard_rehearsal.rehearsal_hook", fromlist=["install"]).install()
    before = time.process_time()
    import torch

    figures = {"import": (time.process_time() - before) * 1e3}
    device = "cpu" if case == "cpu" else "cuda"
    if case == "function mode":
        _function_mode(torch).__enter__()
    for name, steps in MODELS.items():
        figures |= _train(torch, name, steps, device)
    return figures


def _train(torch: Any, name: str, steps: int, device: str) -> dict[str, float]:
    torch.manual_seed(0)
    model, images = _model(torch, name)
    model = model.to("cpu" if device == "cpu" else torch.device("cuda", 0))
    labels = torch.randint(10, (images.shape[0],))
    optimizer = torch.optim.AdamW(model.parameters())
    criterion = torch.nn.CrossEntropyLoss()
    loss = None

    def step() -> None:
        nonlocal loss
        batch, target = images.to(device, non_blocking=True), labels.to(device)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(batch), target)
        loss.backward()
        optimizer.step()

    for _ in range(steps // 4):
        step()
    before = time.process_time()
    for _ in range(steps):
        step()
    assert loss is not None
    return {
        name: (time.process_time() - before) / steps * 1e3,
        f"{name} loss": float(loss.item()),
    }


def _model(torch: Any, name: str) -> Any:
    nn = torch.nn
    if name == "mlp":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), torch.randn(32, 64)
    if name == "cnn":
        layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(32, 10)), torch.randn(32, 3, 32, 32)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 4)
    return nn.Sequential(encoder, nn.Flatten(), nn.Linear(2048, 10)), torch.randn(16, 16, 128)


def _function_mode(torch: Any) -> Any:
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function is torch.device or function is torch.Tensor.to:
                args = tuple("cpu" if str(arg) in ("cuda", "cuda:0") else arg for arg in args)
                if function is torch.device and args[0] == "cpu":
                    args = args[:1]
            if kwargs is None:
                return function(*args)
            device = kwargs.get("device")
            if device is not None and str(device).startswith("cuda"):
                kwargs = {**kwargs, "device": "cpu"}
            return function(*args, **kwargs)

    return OnCpu()


def _print(figures: dict[str, list[dict[str, float]]]) -> None:
    for name in MODELS:
        losses = {case: tries[0][f"{name} loss"] for case, tries in figures.items()}
        assert len(set(losses.values())) == 1, losses
    print(f"{'ms of processor time':22}" + "".join(f"{case:>28}" for case in CASES))
    for name in (*MODELS, "import"):
        line = f"{'step of ' + name if name in MODELS else 'import torch':22}"
        plain = statistics.median(run[name] for run in figures["cpu"])
        for case in CASES:
            values = [run[name] for run in figures[case]]
            middle = statistics.median(values)
            line += f"{middle:9.3f} (least {min(values):8.3f}) {middle / plain:5.2f}x"
        print(line)
    print("the losses of all three are equal to the last bit")


if __name__ == "__main__":
    main()
