"""The relay between scripts and the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from torchyard.shared.connection import AttemptOver
from worker.relays import (
    RUNS,
    TOKEN,
    MlflowStub,
    Script,
    plan_for,
    relay_of,
    relay_to,
    server_of,
    steps,
)


def test_what_is_logged_arrives_as_records(server: MlflowStub, tmp_path: Path) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        script.metric(3, "a@b %/x-y é", "NaN")
        fields = {"run_uuid": "job-1", "key": "lr", "value": "0.1"}
        assert script.post("/log-parameter", **fields) == (200, {})
        assert script.post("/set-tag", run_id="job-1", key="t", value="ü") == (200, {})
        batch = {
            "metrics": [
                {"key": "m", "value": value, "timestamp": "9", "step": str(step)}
                for step, value in enumerate([1, 2.5, float("inf"), float("-inf"), float("nan")])
            ],
            "params": [{"key": "p", "value": ""}],
            "tags": [{"key": "u", "value": "v"}],
        }
        assert script.post("/log-batch", run_id="job-1", **batch) == (200, {})
        assert relay.finish(60.0)

    metrics = [record for record in server.history[0] if record["kind"] == "metric"]
    assert metrics[0] == {
        "kind": "metric",
        "run": "job-1",
        "key": "a@b %/x-y é",
        "value": "NaN",
        "timestamp": 7,
        "step": 3,
    }
    assert [record["value"] for record in metrics[1:]] == [1, 2.5, "Infinity", "-Infinity", "NaN"]
    assert [(record["timestamp"], record["step"]) for record in metrics[1:3]] == [(9, 0), (9, 1)]
    texts = [record for record in server.history[0] if record["kind"] != "metric"]
    assert [(record["kind"], record["key"], record["value"]) for record in texts] == [
        ("param", "lr", "0.1"),
        ("tag", "t", "ü"),
        ("param", "p", ""),
        ("tag", "u", "v"),
    ]
    assert server.asked == [], "nothing of it needed MLflow's routes"


def test_metrics_that_are_lost_to_the_end_are_known(server: MlflowStub, tmp_path: Path) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        for step, loss in enumerate([0.5, "NaN", 0.4, "NaN", "NaN", "NaN"]):
            script.metric(step, "loss", loss)
            script.metric(step, "lr", 0.1)
        assert relay.finish(60.0)
    ((key, (first, count)),) = relay.lost_figures.items()
    assert (key, first["step"], count) == ("loss", 3, 3)


def test_without_the_runs_token_nothing_is_taken(server: MlflowStub, tmp_path: Path) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        url = f"http://{script._connection.host}:{script._connection.port}"
        for token in ("", "yard_r_other", TOKEN[:-1], TOKEN + "x"):
            for method in ("POST", "GET", "PUT", "DELETE"):
                with Script(url, token) as stranger:
                    status, content = stranger.send(method, RUNS + "/log-metric", b"{}")
                assert status == 401
                assert json.loads(content)["error_code"] == "UNAUTHENTICATED"
        assert relay.finish(60.0)
    assert (server.history, server.asked) == ({}, [])


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/log-metric", {"value": 1, "timestamp": 1}),
        ("/log-metric", {"key": "", "value": 1, "timestamp": 1}),
        ("/log-metric", {"key": "k" * 251, "value": 1, "timestamp": 1}),
        ("/log-metric", {"key": "m", "timestamp": 1}),
        ("/log-metric", {"key": "m", "value": "1,5", "timestamp": 1}),
        ("/log-metric", {"key": "m", "value": True, "timestamp": 1}),
        ("/log-metric", {"key": "m", "value": 10**400, "timestamp": 1}),
        ("/log-metric", {"key": "m", "value": 1}),
        ("/log-metric", {"key": "m", "value": 1, "timestamp": -1}),
        ("/log-metric", {"key": "m", "value": 1, "timestamp": 1, "step": 2**63}),
        ("/log-metric", {"key": "m", "value": 1, "timestamp": 1, "step": "one"}),
        ("/log-metric", {"run_id": None, "key": "m", "value": 1, "timestamp": 1}),
        ("/log-parameter", {"value": "1"}),
        ("/log-parameter", {"key": "p", "value": 1}),
        ("/log-batch", {"metrics": [{"key": "m"}]}),
        ("/log-batch", {"metrics": "all"}),
        ("/log-batch", {"params": [1]}),
    ],
)
def test_what_mlflow_would_refuse_is_refused_at_once(
    server: MlflowStub, tmp_path: Path, path: str, fields: dict[str, Any]
) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        status, body = script.post(path, **{"run_id": "job-1", **fields})
        assert (status, body["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
        assert script.send("POST", RUNS + path, b"{")[0] == 400
        script.metric(1)
        assert relay.finish(60.0)
    assert steps(server) == [1]


def test_a_parameter_keeps_its_value(server: MlflowStub, tmp_path: Path) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        for value, status in (("1", 200), ("1", 200), ("2", 400)):
            assert script.post("/log-parameter", run_id="job-1", key="p", value=value)[0] == status
        twice = [{"key": "q", "value": "1"}, {"key": "q", "value": "2"}]
        assert script.post("/log-batch", run_id="job-1", params=twice)[0] == 400
        assert script.post("/log-parameter", run_id="job-1", key="q", value="3")[0] == 200
        assert relay.finish(60.0)
    assert [record["value"] for record in server.history[0]] == ["1", "1", "3"]


@pytest.mark.slow
def test_ten_thousand_points_survive_a_server_that_goes(server: MlflowStub, tmp_path: Path) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        for step in range(10_000):
            if step == 3_000:
                server.stop()
            if step == 7_000:
                server.start()
            script.metric(step)
        assert relay.finish(60.0)
    assert steps(server) == list(range(10_000))


RELAY_PROGRAM = """
import sys, time
from pathlib import Path
from torchyard.shared.plan import from_json
from torchyard.shared.connection import Connection
from torchyard.worker.relay.relay import Relay
plan = from_json(sys.argv[1])
relay = Relay(Connection.of_plan(plan), plan, 0, Path(sys.argv[2]))
print(relay.start(), flush=True)
sys.stdin.read()
print(relay.finish(60.0), flush=True)
"""


def test_a_killed_worker_goes_on_after_its_restart(server: MlflowStub, tmp_path: Path) -> None:
    plan = plan_for(server.url).to_json()
    count = 0
    for life in range(4):
        if life == 1:
            server.stop()
        worker = subprocess.Popen(
            [sys.executable, "-c", RELAY_PROGRAM, plan, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdin is not None and worker.stdout is not None
        try:
            with Script(worker.stdout.readline().strip()) as script:
                for _ in range(300):
                    script.metric(count)
                    count += 1
            if life == 3:
                server.start()
                worker.stdin.close()
                assert worker.stdout.read().strip() == "True"
            else:
                os.kill(worker.pid, signal.SIGKILL)
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
            worker.stdin.close()
    assert steps(server) == list(range(1_200))


def test_a_script_reads_what_it_wrote(server: MlflowStub, tmp_path: Path) -> None:
    seen: list[int] = []

    def delay(method: str, path: str) -> None:
        if path.startswith("/history"):
            time.sleep(0.05)

    server.refuse = delay
    with relay_to(server, tmp_path) as (_, script):
        for step in range(30):
            script.metric(step)
            if step % 10 == 9:
                path = "/api/2.0/mlflow/metrics/get-history?run_id=job-1&metric_key=loss"
                assert script.send("GET", path)[0] == 200
                seen.append(len(steps(server)))
    assert seen == [10, 20, 30]


def test_all_else_is_passed_on(server: MlflowStub, tmp_path: Path) -> None:
    artifact = "/api/2.0/mlflow-artifacts/artifacts/12/job-1/artifacts/ü%20%2541.bin".replace(
        "ü", "%C3%BC"
    )
    content = os.urandom(3_000_000)
    server.answers[artifact + "/get"] = (200, content)
    server.answers["/api/2.0/mlflow/nothing"] = (404, {"error_code": "ENDPOINT_NOT_FOUND"})
    with relay_to(server, tmp_path) as (_, script):
        status, body = script.send("PUT", artifact, content)
        assert (status, json.loads(body)["size"]) == (200, len(content))
        chunks = iter([content[:70_000], content[70_000:70_001], content[70_001:]])
        assert json.loads(script.send("PUT", artifact, chunks)[1])["size"] == len(content)
        assert script.send("GET", artifact + "/get?x=1") == (200, content)
        assert script.send("DELETE", artifact)[0] == 200
        assert script.send("POST", "/api/2.0/mlflow/nothing", b"{}")[0] == 404
        # A run that the relay has not seen is the server's to judge.
        foreign = {"run_id": "other", "key": "m", "value": 1, "timestamp": 1}
        assert script.post("/log-metric", **foreign)[0] == 200
    assert [request[0] for request in server.asked] == [
        "PUT",
        "PUT",
        "GET",
        "DELETE",
        "POST",
        "POST",
    ]
    assert server.asked[0][3] == server.asked[1][3] == content
    assert server.asked[2][2] == {"x": "1"}
    assert json.loads(server.asked[5][3]) == foreign


def test_a_child_run_is_known_once_it_is_made(server: MlflowStub, tmp_path: Path) -> None:
    server.answers[RUNS + "/create"] = (200, {"run": {"info": {"run_id": "child"}}})
    with relay_to(server, tmp_path) as (relay, script):
        assert script.post("/create", experiment_id="12")[1]["run"]["info"]["run_id"] == "child"
        fields = {"run_id": "child", "key": "m", "value": 1, "timestamp": 1}
        assert script.post("/log-metric", **fields) == (200, {})
        assert script.send("GET", RUNS + "/get?run_id=older")[0] == 200
        assert script.post("/log-metric", **{**fields, "run_id": "older"}) == (200, {})
        assert relay.finish(60.0)
    assert [record["run"] for record in server.history[0]] == ["child", "older"]


def test_the_jobs_own_run_is_told_without_a_server(server: MlflowStub, tmp_path: Path) -> None:
    server.stop()
    with relay_to(server, tmp_path) as (relay, script):
        script.metric(1)
        status, content = script.send("GET", RUNS + "/get?run_uuid=job-1&run_id=job-1")
        info = json.loads(content)["run"]["info"]
        assert (status, info["run_id"], info["status"]) == (200, "job-1", "RUNNING")
        assert info["artifact_uri"] == "mlflow-artifacts:/12/job-1/artifacts"
        response = script.post("/update", run_id="job-1", status="FINISHED", run_name="mine")
        assert response[1]["run_info"]["experiment_id"] == "12"
        server.start()
        full = {"info": {**info, "run_name": "mine"}, "data": {"params": []}}
        server.answers[RUNS + "/get"] = (200, {"run": full})
        assert json.loads(script.send("GET", RUNS + "/get?run_id=job-1")[1])["run"] == full
        server.stop()
        assert json.loads(script.send("GET", RUNS + "/get?run_id=job-1")[1])["run"] == full
        server.start()
        assert relay.finish(60.0)
    assert [(record["kind"], record["key"]) for record in server.history[0]] == [
        ("metric", "loss"),
        ("tag", "mlflow.runName"),
    ]


def test_an_answer_that_breaks_off_is_a_server_that_is_away(tmp_path: Path) -> None:
    class HalfAnswer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    dying = HTTPServer(("127.0.0.1", 0), HalfAnswer)
    threading.Thread(target=dying.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{dying.server_address[1]}"
    with server_of(address, tmp_path) as script:
        status, content = script.send("GET", RUNS + "/get?run_id=job-1")
        assert (status, json.loads(content)["run"]["info"]["status"]) == (200, "RUNNING")
        assert script.send("GET", RUNS + "/get?run_id=other")[0] == 503
    dying.shutdown()
    dying.server_close()


def test_a_server_that_comes_back_is_waited_for(server: MlflowStub, tmp_path: Path) -> None:
    server.stop()
    later = threading.Timer(0.7, server.start)
    later.start()
    with relay_to(server, tmp_path) as (_, script):
        assert script.send("GET", "/api/2.0/mlflow/experiments/get?experiment_id=1")[0] == 200
    later.join()


def test_a_server_that_stays_away_is_said_to_be(server: MlflowStub, tmp_path: Path) -> None:
    server.stop()
    with server_of(server.url, tmp_path) as script:
        status, content = script.send("GET", "/api/2.0/mlflow/experiments/search")
    assert (status, json.loads(content)["error_code"]) == (503, "TEMPORARILY_UNAVAILABLE")


def test_why_a_record_was_rejected_is_told(server: MlflowStub, tmp_path: Path) -> None:
    original = server._history

    def history(body: dict[str, Any]) -> dict[str, Any]:
        rejected = [
            {"seq": body["seq"] + index, "message": f"step {record['step']} is odd"}
            for index, record in enumerate(body["records"])
            if record["step"] == 13
        ]
        return {**original(body), "rejected": rejected}

    server._history = history  # type: ignore[method-assign]
    response: list[str] = []
    with relay_to(server, tmp_path, response) as (relay, script):
        for step in range(40):
            script.metric(step)
        script.metric(13)
        assert relay.finish(60.0)
    assert response == ["run history: step 13 is odd", "run history: 2 records were refused in all"]
    assert steps(server) == [*range(40), 13]


def test_a_batch_that_is_refused_is_sent_by_halves(server: MlflowStub, tmp_path: Path) -> None:
    original = server.answer

    def answer(method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        if path == "/history" and b'"poison"' in body:
            return 400, {"error": {"message": "poisoned"}}
        return original(method, path, query, body)

    server.answer = answer  # type: ignore[method-assign]
    server.stop()
    response: list[str] = []
    with relay_to(server, tmp_path, response) as (relay, script):
        for step in range(50):
            script.metric(step, "poison" if step == 31 else "loss")
        server.start()
        assert relay.finish(60.0)
    assert len(response) == 1 and "poisoned" in response[0]
    # In its place came something that the server counts, and refuses in its own words.
    assert server.history[0][31] == {}
    steps = [record["step"] for record in server.history[0] if record]
    assert steps == [step for step in range(50) if step != 31]


def test_an_attempt_that_is_over_ends_the_wait(server: MlflowStub, tmp_path: Path) -> None:
    server.over = True
    with relay_to(server, tmp_path) as (relay, script):
        script.metric(1)
        with pytest.raises(AttemptOver):
            relay.finish(60.0)


def test_finishing_without_a_server_gives_up_in_time(server: MlflowStub, tmp_path: Path) -> None:
    server.stop()
    with relay_to(server, tmp_path) as (relay, script):
        script.metric(1)
        assert not relay.finish(0.3)


def test_what_an_earlier_life_left_is_shipped_without_a_script(
    server: MlflowStub, tmp_path: Path
) -> None:
    server.stop()
    with relay_to(server, tmp_path) as (_, script):
        script.metric(5)
    server.start()
    assert relay_of(server, tmp_path).finish(60.0)
    assert steps(server) == [5]
