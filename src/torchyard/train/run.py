"""The run that a script is: its step, its metrics and artifacts, whether it should stop.

    from torchyard.train import run

    for batch in loader:
        ...
        run.next_step()
        run.log({"loss": loss.item()})
        if run.should_stop():
            break

Owns: the step counter, the way of metrics to the job or to a file, artifacts.
Leaves: checkpoints to `checkpoint`, the signal to stop to stopping.
Always: it works without the platform and imports nothing that is slow to load. What can't be logged
is said once, and training goes on. Metrics, parameters and artifacts are rank 0's; on other ranks
these calls do nothing.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

step: int
"""Optimizer steps done: what `Loop`, `set_step` and `next_step` count."""
resumed_from: int | None
"""The step of the checkpoint that this process loaded first; None if it began at 0."""

_RELAY, _RUN = "TORCHYARD_RELAY", "MLFLOW_RUN_ID"
_FILE = "metrics.jsonl"
_TIMEOUT_S = 30.0
_MOST_POINTS = 1_000
_LOG = logging.getLogger("torchyard.train")
_lock = threading.Lock()
_connection: http.client.HTTPConnection | None = None
_has_said = False
_state: dict[str, int | None] = {"step": 0, "resumed_from": None}


def __getattr__(name: str) -> Any:
    if name in _state:
        return _state[name]
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def set_step(step: int) -> None:
    """Count from `step` on, which `Loop` and the integrations do by themselves.

    Raises:
        ValueError: it is not an integer >= 0.
    """
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"`step` must be an integer >= 0, not {step!r}")
    _state["step"] = step


def next_step() -> int:
    """Count an optimizer step that was done; return how many there are now."""
    done = (_state["step"] or 0) + 1
    _state["step"] = done
    return done


def set_resumed(step: int) -> None:
    """Remember the step of the checkpoint that was loaded; the first one counts."""
    if _state["resumed_from"] is None:
        _state["resumed_from"] = step
        _state["step"] = step


def should_stop() -> bool:
    """Whether the job is preempted, canceled or out of time; every rank asks at the same steps."""
    from torchyard.train import stopping

    return stopping.should_stop()


def log(metrics: Mapping[str, float], step: int | None = None) -> None:
    """Log values of the present step, or of `step`.

    In a job they are the job's metrics, as if mlflow.log_metrics had logged them. Elsewhere they
    are lines of ./outputs/metrics.jsonl.

    Args:
        metrics: numbers by name; NaN and infinite ones as well, and tensors of one element.

    Raises:
        ValueError: a value is not a number; nothing is logged.
    """
    at = _state["step"] if step is None else step
    time_ms = time.time_ns() // 1_000_000
    points = [
        {"key": str(name), "value": _number(name, value), "timestamp": time_ms, "step": at}
        for name, value in metrics.items()
    ]
    if _is_first_rank():
        for start in range(0, len(points), _MOST_POINTS):
            _keep("metrics", points[start : start + _MOST_POINTS])


def log_params(params: Mapping[str, Any]) -> None:
    """Log what the run was started with, such as the learning rate."""
    if _is_first_rank():
        _keep("params", [{"key": str(name), "value": str(value)} for name, value in params.items()])


def log_artifact(path: str | Path, name: str | None = None) -> Path:
    """Copy a file or folder into the job's outputs, and return where it is.

    Outside of jobs the outputs are ./outputs.

    Args:
        name: where below the outputs; by default the name of the file itself.

    Raises:
        ValueError: `name` leads out of the outputs.
        OSError: it can't be copied.
    """
    source = Path(path)
    folder = _outputs()
    target = folder / (name or source.name)
    if not target.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"`name` must be a path below the outputs, not {name!r}")
    if not _is_first_rank() or source.resolve() == target.resolve():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(source, draft)
        os.replace(draft, target)
    return target


def _keep(kind: str, entries: list[dict[str, Any]]) -> None:
    relay, run_name = os.environ.get(_RELAY), os.environ.get(_RUN)
    try:
        with _lock:
            if relay and run_name:
                _send(relay, {"run_id": run_name, kind: entries})
            else:
                _append(kind, entries)
    except (OSError, http.client.HTTPException) as error:
        _say(f"{kind} can't be logged: {error}")


def _send(relay: str, body: dict[str, Any]) -> None:
    """As MLflow's client does; one connection is kept, and opened again once when it was closed.

    Source: https://mlflow.org/docs/latest/rest-api.html#log-batch
    """
    global _connection
    content = json.dumps(body).encode()
    for is_last in (_connection is None, True):
        address = urlsplit(relay)
        if _connection is None:
            _connection = http.client.HTTPConnection(address.netloc, timeout=_TIMEOUT_S)
        try:
            _connection.request(
                "POST", f"{address.path.rstrip('/')}/api/2.0/mlflow/runs/log-batch", content,
                {"Content-Type": "application/json",
                 "Authorization": f"Bearer {os.environ.get('MLFLOW_TRACKING_TOKEN', '')}"},
            )  # fmt: skip
            response = _connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            _connection.close()
            _connection = None
            if is_last:
                raise
            continue
        if response.status != 200:
            _say(f"the job refused what was logged: {answer[:300].decode(errors='replace')}")
        return


def _append(kind: str, entries: list[dict[str, Any]]) -> None:
    folder = _outputs()
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps({"kind": kind, **entry}) + "\n" for entry in entries)
    with open(folder / _FILE, "a", encoding="utf-8") as file:
        file.write(lines)


def _number(name: str, value: Any) -> Any:
    """A number as MLflow's protocol has it: those that JSON lacks are texts."""
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"metric `{name}` must be a number, not {value!r}") from error
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _outputs() -> Path:
    return Path(os.environ.get("AZUREML_OUTPUT_DIRECTORY") or "outputs")


def _is_first_rank() -> bool:
    """The launcher's own number counts; without one, the local rank's and the platform's."""
    rank = os.environ.get("RANK", "")
    if rank:
        return rank == "0"
    names = ("LOCAL_RANK", "TORCHYARD_RANK")
    return all(os.environ.get(name, "") in ("", "0") for name in names)


def _say(text: str) -> None:
    global _has_said
    if not _has_said:
        _has_said = True
        _LOG.warning("%s", text)
