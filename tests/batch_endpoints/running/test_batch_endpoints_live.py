"""Batch endpoints on a real server: poisoned files, killed processes, several nodes."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import REPOSITORY, Yard, running_yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
_POISONED = "number-0500.txt"
_SCORE = """
import os
import time


def init():
    global weight
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "weight.txt")) as file:
        weight = int(file.read())


def run(mini_batch):
    rows = []
    for path in mini_batch:
        with open(path) as file:
            rows.append(f"{os.path.basename(path)} {weight * int(file.read())}")
        time.sleep(float(os.environ.get("PAUSE_S", "0")))
    return rows
"""


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with running_yard("batch") as yard:
        yield yard


@pytest.fixture(scope="module")
def sample(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(yard, tmp_path_factory.mktemp("batch"))


class Sample:
    """An endpoint with two nodes, and 1,000 files of which one is poisoned."""

    def __init__(self, yard: Yard, folder: Path) -> None:
        self.yard, self.folder = yard, folder
        for name in ("model", "code", "data"):
            (folder / name).mkdir()
        (folder / "model" / "weight.txt").write_text("3")
        (folder / "code" / "score.py").write_text(_SCORE)
        for number in range(1000):
            name = f"number-{number:04}.txt"
            text = "poison" if name == _POISONED else str(number)
            (folder / "data" / name).write_text(text)
        yard("compute", "create", "-n", "pair", "--max-instances", "2")
        yard("batch-endpoint", "create", "-n", "numbers")
        document = {
            "$schema": "https://azuremlschemas.azureedge.net/latest/modelBatchDeployment.schema.json",
            "name": "triple",
            "endpoint_name": "numbers",
            "type": "model",
            "model": {"path": "./model"},
            "code_configuration": {"code": "./code", "scoring_script": "score.py"},
            "environment": {"conda_file": {"dependencies": ["python=3.11", "pip"]}},
            "compute": "azureml:pair",
            "resources": {"instance_count": 1},
            "settings": {
                "mini_batch_size": 10,
                "max_concurrency_per_instance": 2,
                "output_action": "append_row",
                "output_file_name": "predictions.csv",
                "retry_settings": {"max_retries": 1, "timeout": 60},
                "error_threshold": 1,
                "logging_level": "info",
            },
        }
        (folder / "deployment.yml").write_text(json.dumps(document))
        yard("batch-deployment", "create", "-f", str(folder / "deployment.yml"))

    def invoke(self, *options: str) -> str:
        """The job's name."""
        words = ["batch-endpoint", "invoke", "-n", "numbers", "--input", str(self.folder / "data")]
        return self.yard(*words, *options, "--query", "name", "-o", "tsv").strip()

    def predictions(self, job: str, folder: Path) -> dict[str, int]:
        """By file; each is there once."""
        self.yard("job", "download", "-n", job, "--output-name", "score", "-p", str(folder))
        lines = (folder / "named-outputs" / "score" / "predictions.csv").read_text().splitlines()
        rows = dict(line.split() for line in lines)
        assert len(rows) == len(lines)
        return {name: int(value) for name, value in rows.items()}

    def failed(self, job: str) -> list[list[str]]:
        text = self.yard.read(f"jobs/{job}/files/outputs/failed_files.csv").decode()
        return list(csv.reader(text.splitlines()))[1:]


def expected() -> dict[str, int]:
    names = [f"number-{number:04}.txt" for number in range(1000)]
    return {name: 3 * number for number, name in enumerate(names) if name != _POISONED}


def test_a_poisoned_file_of_a_thousand_is_named_and_the_others_are_scored(
    sample: Sample, tmp_path: Path
) -> None:
    name = sample.invoke()
    job = sample.yard.completed(name)
    assert sample.predictions(name, tmp_path) == expected()
    ((path, error),) = sample.failed(name)
    assert path == _POISONED
    assert "invalid literal for int() with base 10: 'poison' (score.py, line 16, in run)" in error
    assert (job["metrics"]["files_scored"], job["metrics"]["files_failed"]) == (999, 1)
    log = b"".join(sample.yard.logs(name).values()).decode()
    assert "torchyard: 999 of 1000 files scored, 1 failed" in log
    listed = json.loads(sample.yard("batch-endpoint", "list-jobs", "-n", "numbers", "-o", "json"))
    assert name in [row["name"] for row in listed]


def test_without_a_threshold_the_poisoned_file_fails_the_job(sample: Sample) -> None:
    name = sample.invoke("--set", "error_threshold=0")
    job = sample.yard.wait(name)
    assert job["status"] == "Failed"
    message = job["error"]["message"]
    assert "1 of 1000 files failed, more than `error_threshold: 0` allows" in message
    assert "torchyard_batch.coordinator" not in message
    assert f"`{_POISONED}`: ValueError: invalid literal" in message


def test_two_nodes_score_one_input(sample: Sample, tmp_path: Path) -> None:
    name = sample.invoke("--instance-count", "2", "--set", "settings.mini_batch_size=5")
    assert sample.yard.completed(name)["node_count"] == 2
    assert sample.predictions(name, tmp_path) == expected()
    assert [path for path, _ in sample.failed(name)] == [_POISONED]


def pids_of(job: str, words: str) -> list[int]:
    """The processes of a job whose command line has `words`."""
    pids = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            variables = (folder / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if words in command and f"AZUREML_RUN_ID={job}" in variables.split("\0"):
            pids.append(int(folder.name))
    return pids


@pytest.mark.parametrize("victim", ["scoring_process.py", "start.py"])
def test_what_is_killed_goes_on_and_scores_nothing_twice(
    sample: Sample, tmp_path: Path, victim: str
) -> None:
    sample.yard("batch-deployment", "update", "-n", "triple", "-e", "numbers",
                "--set", "environment_variables.PAUSE_S=0.04")  # fmt: skip
    name = sample.invoke()

    def is_under_way() -> bool:
        scored = sample.yard.job(name)["metrics"].get("files_scored", 0)
        return scored > 50 and bool(pids_of(name, victim))

    wait_until(is_under_way, 240, "some files are scored")
    for pid in pids_of(name, victim):
        os.kill(pid, signal.SIGKILL)
    job = sample.yard.completed(name)
    assert sample.predictions(name, tmp_path) == expected()
    if victim == "start.py":
        assert job["attempt"] == 2
        second = sample.yard.logs_of_attempts(name)[-1]
        (done,) = re.findall(r"(\d+) of 1000 files are done already", second)
        assert int(done) > 0
    else:
        assert job["attempt"] == 1


def test_a_script_that_cannot_start_fails_the_job_with_its_reason(sample: Sample) -> None:
    code = sample.folder / "broken"
    code.mkdir()
    (code / "score.py").write_text("def init():\n    raise RuntimeError('no')\ndef run(b): pass\n")
    file = sample.folder / "broken.yml"
    document: dict[str, Any] = json.loads((sample.folder / "deployment.yml").read_text())
    document["name"] = "broken"
    document["code_configuration"]["code"] = "./broken"
    file.write_text(json.dumps(document))
    sample.yard("batch-deployment", "create", "-f", str(file))
    job = sample.yard.wait(sample.invoke("--deployment-name", "broken"))
    assert job["status"] == "Failed"
    assert "`score.py`: RuntimeError: no (score.py, line 2, in init)" in job["error"]["message"]


@pytest.mark.smoke
def test_the_guides_first_batch_endpoint_scores(yard: Yard, tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs/guides/batch-endpoints.md").read_text()
    for name, text in re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", guide, re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (lines, *_) = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    for line in lines.splitlines():
        words = shlex.split(line)
        if words[0] == "yard":
            with yard.start(*words[1:], cwd=tmp_path) as process:
                assert process.wait(240) == 0, line
        else:
            subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    scored = (tmp_path / "named-outputs" / "score" / "predictions.csv").read_text()
    assert sorted(scored.splitlines()) == ["a.txt 3", "b.txt 6"]
