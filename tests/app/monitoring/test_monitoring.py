"""/metrics as Prometheus' own parser reads it, and what the probes say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from torchyard import server
from torchyard.app import application
from torchyard.app.monitoring import exposition, requests
from torchyard.app.monitoring.exposition import Family, Sample
from torchyard.base.clock import FakeClock
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor
from workspaces.served import HERE, JOB, Served, served

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url, FakeClock()) as made:
        yield made


def scraped(site: Served, who: str = "home") -> Samples:
    answer = site.ask(who, "GET", "/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == exposition.CONTENT_TYPE
    return parsed(answer.text)


def parsed(text: str) -> Samples:
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("counter", "gauge", "histogram")
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, key
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_jobs_queue_and_nodes_are_counted(site: Served) -> None:
    for _ in range(3):
        site.ok("dan", "POST", f"{HERE}/jobs", JOB)
    before = scraped(site)
    assert value(before, "torchyard_jobs", status="NotStarted") == 3
    assert value(before, "torchyard_jobs", status="Completed") == 0
    assert value(before, "torchyard_queue_jobs") == 0
    services = site.parts.services
    with services.db.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET status = 'Queued', node_count = 2")
    assert isinstance(services.clock, FakeClock)
    services.clock.advance(90)
    after = scraped(site)
    assert value(after, "torchyard_queue_jobs") == 3
    assert value(after, "torchyard_queue_nodes") == 6
    assert value(after, "torchyard_queue_oldest_seconds") == pytest.approx(90, abs=1)
    assert value(after, "torchyard_nodes", state="maximum") == 4
    assert value(after, "torchyard_database_up") == 1


def test_requests_are_counted_by_group_and_status(site: Served) -> None:
    for _ in range(4):
        site.ask("dan", "GET", f"{HERE}/jobs/nothing")
    site.ask("dan", "GET", f"{HERE}/{'x' * 100}")
    samples = scraped(site)
    total = "torchyard_http_requests_total"
    assert value(samples, total, group="jobs", status="404") == 4
    assert value(samples, total, group="other", status="404") == 1
    # The scrape itself.
    in_progress = "torchyard_http_requests_in_progress"
    assert value(samples, in_progress, group="monitoring") == 1
    assert value(samples, in_progress, group="jobs") == 0
    took = "torchyard_http_request_duration_seconds"
    assert value(samples, f"{took}_count", group="jobs") == 4
    assert value(samples, f"{took}_bucket", group="jobs", le="+Inf") == 4
    assert 0 < value(samples, f"{took}_sum", group="jobs") < 60
    bounds = [*(exposition.number(bound) for bound in requests.BOUNDS_S), "+Inf"]
    buckets = [value(samples, f"{took}_bucket", group="jobs", le=bound) for bound in bounds]
    assert buckets == sorted(buckets)


def test_no_client_can_make_more_labels() -> None:
    paths = [f"/v1/{n}" for n in range(500)] + [f"/v1/workspaces/w{n}/p{n}" for n in range(500)]
    paths += [f"/{n}/{n}" for n in range(500)] + ["/", "//", "/v1", "/v1/", "/v1/workspaces/"]
    assert {requests.group_of(path) for path in paths} == {"other", "workspaces"}


def test_every_route_has_a_group_of_its_own(site: Served) -> None:
    app: Any = site.client.app
    paths = [path for path in app.openapi()["paths"] if path != "/openapi.json"]
    assert [path for path in paths if requests.group_of(path) == "other"] == []
    assert len({requests.group_of(path) for path in paths}) > 15


def test_metrics_name_nobody(site: Served) -> None:
    site.ok("home", "POST", "/v1/workspaces", {"name": "hidden-place"})
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "hidden-job"})
    text = site.ask("home", "GET", "/metrics").text
    assert "hidden" not in text and "default" not in text
    assert not any(f'"{name}"' in text for name in site.tokens)


def test_metrics_need_a_persons_token(site: Served) -> None:
    assert site.client.get("/metrics").status_code == 401
    site.add("prometheus", None)
    assert scraped(site, "prometheus")
    site.job_token("nothing", "olga")
    site.refused("job of olga", "GET", "/metrics")


def test_the_process_is_measured(site: Served) -> None:
    samples = scraped(site)
    assert value(samples, "process_resident_memory_bytes") > 20e6
    assert value(samples, "process_open_fds") > 3
    assert value(samples, "process_start_time_seconds") > 1.7e9
    assert value(samples, "torchyard_home_disk_free_bytes") > 0


def test_text_with_odd_characters_is_read_back() -> None:
    odd = 'a "quoted"\nline \\ back'
    family = Family("x_total", odd, "counter", (Sample(float("inf"), {"at": odd}),))
    assert parsed(exposition.text_of([family])) == {
        ("x_total", frozenset({("at", odd)})): float("inf")
    }


def test_a_server_that_does_not_schedule_is_not_ready(site: Served) -> None:
    answer = site.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "failing",
        "checks": {"database": "ok", "disk": "ok", "scheduler": "failing"},
    }
    assert site.client.get("/livez").status_code == 503


def test_a_running_server_is_live_and_ready(tmp_path: Path, database_url: str) -> None:
    parts = application.build(
        tmp_path, "http://127.0.0.1:1", os.environ, executor=FakeExecutor(), database=database_url
    )
    server.ensure_token(parts, Settings(tmp_path).token_file)
    with TestClient(application.create_app(parts)) as client:
        assert client.get("/livez").json() == {"status": "ok"}
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ok")
        assert ready.headers["cache-control"] == "no-store"


def test_a_database_that_does_not_answer_is_not_ready(tmp_path: Path) -> None:
    parts = application.build(tmp_path, "http://127.0.0.1:1", os.environ, executor=FakeExecutor())
    with TestClient(application.create_app(parts)) as client:
        # A server that is asked for the first time now.
        parts.services.db.close()
        database = tmp_path / "torchyard.db"
        while not database.is_dir():
            # The scheduler opens it again at any moment.
            for file in tmp_path.glob("*.db*"):
                file.unlink()
            with suppress(FileExistsError):
                database.mkdir()
        # It may hold one to the file that was there before.
        parts.services.db.close()
        answer = client.get("/readyz")
        assert answer.status_code == 503, answer.text
        assert answer.json()["checks"]["database"] == "failing"
        assert str(tmp_path) not in answer.text
        assert client.get("/livez").status_code == 200


def test_a_file_that_is_no_longer_a_database_is_not_ready(tmp_path: Path) -> None:
    parts = application.build(tmp_path, "http://127.0.0.1:1", os.environ, executor=FakeExecutor())
    # Without `with`: no scheduler reads it, so that nothing opens it before the probe.
    client = TestClient(application.create_app(parts))
    parts.services.db.close()
    (tmp_path / "torchyard.db").write_bytes(b"no longer a database" * 1000)
    answer = client.get("/readyz")
    assert answer.status_code == 503, answer.text
    assert answer.json()["checks"]["database"] == "failing"
