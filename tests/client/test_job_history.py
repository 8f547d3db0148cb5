"""What jobs logged, through the Python SDK and the real server."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.real_server import RealServer
from postgres_server import NewDatabase
from torchyard import Client
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.client.job_history import MetricPoint, flat

ODD = 'val/acc @5 % "größte" -x'
API = "/mlflow/default/api/2.0/mlflow"


@pytest.fixture(scope="module")
def client(new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    home = tmp_path_factory.mktemp("server")
    server = RealServer(home, database=new_database(home))
    with server.client() as made:
        yield made
    server.stop()


@pytest.fixture(scope="module")
def name(client: Client) -> str:
    """`lr` once, `loss` at ten steps and step 3 twice, as in a run that was resumed."""
    call = client.transport.post
    number = call(f"{API}/experiments/create", {"name": "digits"})["experiment_id"]
    made = call(f"{API}/runs/create", {"experiment_id": number, "start_time": 1000})
    run: str = made["run"]["info"]["run_id"]
    points = [("loss", 1 / (step + 1), step, 60_000 * step) for step in range(10)]
    points += [("loss", 7.0, 3, 700_000), ("lr", 0.1, 0, 5), (ODD, math.nan, 4, 5)]
    points += [(ODD, math.inf, 5, 6)]
    metrics = [
        {"key": k, "value": str(v).replace("nan", "NaN").replace("inf", "Infinity")
         if not math.isfinite(v) else v, "step": s, "timestamp": t}
        for k, v, s, t in points
    ]  # fmt: skip
    params = [{"key": "batch", "value": "64"}]
    call(f"{API}/runs/log-batch", {"run_id": run, "metrics": metrics, "params": params})
    call(f"{API}/runs/update", {"run_id": run, "status": "FINISHED", "end_time": 5000})
    return run


def test_a_scalar_when_logged_once_and_a_list_when_several_times(client: Client, name: str) -> None:
    metrics = client.jobs.metric_values(name)
    assert metrics["lr"] == 0.1
    loss, odd = metrics["loss"], metrics[ODD]
    assert isinstance(loss, list) and isinstance(odd, list)
    assert loss == [1 / (step + 1) for step in range(10)] + [7.0]
    assert math.isnan(odd[0]) and odd[1] == math.inf
    assert list(client.jobs.metric_values(name, ["lr"])) == ["lr"]
    # A text is one key, one job, and not its letters.
    assert client.jobs.metric_values(name, "lr") == {"lr": 0.1}
    assert client.jobs.compare(name) == client.jobs.compare([name])
    assert client.jobs.get(name).last_metrics["lr"] == 0.1
    with pytest.raises(NotFound, match="no metric `los`"):
        client.jobs.metric_values(name, ["los"])


def test_points_keys_and_charts(client: Client, name: str) -> None:
    assert client.jobs.history(name, "loss", start=8)[0] == MetricPoint("loss", 8, 480_000, 1 / 9)
    assert len(client.jobs.history(name, "loss", offset=4, limit=3)) == 3
    late = client.jobs.history(name, "loss", x="time", start=600_000)
    assert [point.value for point in late] == [7.0]
    keys = {summary.key: summary for summary in client.jobs.metric_keys(name)}
    assert (keys["loss"].count, keys["loss"].max, keys["loss"].value) == (11, 7.0, 0.1)
    lines = client.jobs.chart(name, ["lr", ODD], width=10)
    assert lines[0].points == [(0, 0.1)] and math.isnan(lines[1].points[0][1])
    (few,) = client.jobs.chart([name], "loss", width=2)
    assert few.columns[0][1:] == (0.2, 7.0)


def test_tables_of_pandas(client: Client, name: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = client.jobs.history_frame(name)
    assert list(frame.columns) == ["key", "step", "timestamp", "value"] and len(frame) == 14
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    loss = frame[frame["key"] == "loss"]
    assert loss["value"].tolist() == client.jobs.metric_values(name)["loss"]
    assert loss["timestamp"].iloc[1] == pandas.Timestamp("1970-01-01T00:01:00Z")
    wide = client.jobs.metrics_frame(name)
    assert wide.index.tolist() == list(range(10)) and set(wide.columns) == {"loss", "lr", ODD}
    assert wide.loc[3, "loss"] == 7.0 and math.isnan(wide.loc[1, "lr"])
    assert wide.loc[5, ODD] == math.inf
    assert len(client.jobs.history_frame(name, ["lr"])) == 1
    job = client.jobs.get(name)
    assert job.metrics().equals(wide) and list(job.metrics(["lr"]).columns) == ["lr"]
    compared = client.jobs.compare_frame([name, name])
    assert compared.index.tolist() == [name, name]
    assert compared["params.batch"].tolist() == ["64", "64"]


def test_no_table_without_pandas(
    client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for ask in (client.jobs.history_frame, client.jobs.metrics_frame):
        with pytest.raises(InvalidInput, match="needs pandas") as caught:
            ask(name)
        assert caught.value.hint.startswith("`pip install pandas`")
    with pytest.raises(InvalidInput, match="needs pandas"):
        client.jobs.compare_frame([name])
    points = client.jobs.get(name).metrics(["loss"])
    assert isinstance(points, list) and len(points) == 11
    assert points[1] == MetricPoint("loss", 1, 60_000, 0.5)
    assert points == client.jobs.get(name).points("loss")


def test_export_and_delete(client: Client, name: str, tmp_path: Path) -> None:
    written = client.jobs.export(name, tmp_path / "points.csv", ["loss"])
    assert len(written.read_text().splitlines()) == 12
    with pytest.raises(InvalidInput, match="neither CSV nor Parquet"):
        client.jobs.export(name, tmp_path / "points.txt")
    run = client.transport.post(f"{API}/runs/create", {"experiment_id": "1", "start_time": 1})
    other: str = run["run"]["info"]["run_id"]
    client.jobs.cancel(other)
    assert client.jobs.delete(other) == [other]
    with pytest.raises(NotFound):
        client.jobs.get(other)


def test_a_job_as_names_and_values() -> None:
    job = {
        "name": "a",
        "status": "Completed",
        "started_at": "2026-01-01T10:00:00Z",
        "ended_at": "2026-01-01T10:00:12Z",
        "duration_s": 12.0,
        "params": {"lr": "0.1"},
        "metrics": {"loss": "NaN"},
        "tags": {"k": "v"},
        "environment_hash": "abc",
        "spec": {
            "name": "a",
            "command": "python train.py",
            "code": "snapshot:1",
            "environment": {"image": "x"},
            "inputs": {
                "data": {"type": "uri_file", "path": "azureml:digits:1"},
                "epochs": 3,
                "rate": {"type": "number", "value": 0.5},
            },
            "resources": {"instance_count": 2},
        },
    }
    rows = flat(job)
    assert math.isnan(rows.pop("metrics.loss"))
    assert rows == {
        "status": "Completed",
        "duration_s": 12.0,
        "params.lr": "0.1",
        "tags.k": "v",
        "environment_hash": "abc",
        "environment.image": "x",
        "command": "python train.py",
        "code": "snapshot:1",
        "inputs.data": "azureml:digits:1",
        "inputs.epochs": 3,
        "inputs.rate": 0.5,
        "resources.instance_count": 2,
    }
