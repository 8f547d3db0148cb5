"""Metrics of deployments as Prometheus' own parser reads them."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from torchyard.app.monitoring import exposition
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.endpoints.records import counts, store
from torchyard.endpoints.records.types import Instance, InstanceState
from torchyard.endpoints.router import control
from torchyard.endpoints.router.statistics import Counters
from workspaces.served import HERE, Served, served

METRICS = f"{HERE}/endpoint-metrics"
SCRIPT = b"def init(): ...\ndef run(raw_data): return raw_data\n"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        yield made


@contextmanager
def fake_router(site: Served, endpoints: dict[str, Any]) -> Iterator[None]:
    """Answers every question at the control socket with these statistics."""
    folder = site.parts.services.home / counts.FOLDER
    folder.mkdir(exist_ok=True)
    before = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(folder)  # a socket's path is short
        try:
            listener.bind(control.SOCKET)
        finally:
            os.chdir(before)
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as reader:
                    reader.readline()
                    connection.sendall(json.dumps({"endpoints": endpoints}).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def statistics(**more: Any) -> dict[str, Any]:
    counters = Counters()
    for _ in range(90):
        counters.answered(200, 0.004)
    for _ in range(10):
        counters.answered(424, 0.250)
    counters.refused(429)
    return {"deployments": {"blue": {**vars(counters), "in_flight": {"a": 2}, "queued": 3, **more}}}


def scraped(site: Served, who: str = "dan") -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = site.ask(who, "GET", METRICS)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == exposition.CONTENT_TYPE
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_requests_latencies_and_load_are_given_by_deployment(site: Served) -> None:
    both = {"default/birds": statistics(), "hidden/secret": statistics()}
    with fake_router(site, both):
        samples = scraped(site)
    assert "hidden" not in str(samples) and "secret" not in str(samples)

    def value(name: str, **labels: str) -> float:
        deployment_labels = {"endpoint": "birds", "deployment": "blue"}
        return samples[
            f"torchyard_endpoint_{name}", frozenset({**deployment_labels, **labels}.items())
        ]

    assert value("requests_total", status="2xx") == 90
    assert value("requests_total", status="4xx") == 11
    assert value("refusals_total", status="429") == 1
    duration = "request_duration_seconds"
    assert value(f"{duration}_bucket", le="0.005") == 90
    assert value(f"{duration}_bucket", le="0.3") == 100
    assert value(f"{duration}_bucket", le="+Inf") == value(f"{duration}_count") == 100
    assert value(f"{duration}_sum") == pytest.approx(90 * 0.004 + 10 * 0.25)
    assert (value("requests_in_flight"), value("requests_queued")) == (2, 3)


def test_without_a_router_there_are_no_numbers_and_no_error(site: Served) -> None:
    assert scraped(site) == {}


def test_instances_are_counted_by_state(site: Served) -> None:
    blobs, services = site.parts.services.blobs.of("default"), site.parts.services
    file = {"path": "score.py", "sha256": blobs.put_bytes(SCRIPT), "size": len(SCRIPT)}
    code = f"{SNAPSHOT_PREFIX}{blobs.put_snapshot({'files': [file]}).id}"
    site.ok("dan", "PUT", f"{HERE}/online-endpoints/birds", {})
    document = {
        "code_configuration": {"code": code, "scoring_script": "score.py"},
        "environment": "python",
    }
    site.ok("dan", "PUT", f"{HERE}/online-endpoints/birds/deployments/blue", document)
    now = services.clock.now()
    with services.db.write() as connection:
        for number, state in enumerate((InstanceState.READY, InstanceState.READY)):
            key = ("default", "birds", "blue", 1, number, f"job-{number}")
            store.put_instance(connection, Instance(*key, state, "", "", now))
    labels = {"endpoint": "birds", "deployment": "blue", "state": InstanceState.READY.value}
    assert scraped(site)["torchyard_endpoint_instances", frozenset(labels.items())] == 2


def test_who_may_read_the_workspace_may_read_them(site: Served) -> None:
    assert scraped(site, "rita") == {}
    assert site.client.get(METRICS).status_code == 401
    site.add("nobody", None)
    assert site.ask("nobody", "GET", METRICS).status_code in (403, 404)
