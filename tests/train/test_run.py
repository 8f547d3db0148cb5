"""The run as a script sees it, with a job around it and without; torch is not needed."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from torchyard.train import run


@pytest.fixture(autouse=True)
def _new_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TORCHYARD_RELAY", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "_state", {"step": 0, "resumed_from": None})
    monkeypatch.setattr(run, "_has_said", False)
    monkeypatch.setattr(run, "_connection", None)


class Relay(HTTPServer):
    """Answers as the relay in a job does; HTTP/1.0, so each connection ends with its answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[str, str, dict[str, Any]]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Relay

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    with Relay() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("TORCHYARD_RELAY", server.url)
        monkeypatch.setenv("MLFLOW_RUN_ID", "digits")
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "token")
        yield server
        server.shutdown()
        thread.join()


def test_steps_are_counted() -> None:
    assert (run.step, run.resumed_from) == (0, None)
    assert run.next_step() == 1
    run.set_step(7)
    assert run.next_step() == run.step == 8
    with pytest.raises(ValueError, match="`step` must be an integer >= 0, not -1"):
        run.set_step(-1)


def test_the_checkpoint_that_was_loaded_first_is_where_it_was_resumed() -> None:
    run.set_resumed(40)
    assert (run.step, run.resumed_from) == (40, 40)
    run.set_resumed(10)
    assert run.resumed_from == 40


def test_without_a_platform_metrics_go_to_a_file() -> None:
    run.set_step(3)
    run.log({"loss": 0.5, "odd": math.nan})
    run.log({"loss": 0.25}, step=4)
    run.log_params({"lr": 0.1})
    lines = [json.loads(line) for line in Path("outputs/metrics.jsonl").read_text().splitlines()]
    assert [(line["key"], line.get("value"), line.get("step")) for line in lines] == [
        ("loss", 0.5, 3), ("odd", "NaN", 3), ("loss", 0.25, 4), ("lr", "0.1", None),
    ]  # fmt: skip


def test_in_a_job_metrics_and_parameters_are_the_jobs(relay: Relay) -> None:
    run.log({"loss": 0.5}, step=2)
    run.log_params({"lr": 0.1})
    (path, token, metrics), (_, _, params) = relay.received
    assert (path, token) == ("/api/2.0/mlflow/runs/log-batch", "Bearer token")
    assert metrics["run_id"] == "digits" and not Path("outputs").exists()
    (point,) = metrics["metrics"]
    assert (point["key"], point["value"], point["step"]) == ("loss", 0.5, 2)
    assert params["params"] == [{"key": "lr", "value": "0.1"}]


def test_a_job_that_refuses_or_is_gone_is_said_once(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    relay.status = 400
    run.log({"loss": 1})
    run.log({"loss": 2})
    assert caplog.text.count("the job refused what was logged: {}") == 1
    monkeypatch.setattr(run, "_has_said", False)
    monkeypatch.setattr(run, "_connection", None)
    monkeypatch.setenv("TORCHYARD_RELAY", "http://127.0.0.1:1")
    run.log({"loss": 3})
    run.log({"loss": 4})
    assert caplog.text.count("metrics can't be logged") == 1


def test_other_ranks_log_nothing(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of torchrun; of Lightning's own launcher; of a node without a launcher.
    for name in ("RANK", "LOCAL_RANK", "TORCHYARD_RANK"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            run.log({"loss": 1})
            run.log_params({"lr": 1})
    assert relay.received == []


def test_a_value_that_is_no_number_is_named(relay: Relay) -> None:
    with pytest.raises(ValueError, match="metric `loss` must be a number, not 'low'"):
        run.log({"fine": 1, "loss": "low"})  # type: ignore[dict-item]
    assert relay.received == []


def test_artifacts_are_copied_into_the_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZUREML_OUTPUT_DIRECTORY", str(tmp_path / "job"))
    Path("plot.png").write_bytes(b"png")
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "folder/inner/file").write_text("x")
    assert run.log_artifact("plot.png") == tmp_path / "job/plot.png"
    assert run.log_artifact("plot.png", "plots/first.png").read_bytes() == b"png"
    assert (run.log_artifact(tmp_path / "folder") / "inner/file").read_text() == "x"
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == [
        "folder", "plot.png", "plots",
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"`name` must be a path below the outputs"):
        run.log_artifact("plot.png", "../plot.png")


def test_the_guides_script_runs_without_a_platform(tmp_path: Path) -> None:
    root = Path(run.__file__).parents[3]
    guide = (root / "docs/guides/checkpoints.md").read_text()
    (script,) = re.findall(
        r"```python\n(from torchyard\.train import run\n.*?)```", guide, re.DOTALL
    )
    subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
    )  # fmt: skip
    assert (tmp_path / "outputs/summary.txt").read_text() == "steps 0 to 20"
    lines = (tmp_path / "outputs/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines[2:]] == list(range(1, 21))


def test_it_imports_nothing_that_is_slow_to_load() -> None:
    script = (
        "import sys; from torchyard.train import run; run.next_step(); assert not run.should_stop()"
        "; slow = {'torch', 'numpy', 'mlflow', 'pydantic', 'sqlalchemy'} & set(sys.modules)"
        "; assert not slow, slow"
    )
    source = Path(run.__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(source)},
    )  # fmt: skip
