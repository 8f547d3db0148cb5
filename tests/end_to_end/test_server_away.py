"""A training loop logs while its server, or its worker, is killed.

The server is unreachable for `TORCHYARD_TEST_AWAY_S` seconds, 8 by default. What the steps
took is printed, not judged (`pytest -s`); benchmarks/server_away.py measures it for a minute's
absence and points that are logged one by one.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from end_to_end.shared_torch import LOCKS, SharedTorch
from end_to_end.yard_under_test import REPOSITORY, Yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(400)]

AWAY_S = float(os.environ.get("TORCHYARD_TEST_AWAY_S", "8"))
METRICS = 20
STEPS = 100_000 // METRICS
LOOP = (REPOSITORY / "benchmarks/training_loop.py").read_text()
Write = Callable[..., str]


@pytest.fixture(scope="module")
def mlflow_environment(yard: Yard, shared_torch: SharedTorch) -> dict[str, str]:
    return shared_torch.lend(yard.home, LOCKS / "mlflow-skinny-3.11.1.txt")


def history(yard: Yard, job: str, key: str) -> list[tuple[int, float]]:
    """Step and value of every point, as an MLflow client gets them."""
    server = json.loads((yard.home / "server.json").read_text())
    token = (yard.home / "token").read_text().strip()
    points: list[tuple[int, float]] = []
    page = ""
    while True:
        query = {"run_id": job, "metric_key": key, "max_results": 25_000, "page_token": page}
        request = urllib.request.Request(
            f"{server['url']}/mlflow/default/api/2.0/mlflow/metrics/get-history?"
            + urllib.parse.urlencode({name: value for name, value in query.items() if value}),
            headers={"Authorization": f"Bearer {token}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = json.load(answer)
        points += [
            (int(metric["step"]), float(metric["value"])) for metric in body.get("metrics", [])
        ]
        page = body.get("next_page_token") or ""
        if not page:
            return points


def work_folder(yard: Yard, job: str) -> Path:
    """Where the job's only node works."""
    wait_until(lambda: yard.job(job)["status"] == "Running", 120, f"job {job} runs")
    return yard.node_of(job) / "work"


def print_timings(name: str, steps: list[tuple[float, float, list[float]]]) -> None:
    if steps:
        of_step, of_call = sorted(step[1] for step in steps), sorted(step[2][0] for step in steps)
        last = int(len(steps) * 0.99)
        print(
            f"{name:24}{len(steps):6} steps   step ms: median {of_step[len(steps) // 2] * 1e3:6.2f}"
            f"  p99 {of_step[last] * 1e3:6.2f}  longest {of_step[-1] * 1e3:7.2f}"
            f"   logging ms: median {of_call[len(steps) // 2] * 1e3:5.2f}"
            f"  p99 {of_call[last] * 1e3:6.2f}"
        )


def test_a_loop_logs_100_000_points_while_the_server_is_unreachable(
    yard: Yard, write_job: Write, mlflow_environment: dict[str, str]
) -> None:
    words = f"--steps {STEPS} --metrics {METRICS} --work-ms 1 --device-ms {AWAY_S * 1_600 / STEPS}"
    job = {"name": "away", "command": f"python loop.py {words}", "environment": mlflow_environment}
    job_file = write_job(job, loop=LOOP)
    yard("job", "create", "-f", job_file)
    wait_until(lambda: bool(history(yard, "away", "m00")), 120, "the loop logs")
    time.sleep(AWAY_S * 0.2)

    yard.kill_server()
    killed = time.time()
    wait_until(lambda: time.time() > killed + AWAY_S, AWAY_S + 10, "the server was unreachable")
    yard("server", "start")
    back = time.time()
    yard.completed("away")

    steps = json.loads(yard.read("jobs/away/files/outputs/steps.json"))
    print(f"\nthe server was unreachable for {back - killed:.0f} s")
    print_timings("before", [step for step in steps if step[0] < killed])
    print_timings("during", [step for step in steps if killed <= step[0] < back])
    print_timings("after", [step for step in steps if step[0] >= back])
    assert sum(killed <= step[0] < back for step in steps) > 100, "the loop went on"
    for number in range(METRICS):
        points = history(yard, "away", f"m{number:02d}")
        assert points == [(step, step + number / 100) for step in range(STEPS)]


ENDS_ALONE = """
import mlflow, pathlib, time
mlflow.log_metric("before", 1)
pathlib.Path("logging").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
mlflow.log_metrics({f"late{number}": number for number in range(50)})
mlflow.end_run()
"""


def test_a_job_is_completed_once_all_is_delivered(
    yard: Yard, write_job: Write, mlflow_environment: dict[str, str]
) -> None:
    job_file = write_job(
        {"name": "late", "command": "python ends.py", "environment": mlflow_environment},
        ends=ENDS_ALONE,
    )
    yard("job", "create", "-f", job_file)
    folder = work_folder(yard, "late")
    wait_until((folder / "logging").exists, 60, "the script logs")
    yard.kill_server()
    (folder / "go").touch()
    # The worker stays until it has told: without a server it has not ended two seconds later.
    time.sleep(2)
    assert folder.exists()
    yard("server", "start")
    yard.completed("late")
    for number in range(50):
        assert history(yard, "late", f"late{number}") == [(0, number)]


LOGS_ON = """
import itertools, mlflow, os, pathlib, time
rank, told = int(os.environ["RANK"]), os.environ["TOLD"] + os.environ["RANK"]
client, own = mlflow.MlflowClient(), os.environ["MLFLOW_RUN_ID"]
if rank == 0:
    experiment = mlflow.get_run(own).info.experiment_id
    nested = client.create_run(experiment, run_name="nested", tags={"mlflow.parentRunId": own})
    client.set_tag(own, "nested", nested.info.run_id)
while "nested" not in (tags := client.get_run(own).data.tags):
    time.sleep(0.1)
client.log_metric(tags["nested"], f"of {rank}", rank)
for step in itertools.count():
    mlflow.log_metric("of both", step, step=2 * step + rank)
    client.log_metric(tags["nested"], "of both", step, step=2 * step + rank)
    # What mlflow has returned from was acknowledged.
    pathlib.Path(told + ".part").write_text(str(step))
    os.replace(told + ".part", told)
"""


def test_a_killed_worker_loses_nothing_that_was_acknowledged(
    yard: Yard, write_job: Write, tmp_path: Path, mlflow_environment: dict[str, str]
) -> None:
    """Two ranks log to the job's run and to one below it; server and worker are killed."""

    def logged_steps(rank: int) -> int:
        file = tmp_path / f"told{rank}"
        return int(file.read_text()) if file.exists() else 0

    job_file = write_job(
        {
            "name": "killed",
            "command": "python on.py",
            "environment": mlflow_environment,
            "environment_variables": {"TOLD": str(tmp_path / "told")},
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        },
        on=LOGS_ON,
    )
    yard("job", "create", "-f", job_file)
    node = work_folder(yard, "killed").parent
    wait_until(lambda: min(logged_steps(0), logged_steps(1)) > 100, 90, "both ranks log")
    # Without the server the points stay on the node, and only then is it the worker's turn.
    yard.kill_server()
    seen = [logged_steps(0), logged_steps(1)]
    wait_until(
        lambda: all(logged_steps(rank) > seen[rank] + 100 for rank in (0, 1)), 90, "they go on"
    )
    os.kill(json.loads((node / "worker.json").read_text())["pid"], signal.SIGKILL)
    yard("server", "start")
    job = yard.wait("killed")
    assert job["error"]["code"] == "worker_lost"
    (nested,) = (child for child in yard.get("jobs")["value"] if child["parent"] == "killed")
    assert nested["status"] == "Failed", "nobody else would end it"
    for run, more in (("killed", (1, 2)), (nested["name"], (0, 1, 2))):
        points = history(yard, run, "of both")
        for rank in (0, 1):
            rank_points = [(step, value) for step, value in points if step % 2 == rank]
            assert rank_points == [(2 * step + rank, step) for step in range(len(rank_points))]
            # The answer to one more may have been on its way.
            assert len(rank_points) - logged_steps(rank) in more, (run, rank)
    wait_until(lambda: not node.exists(), 30, "the node's folder is gone")
