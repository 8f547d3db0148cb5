"""Rates and quantiles of what the router counted between two looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchyard.endpoints.records.counts import Counts, read
from torchyard.endpoints.router.statistics import BUCKETS_MS, Counters
from torchyard.endpoints.running.measuring import EVERY_S, Measurements, quantile_ms

NAME = ("default", "birds", "blue")


def counted(*latencies_ms: float, status: int = 200, refused: int = 0) -> Counts:
    """As the router counts them, read as the server reads its answer."""
    counters = Counters()
    for latency_ms in latencies_ms:
        counters.answered(status, latency_ms / 1000)
    for _ in range(refused):
        counters.refused(429)
    return read({**vars(counters), "in_flight": {"blue-1-0": 2}, "queued": 1})


def test_a_measurement_is_of_what_came_since_the_last_one() -> None:
    measurements = Measurements()
    assert measurements.take(NAME, counted(1.0), 100.0) is None
    later = counted(*[1.0] * 1, *[4.0] * 60, refused=3)
    assert measurements.take(NAME, later, 100.0 + EVERY_S - 1) is None
    figures = measurements.take(NAME, later, 100.0 + EVERY_S)
    assert figures is not None
    assert (figures.requests, figures.errors) == (63, 3)
    assert figures.requests_per_s == pytest.approx(63 / EVERY_S)
    assert 3 < figures.latency_p50_ms < figures.latency_p99_ms <= 5


def test_without_requests_there_is_no_measurement() -> None:
    measurements = Measurements()
    for moment_s in (0.0, 50.0, 100.0):
        assert measurements.take(NAME, counted(1.0), moment_s) is None


def test_a_router_that_begins_at_0_again_loses_nothing_of_what_it_counted() -> None:
    measurements = Measurements()
    measurements.take(NAME, counted(*[1.0] * 500), 0.0)
    figures = measurements.take(NAME, counted(*[1.0] * 20), EVERY_S)
    assert figures is not None and figures.requests == 20


def test_a_deployment_that_is_gone_is_forgotten() -> None:
    measurements = Measurements()
    measurements.take(NAME, counted(*[1.0] * 5), 0.0)
    measurements.forget_others([])
    assert measurements.take(NAME, counted(*[1.0] * 9), EVERY_S) is None


@pytest.mark.parametrize(
    ("latencies_ms", "share", "low", "high"),
    [
        ([0.2] * 10, 0.5, 0.0, 0.5),
        ([0.2] * 90 + [250.0] * 10, 0.5, 0.0, 0.5),
        ([0.2] * 90 + [250.0] * 10, 0.99, 200.0, 300.0),
        ([400_000.0], 0.5, 300_000.0, 300_000.0),
        ([], 0.99, 0.0, 0.0),
    ],
)
def test_a_quantile_lies_in_the_bucket_of_its_request(
    latencies_ms: list[float], share: float, low: float, high: float
) -> None:
    assert low <= quantile_ms(counted(*latencies_ms).latency, share) <= high


@pytest.mark.parametrize("body", [{}, {"latency": [1, 2]}, {"requests": None, "in_flight": None}])
def test_a_router_of_another_version_says_nothing_wrong(body: dict[str, Any]) -> None:
    assert read(body) == replace(Counts(), latency=(0,) * (len(BUCKETS_MS) + 1))
