"""MLflow's interface, which is in no schema: its fields by name, with values of every kind."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz.api_under_fuzz import Api, make

pytestmark = [pytest.mark.slow, pytest.mark.fuzz, pytest.mark.timeout(3600)]
EXAMPLES = int(os.environ.get("TORCHYARD_FUZZ_EXAMPLES", "60"))
BASE = "/api/2.0/mlflow/"
POSTED = [
    *(f"experiments/{verb}" for verb in ("create", "search", "update", "delete", "restore",
      "set-experiment-tag", "delete-experiment-tag")),
    *(f"runs/{verb}" for verb in ("create", "update", "delete", "restore", "log-metric",
      "log-parameter", "log-batch", "set-tag", "delete-tag", "log-inputs", "log-model", "search")),
]  # fmt: skip
ASKED = [
    "experiments/get", "experiments/get-by-name", "experiments/search", "experiments/list",
    "runs/get", "metrics/get-history", "artifacts/list", "metrics/get-history-bulk-interval",
]  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-5, 5), st.integers(), st.sampled_from([2**63, -(2**63) - 1, 10**30]), st.floats()
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "0", "running", "-1", "1e999", "nan", "../../etc/passwd", "a\nb", "%00",
                     "metrics.x > 1", "tags.a LIKE '%'", "attributes.start_time DESC", "x" * 300]),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": TEXTS,
            "value": st.one_of(NUMBERS, TEXTS),
            "step": NUMBERS,
            "timestamp": NUMBERS,
        },
    ),
    max_size=4,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "run_id": st.one_of(st.just("running"), VALUES),
        "run_uuid": VALUES,
        "experiment_id": st.one_of(st.just("0"), st.just("1"), VALUES),
        "experiment_ids": st.one_of(st.just(["0", "1"]), VALUES),
        "name": VALUES,
        "experiment_name": VALUES,
        "new_name": VALUES,
        "key": VALUES,
        "metric_key": VALUES,
        "value": VALUES,
        "timestamp": VALUES,
        "step": VALUES,
        "start_time": VALUES,
        "end_time": VALUES,
        "status": st.one_of(st.sampled_from(["FINISHED", "RUNNING", "KILLED"]), VALUES),
        "run_name": VALUES,
        "tags": st.one_of(RECORDS, VALUES),
        "metrics": st.one_of(RECORDS, VALUES),
        "params": st.one_of(RECORDS, VALUES),
        "filter": VALUES,
        "order_by": st.one_of(st.lists(TEXTS, max_size=2), VALUES),
        "max_results": VALUES,
        "page_token": VALUES,
        "view_type": VALUES,
        "run_view_type": VALUES,
        "path": VALUES,
        "model_json": VALUES,
        "datasets": VALUES,
        "lifecycle_stage": VALUES,
    },
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    made = make(tmp_path_factory.mktemp("home"))
    yield made
    made.parts.services.db.close()


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[TestClient]:
    made = TestClient(api.app, raise_server_exceptions=False)
    made.headers["Authorization"] = f"Bearer {api.person}"
    yield made
    made.close()


T = TypeVar("T")


def _often(strategy: st.SearchStrategy[T]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    def wrap(ask: Callable[[T], None]) -> Callable[[], None]:
        bounded = settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            derandomize="TORCHYARD_FUZZ_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        )
        drawn: Callable[[], None] = given(strategy)(ask)
        return bounded(drawn)

    return wrap


@pytest.mark.parametrize("path", [*POSTED, *ASKED])
def test_no_fields_make_the_server_fail(path: str, client: TestClient) -> None:
    statuses: Counter[int] = Counter()
    failed: list[Any] = []

    @_often(FIELDS)
    def ask(fields: dict[str, Any]) -> None:
        if path in POSTED:
            import json

            answer = client.post(BASE + path, content=json.dumps(fields).encode())
        else:
            shown = {key: value for key, value in fields.items() if isinstance(value, str | int)}
            answer = client.get(BASE + path, params=shown)
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            failed.append((answer.text[:200], fields))
        elif answer.status_code >= 400:
            assert "error_code" in answer.json(), answer.text

    ask()
    print(path, dict(statuses))
    assert not failed, failed[:3]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_no_artifact_path_makes_the_server_fail(
    method: str, client: TestClient, tmp_path: Path
) -> None:
    failed: list[Any] = []
    parts = st.sampled_from(["..", ".", "a", "%2e%2e", "%2f", "%5c", "é", " ", "x" * 300, "%00"])

    @_often(st.lists(parts, max_size=6))
    def ask(below: list[str]) -> None:
        path = f"/api/2.0/mlflow-artifacts/artifacts/1/running/artifacts/{'/'.join(below)}"
        answer = client.request(method, path, content=b"x" if method == "PUT" else None)
        if answer.status_code >= 500:
            failed.append((answer.text[:200], path))

    ask()
    assert not failed, failed[:3]
