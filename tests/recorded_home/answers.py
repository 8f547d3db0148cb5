"""What the server of a recorded home answers, and what it answered when it was recorded.

Owns: which requests are asked, how two answers are compared.
Leaves: the home to home_as_text.py.
Always: nothing runs meanwhile and the clock stands, so that a home's answers are the same again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from recorded_home import home_as_text
from torchyard.app import application
from torchyard.base.clock import FakeClock
from torchyard.executors.fake import FakeExecutor

_FILE = "answers.json"
_HERE = "/v1/workspaces/default"
_MLFLOW = "/mlflow/default/api/2.0/mlflow"
_LISTS = (
    "batch-endpoints",
    "components",
    "computes",
    "data",
    "datastores",
    "environment-releases",
    "experiments",
    "instances",
    "jobs?archived=true",
    "models",
    "online-endpoints",
    "quota-requests",
    "quotas",
    "release-schedules",
)
_OF_A_JOB = ("", "/files", "/outputs", "/metrics", "/document", "/code")
_PATHS = (
    "/v1/workspaces",
    "/v1/users",
    "/v1/users/ann",
    "/v1/users/ann/tokens",
    f"{_HERE}/components/step/versions/1",
    f"{_HERE}/data/digits/versions/1",
    f"{_HERE}/data/digits/versions/2",
    f"{_HERE}/datastores/far",
    f"{_HERE}/environments/tools/versions/1",
    f"{_HERE}/models/weights/versions/1",
    f"{_HERE}/online-endpoints/sums",
    f"{_HERE}/online-endpoints/sums/deployments/blue",
    f"{_HERE}/batch-endpoints/many/deployments/nightly",
    f"{_HERE}/instances/anns-lab",
    f"{_HERE}/lineage/jobs/trained",
    f"{_HERE}/pipelines/steps/steps",
    f"{_HERE}/pipelines/steps-again/steps",
    f"{_HERE}/sweeps/swept/trials",
    f"{_MLFLOW}/registered-models/get?name=registered",
    *(
        f"{_MLFLOW}/metrics/get-history?run_id=trained&metric_key={key}&max_results=1000"
        for key in ("loss", "odd")
    ),
)

Answer = dict[str, Any]


def save(folder: Path) -> None:
    """Ask the home that is recorded in `folder`, and keep what it answers."""
    at = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as home:
        url = f"sqlite:///{home}/torchyard.db"
        home_as_text.restore(folder, Path(home), url)
        made: dict[str, Any] = {"at": at.isoformat(), "answers": ask(Path(home), url, at)}
    refused = [path for path, answer in made["answers"].items() if answer["status"] != 200]
    # A run outside any job has no job file.
    assert [path.rpartition("/")[2] for path in refused] == ["document"], refused
    (folder / _FILE).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def recorded(folder: Path) -> tuple[datetime, dict[str, Answer]]:
    """When they were recorded, and the answers by their path."""
    made = json.loads((folder / _FILE).read_text())
    return datetime.fromisoformat(made["at"]), made["answers"]


def ask(home: Path, url: str, at: datetime) -> dict[str, Answer]:
    """Every answer by its path: its status with its document, or the digest of its bytes."""
    parts = application.build(
        home,
        "http://127.0.0.1:1",
        {},
        clock=FakeClock(at),
        executor=FakeExecutor(),
        database=url,
    )
    token = (home / "token").read_text().strip()
    try:
        # Without `with`: no scheduler runs, and everything stays as it is.
        client = TestClient(application.create_app(parts), raise_server_exceptions=False)
        client.headers["Authorization"] = f"Bearer {token}"
        return dict(_asked(client, home))
    finally:
        client.close()
        parts.services.db.close()


def _asked(client: Any, home: Path) -> Iterator[tuple[str, Answer]]:
    for path in (*(f"{_HERE}/{name}" for name in _LISTS), *_PATHS):
        yield path, _answer(client, path, home)
    jobs = client.get(f"{_HERE}/jobs?archived=true&limit=100").json()["value"]
    for job in sorted(job["name"] for job in jobs):
        for path in (f"{_HERE}/jobs/{job}{below}" for below in _OF_A_JOB):
            yield path, _answer(client, path, home)
        yield from _files(client, job)


def _files(client: Any, job: str) -> Iterator[tuple[str, Answer]]:
    for file in client.get(f"{_HERE}/jobs/{job}/files").json()["value"]:
        path = f"{_HERE}/jobs/{job}/files/{file['path']}"
        answer = client.get(path)
        digest = hashlib.sha256(answer.content).hexdigest()
        yield path, {"status": answer.status_code, "sha256": digest}


def _answer(client: Any, path: str, home: Path) -> Answer:
    answer = client.get(path)
    text = answer.text.replace(str(home), "HOME")
    return {"status": answer.status_code, "document": json.loads(text)}


def difference(then: Any, now: Any, place: str = "") -> str:
    """Where an answer lacks what it had, empty for nowhere; a new key is no difference."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key, value in then.items():
            if key not in now:
                return f"{place}.{key} is gone"
            found = difference(value, now[key], f"{place}.{key}")
            if found:
                return found
        return ""
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        each = (difference(*pair, f"{place}[{at}]") for at, pair in pairs)
        return next((one for one in each if one), "")
    return "" if then == now else f"{place} was {then!r} and is {now!r}"
