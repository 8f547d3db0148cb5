"""Jobs as HTML tables."""

from __future__ import annotations

from typing import Any

import pytest

from notebook.recorded_job import job_body
from torchyard.client.html.job_tables import job_table, jobs_table

PAGE = "https://yard.example/ui/workspaces/default/jobs/a"
HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(1)>"
ERROR = {"code": "rank_failed", "message": "rank 3 ended with 1", "hint": "see its log"}


def test_a_job_says_how_it_is_and_where_its_page_is() -> None:
    html = job_table(job_body("a", metrics={"loss": 0.123456789, "system/own": 50.0}), PAGE)
    assert "</span> Completed" in html and f"<a href='{PAGE}'" in html and ">a-display</a>" in html
    assert "loss <b>0.123457</b>, system/own <b>50</b>" in html
    assert "2026-01-01 10:00:00 UTC" in html and "spec" not in html


def test_a_failed_job_says_why_and_what_to_do() -> None:
    html = job_table(job_body("a", "Failed", error=ERROR), PAGE)
    assert "rank 3 ended with 1<br>see its log" in html


def test_jobs_have_the_columns_that_one_of_them_has() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        (job_body("a", metrics={"loss": 0.5}, inputs={"lr": 0.1}), PAGE),
        (job_body("b", "Failed", metrics={}, error=ERROR), PAGE),
    ]
    html = jobs_table(rows)
    for column in ("status", "name", "last loss", "inputs.lr", "error"):
        assert f">{column}</th>" in html, column
    assert ">params.lr</th>" in html and "ran for" not in html
    assert html.count("<tr>") == 3


def test_a_metric_called_status_is_not_the_status() -> None:
    html = jobs_table([(job_body("a", metrics={"status": 7.0}), PAGE)])
    assert "</span> Completed</td>" in html and ">last status</th>" in html


def test_many_jobs_are_cut() -> None:
    html = jobs_table([(job_body(f"job-{number}"), PAGE) for number in range(103)])
    assert html.count("<tr>") == 101 and "3 more jobs" in html


@pytest.mark.parametrize("value", [float("nan"), "NaN", None, True, [1], {"a": 1}])
def test_any_value_of_a_metric_is_shown(value: Any) -> None:
    assert "loss" in job_table(job_body("a", metrics={"loss": value}), PAGE)


def test_hostile_text_stays_text() -> None:
    hostile = job_body(
        HOSTILE,
        HOSTILE,
        display_name=HOSTILE,
        experiment_name=HOSTILE,
        compute=HOSTILE,
        created_at=HOSTILE,
        waiting=HOSTILE,
        metrics={HOSTILE: HOSTILE},
        params={HOSTILE: HOSTILE},
        error={"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE},
    )
    for html in (job_table(hostile, PAGE + HOSTILE), jobs_table([(hostile, PAGE + HOSTILE)])):
        assert "<script" not in html and "<img" not in html and "'\"" not in html


def test_only_addresses_of_http_are_links() -> None:
    assert "href" not in job_table(job_body("a"), "javascript:alert(1)")
