"""Whatever is sent to the native interface, the server answers, and never with a 5xx.

Requests are made from `/openapi.json` by schemathesis, which `make test-fuzz` installs.
TORCHYARD_FUZZ_EXAMPLES says how many a route; the default is for CI.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

schemathesis = pytest.importorskip("schemathesis", reason="`make test-fuzz` installs schemathesis")

from fuzz.api_under_fuzz import Api, make  # noqa: E402
from torchyard.endpoints.running.router_process import RouterProcess, ScoringAt  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.fuzz, pytest.mark.timeout(3600)]
EXAMPLES = int(os.environ.get("TORCHYARD_FUZZ_EXAMPLES", "15"))
# Names of jobs by the route that takes them: a stream of a job that goes on never ends.
_JOB = {"stream": "ended", "cancel": "ended"}
_OTHER_NAMES = {"/data/": "words", "/computes/": "local", "/datastores/": "workspaceblobstore"}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with tempfile.TemporaryDirectory() as home:
        made = make(Path(home))
        yield made
        # It outlives a server, and schemathesis runs one.
        RouterProcess(Path(home), ScoringAt()).stop()
        made.parts.services.db.close()


def test_no_request_makes_the_server_fail(api: Api) -> None:
    schema = schemathesis.openapi.from_asgi(
        "/openapi.json", api.app, headers={"Authorization": f"Bearer {api.person}"}
    )
    statuses: Counter[int] = Counter()
    failed: dict[str, str] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/tunnel"):
            continue  # a stream that ends with its node
        strategies = [
            operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode
        ]
        for strategy in strategies:
            _ask_often(api, strategy, statuses, failed)
    print(f"{sum(statuses.values())} requests of {len(schema)} routes: {dict(statuses)}")
    assert not failed, "\n".join(
        f"{failed_operation}: {message}" for failed_operation, message in failed.items()
    )
    assert statuses[200] > 100, "the names of things that exist are not used"


def _ask_often(api: Api, strategy: Any, statuses: Counter[int], failed: dict[str, str]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        derandomize="TORCHYARD_FUZZ_EXAMPLES" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def ask(case: Any) -> None:
        _name_what_exists(case, api)
        worker = case.path.startswith("/v1/attempts/")
        if case.query and "wait_s" in case.query:
            case.query["wait_s"] = _brief(case.query["wait_s"])
        headers = {"Authorization": f"Bearer {api.worker if worker else api.person}"}
        operation = f"{case.method} {case.path}"
        try:
            answer = case.call(headers=headers)
        except Exception as error:  # what the server answers with 500
            failed.setdefault(
                f"{operation}: {type(error).__name__}", f"{error!r:.300} {case.body!r:.300}"
            )
            statuses[500] += 1
            return
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            failed.setdefault(operation, f"{answer.text:.300} {case.body!r:.300}")

    # A route without parameters and body can't be asked wrongly.
    with suppress(Unsatisfiable):
        ask()


def _name_what_exists(case: Any, api: Api) -> None:
    """Three of four names are those of things that exist; the others stay as they were made up."""
    for key, value in (case.path_parameters or {}).items():
        if zlib.crc32(f"{value}".encode("utf-8", "surrogatepass")) % 4 == 0 and key != "attempt_id":
            if not (key == "name" and case.path.endswith("/stream")):
                continue
        existing = api.names.get(key)
        if key == "name":
            last = case.path.rpartition("/")[2]
            existing = next((name for part, name in _OTHER_NAMES.items() if part in case.path), "")
            existing = existing or _JOB.get(last, "running")
        if existing:
            case.path_parameters[key] = existing


def _brief(wait_s: Any) -> Any:
    """Long waits are allowed, and nothing that a test should do often."""
    return 0.1 if isinstance(wait_s, int | float) and wait_s > 0.1 else wait_s
