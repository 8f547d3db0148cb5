"""Refusals in MLflow's words, and ids and histories as its clients expect them."""

from __future__ import annotations

from typing import Any

from mlflow.mlflow_server import Server, add_job
from torchyard.jobs import actions

REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("experiments/create", {"name": 123}, "Invalid value 123 for parameter 'name' supplied"),
    ("experiments/create", {}, "Missing value for required parameter 'name'."),
    ("experiments/create", {"name": ""}, "Missing value for required parameter 'name'."),
    (
        "experiments/create",
        {"name": "n", "artifact_location": 9.0},
        "Invalid value 9.0 for parameter 'artifact_location'",
    ),
    ("experiments/create", {"name": "n", "tags": "5"}, 'Invalid value "5" for parameter'),
    (
        "experiments/create",
        {"name": "n", "artifact_location": "file:///a/../b"},
        "must name a folder",
    ),
    ("runs/log-metric", {"run_id": 31}, "Invalid value 31 for parameter 'run_id' supplied"),
    ("runs/log-metric", {"key": 31}, "Invalid value 31 for parameter 'key' supplied"),
    (
        "runs/log-metric",
        {"key": "k", "value": 1, "timestamp": 1, "step": "foo"},
        "Invalid value \"foo\" for parameter 'step' supplied",
    ),
    ("runs/log-metric", {"key": None}, "Missing value for required parameter 'key'"),
    ("runs/log-parameter", {"key": "k", "value": 4}, "Invalid value 4 for parameter 'value'"),
    ("runs/log-batch", {"params": "foo"}, "Invalid value \"foo\" for parameter 'params'"),
    (
        "runs/log-batch",
        {"metrics": [{"key": "k", "value": 1}]},
        "Missing value for required parameter 'metrics[0].timestamp'",
    ),
    ("runs/log-inputs", {"datasets": "foo"}, "Invalid value \"foo\" for parameter 'datasets'"),
    ("runs/log-inputs", {"datasets": [{}]}, "parameter 'datasets[0].dataset'"),
    (
        "runs/log-batch",
        {"params": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]},
        "Duplicate parameter keys have been submitted",
    ),
    ("runs/update", {"status": "DONE"}, "Invalid value \"DONE\" for parameter 'status'"),
    (
        "runs/search",
        {"max_results": 123456789},
        "Invalid value 123456789 for parameter 'max_results' supplied",
    ),
    ("runs/search", {"filter": "color.a = 'b'"}, "Invalid entity type 'color'"),
    ("runs/search", {"filter": "attributes.a = 'b'"}, "Invalid attribute key 'a' specified"),
    ("runs/search", {"run_view_type": "SOME"}, 'Invalid value "SOME" for parameter'),
)


def test_invalid_requests_are_refused_in_mlflows_words(server: Server) -> None:
    run_id = server.new_run()
    for path, fields, words in REFUSED:
        body = server.post(path, expect=400, **{"run_id": run_id, **fields})
        assert body["error_code"] == "INVALID_PARAMETER_VALUE"
        assert words in body["message"], (path, fields)


def test_a_deleted_run_cannot_be_changed(server: Server) -> None:
    run_id = server.new_run()
    server.post("runs/delete", run_id=run_id)
    for path, fields in (
        ("runs/set-tag", {"key": "k", "value": "v"}),
        ("runs/delete-tag", {"key": "k"}),
        ("runs/log-parameter", {"key": "k", "value": "v"}),
        ("runs/update", {"status": "FINISHED"}),
    ):
        body = server.post(path, expect=400, run_id=run_id, **fields)
        assert f"The run {run_id} must be in the 'active' state" in body["message"]


def test_a_repeated_request_creates_one_run(server: Server) -> None:
    def create(request: str, workspace: str = "default") -> str:
        response = server.request(
            "POST",
            f"/mlflow/{workspace}/api/2.0/mlflow/runs/create",
            json={"experiment_id": "0"},
            extra_headers={"X-Torchyard-Request": request},
        )
        assert response.status_code == 200, response.text
        run_id: str = response.json()["run"]["info"]["run_id"]
        return run_id

    first = create("request-1")
    assert create("request-1") == first
    assert create("request-2") != first
    assert create("request-1", "vision") != first
    assert len(server.post("runs/search", experiment_ids=["0"])["runs"]) == 2
    run = server.get("runs/get", run_id=first)["run"]
    assert "request-1" not in str(run["data"])


def test_the_name_tag_renames_the_run(server: Server) -> None:
    run_id = server.new_run(run_name="old")
    batch = [{"key": "mlflow.runName", "value": "by batch"}]
    server.post("runs/log-batch", run_id=run_id, tags=batch)
    assert actions.get(server.services, "default", run_id).display_name == "by batch"
    server.post("runs/set-tag", run_id=run_id, key="mlflow.runName", value="by tag")
    assert actions.get(server.services, "default", run_id).display_name == "by tag"
    info = server.get("runs/get", run_id=run_id)["run"]["info"]
    assert info["run_name"] == "by tag"


def test_an_experiment_can_have_its_own_artifact_location(server: Server) -> None:
    created = server.post("experiments/create", name="far", artifact_location="s3://bucket/x/")
    experiment = server.get("experiments/get", experiment_id=created["experiment_id"])["experiment"]
    assert experiment["artifact_location"] == "s3://bucket/x/"
    run = server.post("runs/create", experiment_id=created["experiment_id"])["run"]["info"]
    assert run["artifact_uri"] == f"s3://bucket/x/{run['run_id']}/artifacts"
    uri = f"artifact_uri = '{run['artifact_uri']}'"
    result = server.post("runs/search", experiment_ids=[created["experiment_id"]], filter=uri)
    assert len(result["runs"]) == 1


def test_histories_of_several_runs_can_be_limited_sampled_and_bounded(server: Server) -> None:
    ids = sorted(server.new_run() for _ in range(2))
    for factor, run_id in enumerate(ids, 1):
        points = [
            {"key": "m", "value": step * factor, "timestamp": 100 - step, "step": step}
            for step in range(10 * factor)
        ]
        server.post("runs/log-batch", run_id=run_id, metrics=points)

    def bulk(**fields: Any) -> list[dict[str, Any]]:
        path = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
        response = server.request("GET", path, params={"run_id": ids, "metric_key": "m", **fields})
        assert response.status_code == 200, response.text
        points: list[dict[str, Any]] = response.json()["metrics"]
        return points

    metrics = bulk()
    assert [item["run_id"] for item in metrics] == [ids[0]] * 10 + [ids[1]] * 20
    assert [item["step"] for item in metrics[:10]] == list(range(9, -1, -1))
    assert len(bulk(max_results=12)) == 12
    sampled = server.get(
        "metrics/get-history-bulk-interval", run_ids=ids, metric_key="m", max_results=5
    )["metrics"]
    steps = {
        run_id: [item["step"] for item in sampled if item["run_id"] == run_id] for run_id in ids
    }
    assert steps == {ids[0]: [0, 2, 4, 6, 9], ids[1]: [0, 4, 8, 12, 19]}
    bounded = server.get(
        "metrics/get-history-bulk-interval",
        run_ids=ids,
        metric_key="m",
        start_step=3,
        end_step=5,
    )["metrics"]
    assert [item["step"] for item in bounded] == [3, 4, 5, 3, 4, 5]


INVALID_HISTORY_REQUESTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("get-history-bulk", {"metric_key": "m"}, "must specify at least one run_id"),
    ("get-history-bulk", {"run_id": "a"}, "must specify a metric_key"),
    ("get-history-bulk", {"run_id": ["a"] * 101, "metric_key": "m"}, "more than 100"),
    ("get-history-bulk-interval", {"metric_key": "m"}, "required parameter 'run_ids'"),
    ("get-history-bulk-interval", {"run_ids": "a"}, "required parameter 'metric_key'"),
    (
        "get-history-bulk-interval",
        {"run_ids": "a", "metric_key": "m", "max_results": 0},
        "max_results must be between 1 and 2500",
    ),
    (
        "get-history-bulk-interval",
        {"run_ids": "a", "metric_key": "m", "start_step": 1},
        "both must be specified",
    ),
    (
        "get-history-bulk-interval",
        {"run_ids": "a", "metric_key": "m", "start_step": 1, "end_step": 0},
        "end_step must be greater than start_step",
    ),
)


def test_invalid_history_requests_are_refused(server: Server) -> None:
    for path, fields, words in INVALID_HISTORY_REQUESTS:
        body = server.get(f"metrics/{path}", expect=400, **fields)
        assert words in body["message"], (path, fields)


def test_the_default_experiment_has_id_0_in_every_response(server: Server) -> None:
    other = server.post("experiments/create", name="other")["experiment_id"]
    run_id = server.new_run()
    default = server.get("experiments/get-by-name", experiment_name="Default")["experiment"]
    assert default["experiment_id"] == "0"
    number = default["artifact_location"].removeprefix("mlflow-artifacts:/")
    assert number not in ("0", other)
    for experiment_id_sent in ("0", number):
        experiment = server.get("experiments/get", experiment_id=experiment_id_sent)["experiment"]
        assert experiment == default
        runs = server.post("runs/search", experiment_ids=[experiment_id_sent])["runs"]
        assert [item["info"]["run_id"] for item in runs] == [run_id]
        assert runs[0]["info"]["experiment_id"] == "0"
        model = server.post("logged-models", experiment_id=experiment_id_sent, name="m")["model"]
        assert model["info"]["experiment_id"] == "0"
        dataset = {"name": "iris", "digest": "1", "source_type": "t", "source": "s"}
        server.post("runs/log-inputs", run_id=run_id, datasets=[{"dataset": dataset}])
        datasets = server.post("experiments/search-datasets", experiment_ids=[experiment_id_sent])
        assert [item["experiment_id"] for item in datasets["dataset_summaries"]] == ["0"]
        by_id = server.post("experiments/search", filter=f"experiment_id = '{experiment_id_sent}'")
        assert by_id["experiments"] == [default]
    experiments = server.post("experiments/search")["experiments"]
    assert {item["experiment_id"] for item in experiments} == {other, "0"}
    other_run = server.post("runs/create", experiment_id=other)["run"]["info"]
    assert other_run["experiment_id"] == other
    for info in (
        server.get("runs/get", run_id=run_id)["run"]["info"],
        server.post("runs/update", run_id=run_id, status="FINISHED")["run_info"],
    ):
        assert info["experiment_id"] == "0"
    models = server.post("logged-models/search", experiment_ids=["0", number])["models"]
    assert [item["info"]["experiment_id"] for item in models] == ["0", "0"]
    # Both URIs name the same files.
    root = runs[0]["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/")
    for path in (root, root.replace(f"{number}/", "0/", 1)):
        put = server.request("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{path}/f", content=b"1")
        assert put.status_code == 200
    assert len(server.get("artifacts/list", run_id=run_id)["files"]) == 1


def test_a_jobs_script_reads_the_experiment_number_of_its_environment(server: Server) -> None:
    location = server.get("experiments/get", experiment_id="0")["experiment"]["artifact_location"]
    number = location.removeprefix("mlflow-artifacts:/")
    add_job(server, "default", "lucky_job", int(number))
    options: dict[str, Any] = {"token": "yard_r_job"}
    run = server.get("runs/get", run_id="lucky_job", **options)["run"]["info"]
    assert run["experiment_id"] == number
    for experiment_id in ("0", number):
        experiment = server.get("experiments/get", experiment_id=experiment_id, **options)[
            "experiment"
        ]
        assert experiment["experiment_id"] == number
    by_name = server.get("experiments/get-by-name", experiment_name="Default", **options)
    assert by_name["experiment"]["experiment_id"] == number


def test_a_renamed_default_experiment_has_its_number(server: Server) -> None:
    location = server.get("experiments/get", experiment_id="0")["experiment"]["artifact_location"]
    number = location.removeprefix("mlflow-artifacts:/")
    server.post("experiments/update", experiment_id="0", new_name="first")
    experiment = server.get("experiments/get", experiment_id=number)["experiment"]
    assert (experiment["experiment_id"], experiment["name"]) == (number, "first")
    new_id = server.post("experiments/create", name="Default")["experiment_id"]
    assert new_id == "0"
    assert server.get("experiments/get", experiment_id="0")["experiment"]["name"] == "Default"
