"""`yard job top` against the real server, with figures as a worker sends them."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cli.conftest import Answer, Yard
from cli.real_server import RealServer
from torchyard.jobs import actions
from torchyard.jobs.history.history_records import SampledMetric, metric

NODE, RANK = "system/node-{}/{}", "system/rank-{}/{}"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def ask(real: RealServer, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("TORCHYARD_URL", real.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", real.token)
    monkeypatch.setenv("NO_COLOR", "1")
    return yard


def run_with(real: RealServer, metrics: dict[str, list[float]], ended: bool = False) -> str:
    """A run of the default experiment, whose script logged these; its worker what is `system/`."""
    api = "/mlflow/default/api/2.0/mlflow"
    now = time.time_ns() // 1_000_000
    with real.client() as client:
        call = client.transport.post
        made = call(f"{api}/runs/create", {"experiment_id": "0", "start_time": now})
        name: str = made["run"]["info"]["run_id"]
        job = actions.get(real.services, "default", name)
        for key, values in metrics.items():
            points = [metric(key, value, now, step) for step, value in enumerate(values)]
            by_worker = [SampledMetric(point) for point in points]
            is_sampled = key.startswith("system/")
            real.services.history.append(job.id, by_worker if is_sampled else points)
        if ended:
            call(f"{api}/runs/update", {"run_id": name, "status": "FINISHED", "end_time": now})
    return name


FIGURES: dict[str, list[float]] = {
    NODE.format(0, "cpu_utilization_percentage"): [50.0, 42.4],
    NODE.format(0, "job_cpu_percentage"): [180.0],
    NODE.format(0, "job_memory_usage_megabytes"): [3500.0, 2500.0],
    NODE.format(0, "gpu_1_utilization_percentage"): [7.0],
    NODE.format(0, "gpu_0_utilization_percentage"): [93.0],
    RANK.format(0, "process_cpu_percentage"): [99.0],
    RANK.format(0, "process_memory_rss_megabytes"): [812.0],
    "loss": [1.0],
}


def rows(answer: Answer) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.rstrip()) for line in answer.text.splitlines()]


def test_nodes_and_ranks_are_a_table_that_is_printed_once(ask: Yard, real: RealServer) -> None:
    answer = ask("job", "top", run_with(real, FIGURES))
    assert answer.code == 0, answer.err
    heading, _, node, rank = rows(answer)
    assert heading[:6] == ["NODE", "RANK", "CPU", "MEMORY", "PEAK", "GPU"]
    assert heading[6:] == ["MACHINE CPU", "AGE"]
    assert node[0] == "0" and node[1:6] == ["180 %", "2.5 GB", "3.5 GB", "93 %, 7 %", "42 %"]
    assert rank[:5] == ["0", "0", "99 %", "812 MB", "812 MB"]
    assert "loss" not in answer.text


def test_programs_get_every_figure_by_its_name(ask: Yard, real: RealServer) -> None:
    name = run_with(real, FIGURES)
    body: list[dict[str, Any]] = json.loads(ask("job", "top", "-n", name, "-o", "json").text)
    assert [(row["job"], row["node"], row["rank"]) for row in body] == [
        (name, 0, None),
        (name, 0, 0),
    ]
    assert body[0]["cpu_utilization_percentage"] == 42.4
    assert body[1]["process_cpu_percentage"] == 99.0
    shares = ask("job", "top", name, "--query", "[?rank!=null].process_cpu_percentage").text
    assert json.loads(shares) == [99.0]


def test_without_a_name_all_running_jobs_are_shown(ask: Yard, real: RealServer) -> None:
    name, ended = run_with(real, FIGURES), run_with(real, FIGURES, ended=True)
    answer = ask("job", "top")
    assert rows(answer)[0][0] == "JOB"
    assert name in answer.text and ended not in answer.text


def test_a_job_without_figures_says_when_they_come(ask: Yard, real: RealServer) -> None:
    answer = ask("job", "top", run_with(real, {"loss": [1.0]}))
    assert answer.code == 0
    assert "No resource use is known yet" in answer.err
    assert not answer.text


def test_an_unknown_job_is_an_error(ask: Yard) -> None:
    answer = ask("job", "top", "nobody")
    assert answer.code == 2
    assert "`nobody`" in answer.err


def test_two_names_are_refused(ask: Yard) -> None:
    assert "two names were given" in ask("job", "top", "a", "-n", "b").err


def test_figures_are_shown_that_the_script_logs_under_the_same_names(
    ask: Yard, real: RealServer
) -> None:
    """As MLflow's system metrics of a node that the script calls `node-0`."""
    name, key = run_with(real, FIGURES), NODE.format(0, "job_cpu_percentage")
    job = actions.get(real.services, "default", name)
    real.services.history.append(job.id, [metric(key, 1.0, 1)])
    assert rows(ask("job", "top", name))[2][1] == "180 %"
    text = ask("job", "metrics", name).text
    assert key in text and "(sampled)" not in text


def test_metrics_show_them_on_request(ask: Yard, real: RealServer) -> None:
    name, key = run_with(real, FIGURES), NODE.format(0, "job_cpu_percentage")
    assert "system/" not in ask("job", "metrics", name).text
    assert key in ask("job", "metrics", name, "--system").text
    assert key in ask("job", "metrics", name, "--key", key).text


def test_the_terminal_is_redrawn_until_the_job_ends(
    ask: Yard, real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout.__class__, "isatty", lambda self: True, raising=False)
    name = run_with(real, FIGURES, ended=True)
    answer = ask("job", "top", name)
    assert answer.code == 0
    assert answer.text.splitlines()[-1] == f"{name} Completed"
