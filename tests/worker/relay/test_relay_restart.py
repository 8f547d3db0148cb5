"""What a relay knows after its worker, its server or an answer was lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchyard.shared.record_rules import InvalidRecord
from torchyard.worker.relay.run_state import RunState
from worker.relays import RUNS, MlflowStub, Script, relay_of, relay_to, server_of, steps


def param(key: str, value: str, run: str = "job-1") -> dict[str, Any]:
    return {"kind": "param", "run": run, "key": key, "value": value}


def test_a_restarted_relay_knows_what_the_last_one_knew(server: MlflowStub, tmp_path: Path) -> None:
    server.answers[RUNS + "/create"] = (200, {"run": {"info": {"run_id": "child"}}})
    with relay_to(server, tmp_path) as (_, script):
        assert script.post("/create", experiment_id="12")[0] == 200
        assert script.post("/log-parameter", run_id="child", key="lr", value="1")[0] == 200
    server.stop()
    with relay_to(server, tmp_path) as (relay, script):
        fields = {"run_id": "child", "key": "lr"}
        assert script.post("/log-parameter", **fields, value="2")[0] == 400
        assert script.post("/log-parameter", **fields, value="1") == (200, {})
        server.start()
        assert relay.finish(60.0)
    assert [record["value"] for record in server.history[0]] == ["1", "1"]


def test_a_restarted_relay_listens_where_the_last_one_did(
    server: MlflowStub, tmp_path: Path
) -> None:
    first = relay_of(server, tmp_path)
    url = first.start()
    with Script(url) as script:
        script.metric(1)
    first.finish(60.0)
    second = relay_of(server, tmp_path)
    assert second.start() == url
    with Script(url) as script:
        script.metric(2)
    assert second.finish(60.0)
    assert steps(server) == [1, 2]


def test_a_port_that_is_taken_is_no_hindrance(server: MlflowStub, tmp_path: Path) -> None:
    state = RunState(tmp_path / "history" / "runs.ndjson", "job-1")
    state.set_port(server.port)
    state.close()
    with relay_to(server, tmp_path) as (relay, script):
        script.metric(1)
        assert relay.finish(60.0)
    assert steps(server) == [1]


def test_half_a_line_of_memory_is_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "runs.ndjson"
    state = RunState(file, "own")
    state.learn("child")
    state.learn("gone")
    state.forget("gone")
    state.commit(state.reserve([param("a", "1")]))
    state.set_port(1234)
    state.close()
    with open(file, "ab") as torn:
        torn.write(b'{"run": "half')
    for _ in range(2):
        state = RunState(file, "own")
        state.learn("after")
        assert [state.knows(run) for run in ("own", "child", "after", "gone", "half")] == [
            True,
            True,
            True,
            False,
            False,
        ]
        with pytest.raises(InvalidRecord, match="already logged with value='1'"):
            state.reserve([param("a", "2")])
        assert state.port == 1234
        state.close()


def test_a_parameter_that_could_not_be_kept_has_no_value(tmp_path: Path) -> None:
    state = RunState(tmp_path / "runs.ndjson", "own")
    state.release(state.reserve([param("a", "1")]))
    assert state.reserve([param("a", "2")]) == {("job-1", "a"): "2"}
    state.close()


def test_a_server_that_was_put_back_to_a_backup_gets_the_rest_again(
    server: MlflowStub, tmp_path: Path
) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        for step in range(100):
            script.metric(step)
        relay.settle(60.0)
        assert len(steps(server)) == 100
        del server.history[0][40:]
        script.metric(100)
        assert relay.finish(60.0)
    assert steps(server) == list(range(101))


def test_a_run_is_made_once_though_its_answer_was_lost(server: MlflowStub, tmp_path: Path) -> None:
    made: list[str] = []
    original = server.answer

    def answer(method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        if path.endswith("/runs/create"):
            name = server.headers["X-Torchyard-Request"]
            made.append(name)
            # It has made the run each time, and says so from the fourth time on.
            if len(made) < 4:
                return 503, {"error_code": "TEMPORARILY_UNAVAILABLE"}
            return 200, {"run": {"info": {"run_id": f"run-of-{name}"}}}
        return original(method, path, query, body)

    server.answer = answer  # type: ignore[method-assign]
    with server_of(server.url, tmp_path) as script:
        fields = {"experiment_id": "12", "start_time": 1}
        responses = [script.post("/create", **fields)[0] for _ in range(4)]
        script.post("/create", **fields)
        script.post("/create", experiment_id="12", start_time=2)
    assert responses == [503, 503, 503, 200]
    assert len(set(made[:4])) == 1
    assert len(set(made)) == 3, "what was answered is done: the next is another run"


def test_a_run_that_the_server_told_of_is_known(server: MlflowStub, tmp_path: Path) -> None:
    fields = {"run_id": "of-another-node", "key": "m", "value": 1, "timestamp": 1}
    with relay_to(server, tmp_path) as (relay, script):
        assert script.post("/log-metric", **fields)[0] == 200
        assert script.post("/log-metric", **fields) == (200, {})
        server.answers[RUNS + "/delete"] = (200, {})
        assert script.post("/delete", run_id="of-another-node") == (200, {})
        server.answers[RUNS + "/log-metric"] = (400, {"error_code": "INVALID_PARAMETER_VALUE"})
        assert script.post("/log-metric", **fields)[0] == 400
        assert relay.finish(60.0)
    assert len(server.history[0]) == 1
    assert [request[1] for request in server.asked] == [
        RUNS + "/log-metric",
        RUNS + "/delete",
        RUNS + "/log-metric",
    ]


def test_what_mlflow_3_tells_of_a_model_travels_with_the_metric(
    server: MlflowStub, tmp_path: Path
) -> None:
    point = {"key": "acc", "value": 0.5, "timestamp": 7, "step": 1}
    model = {"model_id": "m-1", "dataset_name": "test", "dataset_digest": "abc"}
    with relay_to(server, tmp_path) as (relay, script):
        assert script.post("/log-metric", run_id="job-1", **point, **model) == (200, {})
        batch = [{**point, "model_id": "m-2", "dataset_name": ""}, point]
        assert script.post("/log-batch", run_id="job-1", metrics=batch) == (200, {})
        status, _ = script.post("/log-metric", run_id="job-1", **{**point, "model_id": 3})
        assert status == 400
        assert relay.finish(60.0)
    expected = {"kind": "metric", "run": "job-1", **point}
    assert server.history[0] == [{**expected, **model}, {**expected, "model_id": "m-2"}, expected]


def test_a_server_that_only_fails_is_not_waited_for_for_ever(
    server: MlflowStub, tmp_path: Path
) -> None:
    server.refuse = lambda *_: (500, {})
    relay = relay_of(server, tmp_path, failing_limit_s=0.0)
    with Script(relay.start()) as script:
        script.metric(1)
    assert not relay.finish(3600.0)
    assert relay.left == 1
    server.refuse = lambda *_: None
    assert relay_of(server, tmp_path).finish(60.0)
    assert json.dumps(steps(server)) == "[1]"
