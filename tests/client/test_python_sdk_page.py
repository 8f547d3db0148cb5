"""The SDK's papers: its reference, its guide's example, its types, its help."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest

import python_sdk_page
import torchyard
from torchyard.base.settings import Settings
from torchyard.client import embedded

ROOT = Path(__file__).parents[2]
TYPED = """
from datetime import datetime
from collections.abc import Mapping
from typing_extensions import assert_type
import torchyard
from torchyard import Client, Job, JobStatus, Model, NotFound, TorchyardError, command

client = Client(url="https://host:8766", token="yard_p_x", workspace="vision", start=False)
job = client.jobs.create(command(command="true", environment="python", nodes=2, timeout="2h"))
assert_type(job, Job)
assert_type(job.status, JobStatus)
assert_type(job.started_at, datetime | None)
assert_type(job.tags, Mapping[str, str])
assert_type(job.wait(timeout_s=1, check=True), Job)
assert_type(job.logs(rank=0), str)
assert_type(client.jobs.list()[0].name, str)
assert_type(client.models.get("digits"), Model)
assert_type(client.models.list()[0].version, str)
assert_type(torchyard.NotFound("x"), NotFound)
error: TorchyardError = NotFound("x")
"""
WRONG = """
import torchyard
client = torchyard.Client()
job = client.jobs.get("a")
job.stattus
job.status = "Completed"
if job.status == "Complete":
    pass
client.jobs.list()[0].last_metrics
client.jobs.update("a", tagz={})
torchyard.Jop
"""


def test_the_reference_is_made_of_the_docstrings() -> None:
    page = ROOT / "docs" / "reference" / "python-sdk.md"
    assert page.read_text(encoding="utf-8") == python_sdk_page.page(), "run `make docs`"


def test_every_public_name_is_in_the_reference() -> None:
    page = python_sdk_page.page()
    missing = {
        name for name in torchyard.__all__ if f"# {name}\n" not in page and f"`{name}`" not in page
    }
    assert missing == {"__version__"}


def test_every_noun_of_a_client_is_in_the_reference() -> None:
    nouns = {
        name
        for name, member in vars(torchyard.Client).items()
        if isinstance(member, cached_property)
    }
    # What uploads folders: `jobs.create` and its like use it.
    assert nouns - {"snapshots"} == {name for name, _, _ in python_sdk_page._NOUNS}


def test_every_public_method_has_a_docstring() -> None:
    undocumented = [
        f"{noun.__name__}.{name}"
        for _, noun, _ in python_sdk_page._NOUNS
        for name, member in python_sdk_page._members(noun)
        if not member.__doc__
    ]
    assert undocumented == []


def test_help_is_readable() -> None:
    text = pydoc.plain(pydoc.render_doc(torchyard.Client))
    assert "url: 'str | None' = None" in text and "One workspace of a torchyard server" in text
    for noun in ("jobs", "models", "environments"):
        assert re.search(rf"^ \|  {noun} = .*\n \|      \w", text, re.MULTILINE), noun


def mypy(file: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return ran.stdout


@pytest.mark.slow
def test_a_type_checker_knows_the_sdk(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(TYPED)
    wrong.write_text(WRONG)
    assert "Success" in mypy(right)
    lines = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", mypy(wrong))}
    assert lines == {5, 6, 7, 9, 10, 11}


@pytest.mark.slow
def test_the_guides_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "guides" / "python-sdk.md").read_text(encoding="utf-8")
    script, example = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[:2]
    # Without a package index there is no mlflow to install: the plain environment does, and the
    # metric is logged as MLflow's client sends it.
    inline = '{"pip_requirements": ["mlflow-skinny"]}'
    assert example.count(f"environment={inline}") == 1
    example = example.replace(inline, '"python"')
    (tmp_path / "train.py").write_text(LOGGING + script.replace("import pathlib, mlflow", ""))
    (tmp_path / "example.py").write_text(example)
    home = tmp_path / "home"
    monkeypatch.setenv("TORCHYARD_HOME", str(home))
    for name in ("TORCHYARD_URL", "TORCHYARD_TOKEN", "TORCHYARD_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    try:
        ran = subprocess.run(
            [sys.executable, "example.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
    finally:
        embedded.stop(Settings(home))
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert " Completed 20" in ran.stdout and "results/artifacts/outputs/model.txt" in ran.stdout
    assert re.search(r"loss\s*\nstep|MetricPoint\(key='loss', step=9", ran.stdout), ran.stdout
    assert (tmp_path / "results/artifacts/outputs/model.txt").read_text() == "trained"


LOGGING = """
import json, os, pathlib, types, urllib.request

def log_metric(key, value, step):
    body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": key, "value": value, "step": step,
            "timestamp": 1000 + step}
    url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric"
    headers = {"Content-Type": "application/json",
               "Authorization": "Bearer " + os.environ.get("MLFLOW_TRACKING_TOKEN", "")}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()

mlflow = types.SimpleNamespace(log_metric=log_metric)
"""
