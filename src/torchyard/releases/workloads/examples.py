"""Workloads that are torchyard's own examples, each run as its job runs it.

Always: an example's scripts are those of the repository, unchanged; what they write stays in a
folder of their own; what they print is what is asserted.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import checks

_ACCURACY = re.compile(r"accuracy (\d\.\d+)", re.ASCII)
_LOSS = re.compile(r"loss (\d+\.\d+)", re.ASCII)


def example_conda_file() -> dict[str, Any]:
    """Bright pictures and dark ones, told apart with torchvision's transforms."""
    for module, package in (("torchvision", ""), ("PIL", "pillow")):
        checks.need(module, package)
    return _accuracy(_run("conda_file"), 0.9)


def example_deepspeed() -> dict[str, Any]:
    """Digits by ZeRO-3 on two ranks; the parts that they saved become one file for plain torch."""
    checks.need("sklearn", "scikit-learn")
    checks.need("deepspeed")
    ranks = _ranks()
    arguments = ("--deepspeed", "--deepspeed_config", "ds_config.json", "--epochs", "5")
    printed = _run("deepspeed", *arguments, ranks=ranks)
    checks.expect(f"{ranks} ranks, ZeRO-3, " in printed, f"{ranks} ranks of ZeRO-3 did not end")
    return {**_accuracy(printed, 0.9), "ranks": ranks}


def example_digits() -> dict[str, Any]:
    """Digits by DistributedDataParallel, logged by MLflow."""
    checks.need("sklearn", "scikit-learn")
    checks.need("mlflow")
    ranks = _ranks()
    return {**_accuracy(_run("digits", "--epochs", "12", ranks=ranks), 0.97), "ranks": ranks}


def example_horovod() -> dict[str, Any]:
    """A line fitted by Horovod's DistributedOptimizer."""
    checks.need("horovod")
    ranks = _ranks()
    printed = _run("horovod", ranks=ranks)
    checks.expect(f"{ranks} ranks, " in printed, f"{ranks} ranks of Horovod did not end")
    loss = float(_LOSS.findall(printed)[-1])
    return {"loss": checks.close("the loss", loss, 0.0, 1e-4), "ranks": ranks}


def example_resumable() -> dict[str, Any]:
    """Digits in torchyard.train's loop, which saves checkpoints as it goes."""
    _need_train()
    ranks = _ranks()
    return {**_accuracy(_run("resumable", "--epochs", "12", ranks=ranks), 0.95), "ranks": ranks}


def example_sweep() -> dict[str, Any]:
    """One trial of the sweep: digits with one choice of its parameters."""
    _need_train()
    return _accuracy(_run("sweep", "--learning-rate", "0.03", "--epochs", "6"), 0.95)


def example_torchrun() -> dict[str, Any]:
    """A linear model of digits, whose ranks torchrun starts."""
    checks.need("sklearn", "scikit-learn")
    printed = _run("torchrun", ranks=2)
    checks.expect("sum of the ranks 1" in printed, "the ranks did not add up")
    return {**_accuracy(printed, 0.93), "ranks": 2}


def _need_train() -> None:
    checks.need("sklearn", "scikit-learn")
    checks.need("mlflow")
    checks.need("torchyard", "torchyard-train")


def _ranks() -> int:
    """Two, or as many as there are GPUs: NCCL wants one for each."""
    cuda = checks.need("torch").cuda
    return min(2, cuda.device_count()) if cuda.is_available() else 2


def _run(name: str, *arguments: str, ranks: int = 1) -> str:
    """What the example prints, started as so many ranks."""
    checks.need("torch")
    if importlib.util.find_spec("torch.distributed.run") is None:
        checks.skip(f"torch {checks.need('torch').__version__} has no torchrun")
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / name
        shutil.copytree(Path(__file__).parent / "examples" / name, code)
        ended = subprocess.run(
            [sys.executable, *words, "train.py", *arguments],
            cwd=code,
            env=_variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    print(ended.stdout, flush=True)
    last = " ".join(ended.stdout.split())[-300:]
    checks.expect(ended.returncode == 0, f"it ended with exit code {ended.returncode}: {last}")
    return ended.stdout


def _variables() -> dict[str, str]:
    """The job's, but for those by which the example's checkpoints and notes would be the job's."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TORCHYARD_") and name != "AZUREML_OUTPUT_DIRECTORY"
    }


def _accuracy(printed: str, least: float) -> dict[str, Any]:
    """The last accuracy that an example printed, which is at least so large."""
    printed_values = _ACCURACY.findall(printed)
    checks.expect(bool(printed_values), "it printed no accuracy")
    return {"accuracy": checks.at_least("accuracy", float(printed_values[-1]), least)}
