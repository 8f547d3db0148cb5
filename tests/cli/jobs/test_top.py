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
from torchyard import Client

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


@pytest.fixture
def client(real: RealServer) -> Iterator[Client]:
    with real.client() as made:
        yield made


def run_with(client: Client, metrics: dict[str, list[float]], ended: bool = False) -> str:
    """A run of the default experiment, which logged these."""
    call, api = client.transport.post, "/mlflow/default/api/2.0/mlflow"
    now = time.time_ns() // 1_000_000
    made = call(f"{api}/runs/create", {"experiment_id": "0", "start_time": now})
    name: str = made["run"]["info"]["run_id"]
    points = [
        {"key": key, "value": value, "timestamp": now, "step": step}
        for key, values in metrics.items()
        for step, value in enumerate(values)
    ]
    call(f"{api}/runs/log-batch", {"run_id": name, "metrics": points})
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


def test_nodes_and_ranks_are_a_table_that_is_printed_once(ask: Yard, client: Client) -> None:
    answer = ask("job", "top", run_with(client, FIGURES))
    assert answer.code == 0, answer.err
    heading, _, node, rank = rows(answer)
    assert heading[:6] == ["NODE", "RANK", "CPU", "MEMORY", "PEAK", "GPU"]
    assert heading[6:] == ["MACHINE CPU", "AGE"]
    assert node[0] == "0" and node[1:6] == ["180 %", "2.5 GB", "3.5 GB", "93 %, 7 %", "42 %"]
    assert rank[:5] == ["0", "0", "99 %", "812 MB", "812 MB"]
    assert "loss" not in answer.text


def test_programs_get_every_figure_by_its_name(ask: Yard, client: Client) -> None:
    name = run_with(client, FIGURES)
    body: list[dict[str, Any]] = json.loads(ask("job", "top", "-n", name, "-o", "json").text)
    assert [(row["job"], row["node"], row["rank"]) for row in body] == [
        (name, 0, None),
        (name, 0, 0),
    ]
    assert body[0]["cpu_utilization_percentage"] == 42.4
    assert body[1]["process_cpu_percentage"] == 99.0
    shares = ask("job", "top", name, "--query", "[?rank!=null].process_cpu_percentage").text
    assert json.loads(shares) == [99.0]


def test_without_a_name_all_running_jobs_are_shown(ask: Yard, client: Client) -> None:
    name, ended = run_with(client, FIGURES), run_with(client, FIGURES, ended=True)
    answer = ask("job", "top")
    assert rows(answer)[0][0] == "JOB"
    assert name in answer.text and ended not in answer.text


def test_a_job_without_figures_says_when_they_come(ask: Yard, client: Client) -> None:
    answer = ask("job", "top", run_with(client, {"loss": [1.0]}))
    assert answer.code == 0
    assert "No resource use is known yet" in answer.err
    assert not answer.text


def test_an_unknown_job_is_an_error(ask: Yard) -> None:
    answer = ask("job", "top", "nobody")
    assert answer.code == 2
    assert "`nobody`" in answer.err


def test_two_names_are_refused(ask: Yard) -> None:
    assert "two names were given" in ask("job", "top", "a", "-n", "b").err


def test_metrics_show_them_on_request(ask: Yard, client: Client) -> None:
    name, key = run_with(client, FIGURES), NODE.format(0, "job_cpu_percentage")
    assert "system/" not in ask("job", "metrics", name).text
    assert key in ask("job", "metrics", name, "--system").text
    assert key in ask("job", "metrics", name, "--key", key).text


def test_the_terminal_is_redrawn_until_the_job_ends(
    ask: Yard, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout.__class__, "isatty", lambda self: True, raising=False)
    name = run_with(client, FIGURES, ended=True)
    answer = ask("job", "top", name)
    assert answer.code == 0
    assert answer.text.splitlines()[-1] == f"{name} Completed"
