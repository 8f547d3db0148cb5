"""One endpoint, asked by curl, `yard`, azure-ai-ml and SDK v1, as tools/run_sample_by_clients.py
asks the sklearn sample of azureml-examples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from job_operations import ENVIRONMENT
from yard_under_test import Yard

import run_sample_by_clients as by_clients

pytestmark = [pytest.mark.azure, pytest.mark.timeout(900)]

# As the sample's: a model that is read from `model/` below AZUREML_MODEL_DIR.
_BLUE = """
import json, os

def init():
    global weights
    with open(os.path.join(os.getenv("AZUREML_MODEL_DIR"), "model/weights.json")) as file:
        weights = json.load(file)

def run(raw_data):
    rows = json.loads(raw_data)["data"]
    return [sum(w * x for w, x in zip(weights, row)) for row in rows]
"""
_GREEN = "def init():\n    pass\n\ndef run(raw_data):\n    return [0.5, 0.5]\n"


@pytest.fixture
def sample(tmp_path: Path) -> by_clients.Sample:
    endpoint = "sample-of-four"
    for name, script in (("blue", _BLUE), ("green", _GREEN)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "score.py").write_text(script)
        document: dict[str, Any] = {
            "name": name,
            "endpoint_name": endpoint,
            "model": {"path": "./model"},
            "code_configuration": {"code": f"./{name}", "scoring_script": "score.py"},
            "environment": ENVIRONMENT,
            "instance_count": 1,
        }
        (tmp_path / f"{name}.yml").write_text(json.dumps(document))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.json").write_text("[0.1, 2.0, -3.5]")
    (tmp_path / "endpoint.yml").write_text(json.dumps({"name": endpoint, "auth_mode": "key"}))
    (tmp_path / "request.json").write_text('{"data": [[1, 2, 3], [3, 2, 1]]}')
    return by_clients.Sample(
        endpoint=tmp_path / "endpoint.yml",
        blue=tmp_path / "blue.yml",
        green=tmp_path / "green.yml",
        request=tmp_path / "request.json",
        model=tmp_path / "model",
        code=tmp_path / "blue",
        script="score.py",
        conda="",
        answers={
            "blue": [0.1 * 1 + 2.0 * 2 + -3.5 * 3, 0.1 * 3 + 2.0 * 2 + -3.5 * 1],
            "green": [0.5, 0.5],
        },
    )


def test_four_clients_get_the_same_answer_and_traffic_is_divided_exactly(
    yard: Yard, variables: Mapping[str, str], sample: by_clients.Sample, tmp_path: Path
) -> None:
    yard("workspace", "config", "--path", str(tmp_path))
    config = tmp_path / ".azureml" / "config.json"

    def ask(*words: str) -> Any:
        return json.loads(yard(*words, "-o", "json"))

    try:
        rows = dict(by_clients.run(ask, sample, variables, config))
    finally:
        yard("online-endpoint", "delete", "-n", "sample-of-four", "--yes")
    assert list(rows)[1:] == ["curl", "yard", "azure-ai-ml", "SDK v1, its own web service"]
