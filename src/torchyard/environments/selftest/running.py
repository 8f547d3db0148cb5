"""Run the tests of a curated environment in a build of it.

Owns: the processes that do the steps and ask the environment, what hardware this is.
Leaves: building to contents.py, the steps to in_environment/, the label to version_labels.py,
recording to __main__.py.
Always: each step is a process of its own in an empty folder with a time limit; of the caller's
variables it gets those that find programs and devices, and none of Python's.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.base.errors import BuildFailed
from torchyard.environments import version_labels
from torchyard.environments.names.components import EnvironmentComponent, StepResult
from torchyard.environments.version_labels import Answer
from torchyard.shared.plurals import plural

_PROGRAMS = Path(__file__).parent / "in_environment"
_STEP_S = 600.0
_ERROR_LINES = 3
_PASSED_ON = ("PATH", "LANG", "JAVA_HOME", "LD_LIBRARY_PATH")
# What libraries of mathematics and drivers read.
_PASSED_ON_PREFIXES = ("CUDA_", "NVIDIA_", "OMP_", "OPENBLAS_")


def run_step(
    python: Path, promised: EnvironmentComponent, variables: Mapping[str, str]
) -> StepResult:
    """Do the one-step test of a component.

    Args:
        python: the environment's interpreter.
        variables: the process environment.
    """
    start = time.monotonic()
    try:
        outcome = _run(python, [str(_PROGRAMS / "step.py"), promised.component.step], variables)
    except subprocess.TimeoutExpired:
        return StepResult(promised.version, _STEP_S, error=f"not done after {_STEP_S:.0f} s")
    seconds = round(time.monotonic() - start, 1)
    result = _result_of(outcome.stdout) if outcome.returncode == 0 else ""
    if result:
        return StepResult(promised.version, seconds, result)
    # What is recorded is published: no path of this machine.
    error = _last_lines(outcome).replace(f"{python.parents[1]}/", "")
    return StepResult(promised.version, seconds, error=error)


def pairs(python: Path, variables: Mapping[str, str]) -> tuple[int, list[str]]:
    """The number of pairs of packages of which one imports the other, and what isn't found.

    Raises:
        BuildFailed: the program beside the steps failed, or took longer than a step may.
    """
    # The last line: packages print as they are imported.
    result = json.loads(_printed(python, "pairs.py", variables).strip().splitlines()[-1])
    return int(result["pairs"]), [str(fault) for fault in result["faults"]]


def _run(
    python: Path, words: Sequence[str], variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the environment's interpreter in an empty folder.

    Raises:
        TimeoutExpired: it took longer than a step may.
    """
    with tempfile.TemporaryDirectory(prefix="torchyard-selftest-") as folder:
        return subprocess.run(
            [str(python), "-E", "-s", *words],
            cwd=folder,
            env=_variables(variables, python, folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_STEP_S,
        )


def _printed(
    python: Path, program: str, variables: Mapping[str, str], words: Sequence[str] = ()
) -> str:
    """What a program beside the steps prints.

    Raises:
        BuildFailed: it failed, or took longer than a step may.
    """
    hint = f"run it by hand: `{python} -E -s {_PROGRAMS / program}`"
    try:
        outcome = _run(python, [str(_PROGRAMS / program), *words], variables)
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"`{program}` was not done after {_STEP_S:.0f} s", hint) from error
    if outcome.returncode:
        raise BuildFailed(f"`{program}` failed: {_last_lines(outcome)}", hint)
    return outcome.stdout


def _last_lines(outcome: subprocess.CompletedProcess[str]) -> str:
    lines = (outcome.stderr or outcome.stdout).strip().splitlines()[-_ERROR_LINES:]
    return " ".join(line.strip() for line in lines) or f"exit code {outcome.returncode}"


def _result_of(output: str) -> str:
    """What the last line of a step's output tells; empty where it tells nothing."""
    last = output.strip().splitlines()[-1:] or [""]
    try:
        return str(json.loads(last[0])["result"])
    except (ValueError, KeyError, TypeError):
        return ""


def distributions(python: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Each distribution on disk: `version`, `modules`, and `missing`, modules not found.

    Raises:
        BuildFailed: the program beside the steps failed, or took longer than a step may.
    """
    entries: dict[str, Any] = json.loads(_printed(python, "distributions.py", variables))
    return entries


def answer(python: Path, names: Sequence[str], variables: Mapping[str, str]) -> Answer:
    """What the environment says of itself.

    Args:
        names: the variables to ask for.

    Raises:
        BuildFailed: the program beside the steps failed, or took longer than a step may.
    """
    # The last line: packages print as they are imported.
    printed = _printed(python, "answer.py", variables, names).strip().splitlines()[-1]
    return version_labels.read_answer(json.loads(printed))


def missing_modules(on_disk: Mapping[str, Any]) -> list[str]:
    """Sentences about each package of which Python does not find a module.

    Args:
        on_disk: as `distributions` returns it.
    """
    return [
        f"{name} has modules that Python does not find: {', '.join(entry['missing'])}"
        for name, entry in sorted(on_disk.items())
        if entry["missing"]
    ]


def hardware(python: Path, variables: Mapping[str, str]) -> str:
    """This machine as `CPU: AMD EPYC, 2 cores`, or `GPU: NVIDIA H100` where torch sees one."""
    code = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    outcome = _run(python, ["-c", code], variables)
    gpu = outcome.stdout.strip() if outcome.returncode == 0 else ""
    if gpu:
        return f"GPU: {gpu}"
    cores = os.cpu_count() or 1
    return f"CPU: {_processor()}, {cores} {plural('core', cores)}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names and names[0] != "unknown" else platform.machine()


def _variables(variables: Mapping[str, str], python: Path, folder: str) -> dict[str, str]:
    environ = {
        name: value
        for name, value in variables.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    environ["PATH"] = f"{python.parent}{os.pathsep}{environ.get('PATH', os.defpath)}"
    # Libraries keep caches below the home, and Spark and MLflow write there.
    return {**environ, "HOME": folder, "TMPDIR": folder}
