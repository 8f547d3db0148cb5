"""What workloads use: packages that may be missing, comparisons, data that needs no download.

Owns: `need`, `skip`, the comparisons, the digits, the hardware's names.
Leaves: running workloads, and writing down what they came to, to main.py.
Always: a package that is not installed skips a workload; one that is installed and can't be
imported fails it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
from typing import Any, NoReturn


class Skipped(Exception):
    """The environment, or the machine, lacks what a workload is about."""


def skip(reason: str) -> NoReturn:
    """
    Raises:
        Skipped: always.
    """
    raise Skipped(reason)


def need(name: str, package: str = "") -> Any:
    """The module of that name, which `package` brings.

    Raises:
        Skipped: it is not installed.
    """
    top = name.split(".")[0]
    if importlib.util.find_spec(top) is None:
        skip(f"`{package or top}` is not in the environment")
    return importlib.import_module(name)


def expect(holds: bool, message: str) -> None:
    """
    Raises:
        AssertionError: it does not hold; never stripped, as `assert` can be.
    """
    if not holds:
        raise AssertionError(message)


def close(subject: str, actual: float, expected: float, tolerance: float) -> float:
    """The difference of two numbers, which is within the tolerance."""
    difference = abs(float(actual) - float(expected))
    expect(
        difference <= tolerance,
        f"{subject}: {float(actual):.6g}, but {float(expected):.6g} ± {tolerance:g} was expected",
    )
    return difference


def at_least(subject: str, actual: float, least: float) -> float:
    """A number that is at least so large."""
    expect(float(actual) >= least, f"{subject} is {float(actual):.4g}, below {least:g}")
    return float(actual)


def equal_states(left: Any, other: Any, path: str = "state") -> int:
    """How many tensors two nested states hold, all of them equal bit by bit."""
    torch = need("torch")
    if isinstance(left, torch.Tensor):
        expect(torch.equal(left, other), f"{path} differs")
        return 1
    if isinstance(left, dict):
        expect(set(left) == set(other), f"{path} has other keys")
        return sum(equal_states(left[key], other[key], f"{path}.{key}") for key in left)
    if isinstance(left, (list, tuple)):
        expect(len(left) == len(other), f"{path} has another length")
        pairs = enumerate(zip(left, other))
        return sum(equal_states(a, b, f"{path}[{at}]") for at, (a, b) in pairs)
    expect(left == other, f"{path}: {left!r} is not {other!r}")
    return 0


def digits() -> Any:
    """(training inputs, labels, test inputs, labels) as arrays: 1,797 real digits of scikit-learn,
    which come with the package.
    """
    datasets = need("sklearn.datasets", "scikit-learn")
    numpy = need("numpy")
    data = datasets.load_digits()
    inputs = (data.data / 16.0).astype("float32")
    order = numpy.random.RandomState(7).permutation(len(inputs))
    inputs, labels = inputs[order], data.target[order].astype("int64")
    return inputs[:1437], labels[:1437], inputs[1437:], labels[1437:]


def patterns(count: int, seed: int = 7) -> Any:
    """(inputs of 64, labels of 10) as tensors: ten noisy patterns that need no package."""
    torch = need("torch")
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(0, 10, (count,), generator=generator)
    return centers[labels] + 0.5 * torch.randn(count, 64, generator=generator), labels


def mlp(width: int = 32) -> Any:
    """A small classifier of 64 inputs into 10 classes; its weights follow from the seed."""
    torch = need("torch")
    torch.manual_seed(7)
    layers = torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    return torch.nn.Sequential(*layers)


def device() -> str:
    """`cuda` where torch has one, else `cpu`."""
    return "cuda" if need("torch").cuda.is_available() else "cpu"


def hardware() -> dict[str, Any]:
    """The names of this node's processor and GPUs; torch is imported where it is installed."""
    gpus: list[str] = []
    if importlib.util.find_spec("torch") is not None:
        cuda = importlib.import_module("torch").cuda
        if cuda.is_available():
            gpus = [cuda.get_device_name(index) for index in range(cuda.device_count())]
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": gpus,
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
