"""A server goes on answering while every one of its text fields gets a hostile text."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from hostile_input import hostile_requests
from hostile_input.watched_server import running, watched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
# Texts for each field; 29 and 9 beginnings make 261, which takes an hour.
TEXTS_A_FIELD = int(os.environ.get("TORCHYARD_HOSTILE_TEXTS", "1"))
SIZE = 60_000
# Before parsers were linear, single requests took from 3 s to many minutes. The milliseconds are
# measured by benchmarks/hostile_text.py, on a quiet machine.
HEALTH_CEILING_S = 5.0
FIELDS = 400
# What this server does not serve, and a host that it can't reach.
REFUSALS = (501, 503)


def test_no_text_stops_the_server(tmp_path: Path) -> None:
    statuses: Counter[int] = Counter()
    failures = []
    with running(tmp_path / "home") as server, watched(server) as watch:
        openapi = server.get("/openapi.json")
        workspace = server.azure_workspace()
        texts = hostile_requests.requests(openapi, workspace, SIZE, TEXTS_A_FIELD)
        for request in (*hostile_requests.raw_requests(workspace), *texts):
            watch.field = request.field
            status, body = server.ask(request)
            statuses[status] += 1
            if status >= 500 and status not in REFUSALS:
                failures.append(f"{request.field}: {status} {body[:200]!r}")
        watch.field = ""
    print(f"{sum(statuses.values())} requests: {dict(statuses)}; /health {watch.longest_s:.3f} s")
    assert not failures, "\n".join(failures)
    assert sum(statuses.values()) >= FIELDS * TEXTS_A_FIELD
    assert watch.longest_s < HEALTH_CEILING_S, watch.longest_field
