"""The SDK in a real Jupyter kernel, whose standard streams have no bytes below them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import client_venvs
import jupyter_lab
import pytest
from yard_under_test import Yard

pytestmark = [pytest.mark.widgets, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).resolve().parents[2]
CELLS = {
    "submit": """
from torchyard import Client, Environment, command
client = Client()
job = client.jobs.create(
    command(
        name="in-a-cell",
        command="echo größer; mkdir -p outputs; echo done > outputs/model.txt",
        environment={"pip_requirements": ["idna==3.10"]},
    )
)
""",
    "stream": "job = job.stream(timeout_s=300)\nprint(job.status)",
    "show": "job",
    "list": "client.jobs.list()",
    "logs": "print(job.logs())",
    "download": "job.download('results')\n"
    "print(open('results/artifacts/outputs/model.txt').read())",
    "build": "client.environments.create({'name': 'mine', 'pip_requirements': ['idna==3.10']})\n"
    "print(client.environments.build('mine@latest', print, timeout_s=300))",
    "unknown": "client.jobs.get('nope')",
    "by hand": "Environment(pip_requirements=['torch'])",
    "failed": "client.jobs.create(command(command='exit 3', environment='python'))"
    ".wait(timeout_s=300, check=True)",
}


@pytest.fixture(scope="session", autouse=True)
def client() -> str:
    """A kernel alone: no browser."""
    if not client_venvs.is_whole(client_venvs.ANYWIDGET):
        assert os.environ.get("TORCHYARD_TEST_SERVICES") != "required"
        pytest.skip(f"`make widgets` installs {client_venvs.ANYWIDGET}")
    return client_venvs.ANYWIDGET


@pytest.fixture(scope="module")
def outputs(
    yard: Yard, client: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What each cell showed."""
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "cells.json").write_text(json.dumps(CELLS))
    command: list[str | Path] = [client_venvs.python(client)]
    command += [Path(__file__).parent / "kernel" / "run_cells.py", "cells.json", "shown.json"]
    variables = {
        **jupyter_lab.plain_variables(yard),
        "PYTHONPATH": str(REPOSITORY / "src"),
        "IPYTHONDIR": str(folder),
        "NO_COLOR": "1",
    }
    subprocess.run(command, cwd=folder, env=variables, check=True, timeout=900)
    cells: dict[str, dict[str, Any]] = json.loads((folder / "shown.json").read_text())
    for cell in cells.values():
        cell["error"] = re.sub(r"\x1b\[[0-9;]*m", "", cell["error"])
    return cells


def test_no_cell_fails_that_should_not(outputs: dict[str, dict[str, Any]]) -> None:
    failing = {name for name, cell in outputs.items() if cell["error"]}
    assert failing == {"unknown", "by hand", "failed"}, outputs


def test_a_job_is_streamed_with_the_build_of_its_environment(
    outputs: dict[str, dict[str, Any]],
) -> None:
    stream = outputs["stream"]
    assert "größer\n" in stream["stdout"] and "Running…\n" in stream["stdout"]
    assert stream["stdout"].endswith("Completed\n")
    assert "idna==3.10" in stream["stderr"], stream


def test_jobs_logs_files_and_builds_are_shown(outputs: dict[str, dict[str, Any]]) -> None:
    assert "in-a-cell" in outputs["show"]["html"] and "in-a-cell" in outputs["list"]["html"]
    assert outputs["logs"]["stdout"] == "größer\n\n"
    assert outputs["download"]["stdout"] == "done\n\n"
    assert "mine" in outputs["build"]["stdout"]


def test_errors_end_with_their_hints(outputs: dict[str, dict[str, Any]]) -> None:
    for name, hint in (
        ("unknown", "hint: list jobs with "),
        ("by hand", 'hint: for one job write `command(environment={"pip_requirements"'),
        ("failed", "hint: "),
    ):
        assert hint in outputs[name]["error"], outputs[name]["error"]
