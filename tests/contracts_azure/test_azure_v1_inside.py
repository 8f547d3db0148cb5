"""SDK v1 inside jobs: what it logs does not wait for the server, and is there, once, in order."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import client_venvs
import pytest
import yaml
from yard_under_test import Yard, running_yard, wait_until

pytestmark = [pytest.mark.azure, pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent
PYTHON = client_venvs.python(client_venvs.SDK_V1)
# What the job's own environment does for its Pythons, done for the client's.
HOOKED = (
    "import _torchyard_rank_hook as hook, runpy, sys; hook.install(); sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


@pytest.fixture(scope="module")
def own_yard() -> Iterator[Yard]:
    """One whose server may be killed."""
    with running_yard("azure-inside") as yard:
        # The way in for Azure's clients is open from here on.
        yard("client-env", "--shell", "json")
        yield yard


@pytest.fixture(scope="module")
def job(own_yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of two ranks, while which the server is killed."""
    shared_folder = tmp_path_factory.mktemp("away")
    packages = 'export PYTHONPATH=$(echo "$VIRTUAL_ENV"/lib/python3*/site-packages)'
    document = {
        "name": "away",
        "command": f'{packages}; {PYTHON} -W ignore -c "{HOOKED}" train.py {shared_folder}',
        "code": str(HERE / "in_job_v1_away"),
        "environment": "python",
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        # The client does without torch.
        "properties": {"torchyard.preflight": "off"},
    }
    file = shared_folder / "job.yml"
    file.write_text(yaml.safe_dump(document))
    own_yard("job", "create", "-f", str(file))
    began = {"began-0", "began-1"}
    wait_until(lambda: began <= set(own_yard.job("away")["metrics"]), 120, "both ranks log")
    own_yard.kill_server()
    (shared_folder / "away").touch()
    logged = [shared_folder / f"logged-{rank}" for rank in (0, 1)]
    wait_until(lambda: all(file.exists() for file in logged), 60, "both have logged without it")
    own_yard("server", "start")
    return own_yard.completed("away")


def history(yard: Yard, key: str) -> list[tuple[int, float]]:
    series = yard.get(f"jobs/away/metrics/history?key={key}")
    return [(step, value) for step, _, value in series["points"]]


def test_points_are_in_order_and_numbered(own_yard: Yard, job: dict[str, Any]) -> None:
    for rank in (0, 1):
        down = [(number, 500.0 - number) for number in range(500)]
        assert history(own_yard, f"down-{rank}") == down
        assert history(own_yard, f"stepped-{rank}") == [(70, 0.5)]
        # What was logged last of all was not flushed.
        assert history(own_yard, f"last-{rank}") == [(step, float(step)) for step in range(60)]


def test_both_ranks_log_to_one_key(own_yard: Yard, job: dict[str, Any]) -> None:
    both = history(own_yard, "both")
    assert [step for step, _ in both] == list(range(1000))
    assert sorted(value for _, value in both) == [number / 2 for number in range(1000)]


def test_tags_and_properties_are_there(job: dict[str, Any]) -> None:
    for rank in (0, 1):
        assert job["tags"][f"rank-{rank}"] == "was here"
        assert job["properties"][f"rank-{rank}"] == "was here"


def test_the_client_reads_the_same(own_yard: Yard, job: dict[str, Any], tmp_path: Path) -> None:
    own_yard("workspace", "config", "--path", str(tmp_path))
    script = (
        "from azureml.core import Run, Workspace\n"
        "got = Run.get(Workspace.from_config(), 'away').get_metrics()\n"
        "assert got['down-1'] == [500 - one for one in range(500)], got['down-1']\n"
        "assert got['row-0']['number'] == list(range(500)), got['row-0']\n"
        "assert got['last-0'] == list(range(60)) and got['stepped-1'] == 0.5\n"
    )
    command = ["client-env", "--run", "--", str(PYTHON), "-W", "ignore", "-c", script]
    with own_yard.start(*command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error.decode()
