"""Run faults as torchyard's jobs, and read what it says first about each.

Owns: a server of its own, the job of each fault, waiting for its end or for the notice of a stall.
Leaves: the home folder to scratch_home.py; what is right to score.py.
Always: nothing is left running at the end.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from causes.fault import Fault
from causes.score import Answer
from torchyard import Client
from torchyard.base.clock import from_text
from torchyard.base.settings import Settings

# Of a job that isn't about true pauses.
_SHORT_PAUSE_S = "6"
_PATIENCE_S, _PATIENCE_OF_STALLS_S = 150.0, 150.0
_EVERY_S = 0.5
_ENDED = ("Completed", "Failed", "Canceled")
_AFTER_NOTICE_S = 1.0


def run(
    faults: Sequence[Fault],
    home: Path,
    environments: Mapping[str, Any],
    at_once: int = 6,
    tell: Callable[[Answer], None] = lambda _: None,
) -> list[Answer]:
    """
    Args:
        environments: what a job file says for each of `fault.ENVIRONMENTS`.
        tell: is called with each answer as it comes.
    """
    answers: dict[str, Answer] = {}
    waiting = list(faults)
    running: dict[str, tuple[Fault, float]] = {}
    with Client(workspace="default", settings=replace(Settings(home), url="", token="")) as client:
        client.computes.create({"name": "faults", "type": "amlcompute", "max_instances": 16})
        while waiting or running:
            while waiting and _nodes(running) + waiting[0].nodes <= max(at_once, waiting[0].nodes):
                fault = waiting.pop(0)
                folder = shutil.copytree(fault.folder, home / "code" / fault.name)
                client.jobs.create(document(fault, environments), folder.parent)
                running[fault.name] = (fault, time.monotonic())
            time.sleep(_EVERY_S)
            for name, (fault, since) in list(running.items()):
                if (answer := _answer(client, fault, since)) is not None:
                    answers[name] = answer
                    del running[name]
                    tell(answer)
    return [answers[fault.name] for fault in faults]


def _nodes(running: Mapping[str, tuple[Fault, float]]) -> int:
    return sum(fault.nodes for fault, _ in running.values())


def document(fault: Fault, environments: Mapping[str, Any]) -> dict[str, Any]:
    """The job file of a fault; `code` is a folder of its name."""
    shape: dict[str, Any] = {"resources": {"instance_count": fault.nodes}}
    if fault.processes * fault.nodes > 1:
        kind = "mpi" if fault.environment == "mpi" else "pytorch"
        shape["distribution"] = {"type": kind, "process_count_per_instance": fault.processes}
    pace = {} if fault.true_pace else {"torchyard.stall_notice_s": _SHORT_PAUSE_S}
    return {
        "name": fault.name,
        "command": fault.command,
        "code": fault.name,
        "environment": environments[fault.environment],
        "environment_variables": fault.variables,
        "compute": "faults",
        "experiment_name": "causes",
        "properties": {**pace, **fault.properties},
        "limits": fault.limits,
        **shape,
    }


def _answer(client: Client, fault: Fault, since: float) -> Answer | None:
    """What is said of a fault's job; None as long as there may be more to come."""
    job = client.jobs.get(fault.name).raw
    waited_s = time.monotonic() - since
    if job["status"] in _ENDED:
        end = str(job["status"])
        if end == "Canceled":
            end = "Failed"
        return Answer(fault.name, end, _said(job), *_code_and_delay(job))
    stalls = fault.right.ends == "stalls"
    if stalls and job["status"] == "Running" and job.get("waiting"):
        time.sleep(_AFTER_NOTICE_S)
        answer = Answer(fault.name, "stalls", _said(client.jobs.get(fault.name).raw))
    elif waited_s > (_PATIENCE_OF_STALLS_S if stalls else _PATIENCE_S):
        answer = Answer(fault.name, f"still {job['status']}", _said(job))
    else:
        return None
    client.jobs.cancel(fault.name)
    return answer


def _said(job: Mapping[str, Any]) -> str:
    """What `yard job show` leads with."""
    error = job.get("error") or {}
    if error:
        return f"{error.get('message', '')}\n{error.get('hint', '')}".strip()
    said = [str(job["waiting"])] if job.get("waiting") else []
    return "\n".join([*said, *map(str, job.get("notices") or [])])


def _code_and_delay(job: Mapping[str, Any]) -> tuple[str, float | None]:
    error = job.get("error") or {}
    at, ended = (error.get("details") or {}).get("at"), job.get("ended_at")
    seconds = None
    if at and ended:
        seconds = (from_text(str(ended)) - from_text(str(at))).total_seconds()
    return str(error.get("code") or ""), seconds
