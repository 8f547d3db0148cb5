"""An online endpoint on nodes that the router reaches through their workers' tunnels alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from torchyard import Client

_SCORE = """
import json, os, socket
def init():
    global weight
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "weight.json")) as file:
        weight = json.load(file)
def run(raw_data):
    return {"instance": os.getppid(), "product": weight * json.loads(raw_data)["data"]}
"""
_NAME = "on-nodes"
_REQUESTS = 40


def check(client: Client, folder: Path, cluster: str = "local") -> None:
    """Two instances answer, each some requests; after the endpoint is deleted none runs."""
    (folder / "model").mkdir()
    (folder / "model" / "weight.json").write_text("3")
    (folder / "code").mkdir()
    (folder / "code" / "score.py").write_text(_SCORE)
    document: dict[str, Any] = {
        "name": "blue",
        "endpoint_name": _NAME,
        "model": {"path": "./model"},
        "code_configuration": {"code": "./code", "scoring_script": "score.py"},
        "environment": "python",
        "instance_count": 2,
        "torchyard": {"cluster": cluster},
    }
    client.online_endpoints.create({"name": _NAME})
    try:
        client.online_deployments.wait(client.online_deployments.create(document, folder))
        client.online_endpoints.update(_NAME, {"traffic": {"blue": 100}})
        answers = [
            client.online_endpoints.invoke(_NAME, {"data": number}).json()
            for number in range(_REQUESTS)
        ]
        assert [each["product"] for each in answers] == [3 * each for each in range(_REQUESTS)]
        instances = Counter(each["instance"] for each in answers)
        assert len(instances) == 2 and min(instances.values()) >= _REQUESTS // 4, instances
        logs = client.online_deployments.logs(_NAME, "blue")
        assert logs, "an instance's log comes from its node"
    finally:
        client.online_endpoints.delete(_NAME)
    there = [job.status for job in client.jobs.list() if job.name.startswith(_NAME)]
    assert len(there) == 2 and all(status == "Canceled" for status in there), there
