"""One real step of the tools beside training: logs, records, messages, tests, Spark.

Always: a package is imported inside the step of its own component only; numbers are asserted.
"""

from __future__ import annotations

import os
import subprocess
import sys


def tensorboard() -> str:
    """Write scalars by torch's writer and read them back by TensorBoard's reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter("events") as writer:
        for step in range(3):
            writer.add_scalar("loss", 1.0 / (step + 1), step)
    events = EventAccumulator("events")
    events.Reload()
    values = [round(event.value, 3) for event in events.Scalars("loss")]
    assert values == [1.0, 0.5, 0.333], values
    return f"wrote 3 scalars, read {values}"


def protobuf() -> str:
    """Write a message to bytes and read it back."""
    from google.protobuf import struct_pb2

    message = struct_pb2.Struct()
    message.update({"name": "torch", "numbers": [1, 2, 3]})
    data = message.SerializeToString()
    again = struct_pb2.Struct()
    again.ParseFromString(data)
    assert again == message and list(again["numbers"]) == [1, 2, 3]
    return f"a Struct of {len(data)} bytes, read back equal"


def pytest() -> str:
    """Run a file with a test that passes and one that fails."""
    with open("test_sample.py", "w") as file:
        file.write("def test_right(): assert 1 + 1 == 2\ndef test_wrong(): assert 1 + 1 == 3\n")
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sample.py"],
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "1 failed, 1 passed" in outcome.stdout, outcome.stdout
    return "a file of two tests: 1 failed, 1 passed, as written"


def mlflow() -> str:
    """Log a parameter and a metric to files and to a database, and read them back."""
    import pathlib

    import mlflow

    for uri in (pathlib.Path("runs").absolute().as_uri(), "sqlite:///runs.db"):
        mlflow.set_tracking_uri(uri)
        with mlflow.start_run() as run:
            mlflow.log_param("rate", 0.1)
            mlflow.log_metric("loss", 0.5, step=1)
            mlflow.log_metric("loss", 0.25, step=2)
        client = mlflow.tracking.MlflowClient()
        history = [point.value for point in client.get_metric_history(run.info.run_id, "loss")]
        data = client.get_run(run.info.run_id).data
        assert data.params == {"rate": "0.1"} and sorted(history) == [0.25, 0.5], (data, history)
    return "logged to files and to SQLite, read loss [0.5, 0.25] and rate 0.1"


def pyspark() -> str:
    """Sum a column in a local session, which needs a Java machine."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    try:
        total = session.range(1, 101).selectExpr("sum(id)").collect()[0][0]
    finally:
        session.stop()
    assert total == 5050, total
    return "a local session sums 1 to 100: 5050"
