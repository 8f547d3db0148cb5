"""Metrics, parameters and new runs of concurrent requests: each as if it had come alone."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from mlflow.mlflow_server import Server

Calls = list[tuple[str, dict[str, Any]]]


def at_once(server: Server, calls: Calls) -> list[httpx2.Response]:
    async def run() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(server.app)
        headers = {"Authorization": "Bearer yard_p_ada"}
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://yard", headers=headers
        ) as client:
            asks = (client.post(f"/api/2.0/mlflow/{path}", json=body) for path, body in calls)
            return list(await asyncio.gather(*asks))

    return asyncio.run(run())


def metric(run_id: str, step: int, key: str = "loss") -> tuple[str, dict[str, Any]]:
    body = {"run_id": run_id, "key": key, "value": step / 8, "timestamp": 100 + step, "step": step}
    return "runs/log-metric", body


def steps_of(server: Server, run_id: str, key: str = "loss") -> list[int]:
    page = server.get("metrics/get-history", run_id=run_id, metric_key=key)
    return sorted(point["step"] for point in page["metrics"])


def test_every_metric_of_many_writers_is_there_once(server: Server) -> None:
    first, second = server.new_run(), server.new_run()
    calls = [metric(run, step) for step in range(150) for run in (first, second)]
    # Each is sent twice, as a client does that got no answer.
    for response in at_once(server, calls + calls[::-1]):
        assert (response.status_code, response.json()) == (200, {})
    assert steps_of(server, first) == steps_of(server, second) == list(range(150))


def test_a_refused_write_leaves_the_others_as_they_are(server: Server) -> None:
    run_id, deleted = server.new_run(), server.new_run()
    server.post("runs/delete", run_id=deleted)
    server.post("runs/log-parameter", run_id=run_id, key="lr", value="1")
    calls: Calls = [
        metric(run_id, 1),
        ("runs/log-parameter", {"run_id": run_id, "key": "lr", "value": "2"}),
        metric("no_such_run", 1),
        metric(deleted, 1),
        ("runs/log-metric", {"run_id": run_id, "key": "loss", "value": "x", "timestamp": 1}),
        ("runs/create", {"experiment_id": "4711"}),
        metric(run_id, 2),
    ]
    responses = at_once(server, calls)
    assert [response.status_code for response in responses] == [200, 400, 404, 400, 400, 404, 200]
    messages = [response.json().get("message", "") for response in responses]
    assert "Param with key='lr' was already logged with value='1'" in messages[1]
    assert messages[2] == "Run with id=no_such_run not found"
    assert "must be in the 'active' state" in messages[3]
    assert messages[5] == "No Experiment with id=4711 exists"
    assert steps_of(server, run_id) == [1, 2]


def test_runs_made_at_once_are_as_reading_them_back_shows(server: Server) -> None:
    experiment = server.post("experiments/create", name="e")["experiment_id"]
    tags = [{"key": "team", "value": "a"}, {"key": "mlflow.runName", "value": "mine"}]
    bodies = [{"experiment_id": experiment, "tags": tags, "start_time": n} for n in range(20)]
    responses = at_once(server, [("runs/create", body) for body in bodies])
    runs = [response.json()["run"] for response in responses]
    assert len({run["info"]["run_id"] for run in runs}) == 20
    for run in runs:
        assert server.get("runs/get", run_id=run["info"]["run_id"])["run"] == run


def test_a_repeated_request_makes_one_run(server: Server) -> None:
    async def run() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(server.app)
        headers = {"Authorization": "Bearer yard_p_ada", "X-Torchyard-Request": "once"}
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://yard", headers=headers
        ) as client:
            asks = (client.post("/api/2.0/mlflow/runs/create", json={}) for _ in range(8))
            return list(await asyncio.gather(*asks))

    answers = [response.json()["run"] for response in asyncio.run(run())]
    assert len({answer["info"]["run_id"] for answer in answers}) == 1


def test_a_value_that_does_not_fit_fails_alone(server: Server) -> None:
    run_id = server.new_run()
    calls = [metric(run_id, 1), ("runs/log-batch", {"run_id": run_id, "params": [
        {"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}), metric(run_id, 2)]  # fmt: skip
    assert [response.status_code for response in at_once(server, calls)] == [200, 400, 200]
    assert steps_of(server, run_id) == [1, 2]
