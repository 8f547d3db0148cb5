"""A script that hard-codes cuda and nccl trains without a GPU, to the last bit as one that doesn't.

The scripts are in rehearsal/: for_gpus.py and its twin for_cpus.py, and refused.py, which asks for
all that can't be rehearsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "rehearsal"
HEAD = "[torchyard] rehearsal on CPU: "


def job(
    name: str, script: str, environment: dict[str, str], nodes: int = 2, **more: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "command": f"python {script}",
        "code": str(SCRIPTS),
        "environment": environment,
        "environment_variables": {"OMP_NUM_THREADS": "1"},
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": nodes},
        **more,
    }


def test_the_losses_are_those_of_the_script_written_for_the_cpu(
    yard: Yard, write_job: Callable[..., str], torch_environment: dict[str, str]
) -> None:
    rehearsed = write_job(job("rehearsed", "for_gpus.py", torch_environment))
    yard("job", "create", "-f", rehearsed, "--rehearse-on-cpu")
    yard.completed("rehearsed", timeout_s=500)
    yard("job", "create", "-f", write_job(job("twin", "for_cpus.py", torch_environment)))
    yard.completed("twin", timeout_s=300)

    losses = {name: losses_of(yard.logs(name)) for name in ("rehearsed", "twin")}
    assert losses["rehearsed"] == losses["twin"]
    assert len(losses["twin"]) == 2 and all(
        len(rank_losses) == 25 for rank_losses in losses["twin"]
    )
    for rank_losses in losses["twin"]:
        values = [float.fromhex(value) for value in rank_losses]
        assert sum(values[-5:]) < sum(values[:5])

    for log in yard.logs("rehearsed").values():
        assert log.decode().startswith(HEAD)
    shown = json.loads(yard("job", "show", "-n", "rehearsed", "-o", "json"))
    assert shown["rehearsal"] == "cpu" and shown["tags"] == {"torchyard.rehearsal": "cpu"}
    assert shown["notices"][0].startswith("rehearsal on CPU, asked for by the job")
    plain = json.loads(yard("job", "show", "-n", "twin", "-o", "json"))
    assert plain["rehearsal"] == "" and plain["tags"] == {}
    assert not any(HEAD in log.decode() for log in yard.logs("twin").values())


def test_what_needs_a_gpu_is_refused_by_name(
    yard: Yard, write_job: Callable[..., str], torch_environment: dict[str, str]
) -> None:
    file = write_job(job("refused", "refused.py", torch_environment, nodes=1))
    yard("job", "create", "-f", file, "--set", "properties={torchyard.rehearse_on_cpu: true}")
    yard.completed("refused", timeout_s=500)
    (log,) = yard.logs("refused").values()
    lines = [line for line in log.decode().splitlines() if line.startswith("asked for ")]
    assert len(lines) > 20
    for line in lines:
        feature, _, answer = line.removeprefix("asked for ").partition(": ")
        assert answer.startswith("cannot be rehearsed on CPU: "), line
        assert feature.split("(")[0].split(" ")[0] in answer, line
    assert "factories without a rehearsal: []" in log.decode()


def test_without_a_rehearsal_the_script_fails(
    yard: Yard, write_job: Callable[..., str], torch_environment: dict[str, str]
) -> None:
    file = write_job(job("not-asked", "for_gpus.py", torch_environment, nodes=1))
    yard("job", "create", "-f", file)
    yard("job", "stream", "not-asked", expect=1)
    shown = json.loads(yard("job", "show", "-n", "not-asked", "-o", "json"))
    assert shown["status"] == "Failed" and shown["rehearsal"] == ""


def losses_of(logs: dict[str, bytes]) -> list[list[str]]:
    lines = [
        line for _, log in sorted(logs.items()) for line in log.decode().splitlines()
        if line.startswith("losses: ")
    ]  # fmt: skip
    return [line.split()[1:] for line in lines]
