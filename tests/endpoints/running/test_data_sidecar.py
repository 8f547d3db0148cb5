"""What receives the posts of Azure's Collector within an instance."""

from __future__ import annotations

import http.client
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchyard.endpoints.router import collected_files
from torchyard.endpoints.running import programs

Post = Callable[..., int]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "kept").mkdir()
    return {
        "folder": str(tmp_path / "kept"),
        "source": "/endpoints/default/houses/deployments/blue",
        "rolling": "year",
        "max_bytes": 1 << 20,
        "collections": {"Features": 0.25, "model_inputs": 1.0},
    }


@pytest.fixture
def variables(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    # As in an instance, where all of them lie in one folder.
    monkeypatch.syspath_prepend(str(Path(collected_files.__file__).parent))
    monkeypatch.syspath_prepend(str(Path(programs.__file__).parent / "in_instance"))
    started: dict[str, str] = importlib.import_module("data_sidecar").start(settings, str(tmp_path))
    return started


@pytest.fixture
def post(variables: dict[str, str]) -> Post:
    def send(body: bytes, path: str = "/modeldata/log", **headers: str) -> int:
        port = int(variables["AZUREML_MDC_PORT"])
        connection = http.client.HTTPConnection(variables["AZUREML_MDC_HOST"], port, timeout=60)
        try:
            by_name = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("POST", path, body, {"Content-Type": "application/json", **by_name})
            return connection.getresponse().status
        finally:
            connection.close()

    return send


def lines(tmp_path: Path, collection: str) -> list[dict[str, Any]]:
    (file,) = (tmp_path / "kept" / collection).rglob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_package_reads_which_collections_are_enabled(variables: dict[str, str]) -> None:
    written = json.loads(Path(variables["AZUREML_MDC_CONFIG_PATH"]).read_text())
    assert written["collections"] == {
        "Features": {"enabled": True, "sampleRatePercentage": 25.0},
        "model_inputs": {"enabled": True, "sampleRatePercentage": 100.0},
    }


def test_a_post_is_a_line_of_its_collection(post: Post, tmp_path: Path) -> None:
    headers = {"trace_id": "t", "ce_x_request_id": "r", "ce_agent": "azureml-ai-monitoring/1.0.0"}
    assert post(b'[{"a": 1}]', ce_type="azureml.inference.features", **headers) == 200
    (event,) = lines(tmp_path, "Features")
    assert event["data"] == [{"a": 1}] and event["type"] == "azureml.inference.Features"
    assert (event["id"], event["correlationid"]) == ("t", "r")
    assert event["source"] == "/endpoints/default/houses/deployments/blue"
    assert event["agent"] == "azureml-ai-monitoring/1.0.0"


def test_hostile_posts_are_refused_or_kept_as_they_are(post: Post, tmp_path: Path) -> None:
    kind = "azureml.inference.model_inputs"
    assert post(b"{}", ce_type="azureml.inference.../../x") == 404
    assert post(b"{}") == 404
    assert post(b"{}", path="/other", ce_type=kind) == 404
    assert post(b"\xff\x00", ce_type=kind) == 200
    assert post(b"[" * 5000, ce_type=kind) == 200
    assert post(b"1" * ((1 << 20) + 1), ce_type=kind) == 200
    binary, deep, large = lines(tmp_path, "model_inputs")
    assert binary["data_base64"] == "/wA=" and "data_base64" in deep
    assert large["truncated"] and "data" not in large
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["model_inputs"]


def test_a_folder_that_can_not_be_written_is_said_once(
    post: Post, settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").rmdir()
    for _ in range(3):
        assert post(b"{}", ce_type="azureml.inference.model_inputs") == 507
    assert capsys.readouterr().err.count("collected data is dropped") == 1
