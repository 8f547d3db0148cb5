"""What a notebook's cell shows of a job."""

from __future__ import annotations

import json

import pytest

from notebook.recorded_job import RecordedJob
from torchyard.base.errors import NotFound
from torchyard.notebook.view import ViewReader, last_lines


def test_a_view_is_json_as_notebooks_take_it() -> None:
    job = RecordedJob(metrics={"loss": float("nan")})
    job.points["loss"] = [1.0, float("inf"), float("nan")]
    view = job.view()
    shown = json.dumps([view.job, view.charts, view.log, view.metrics], allow_nan=False)
    assert '"Infinity"' in shown and view.metrics == {"loss": "NaN"}
    assert view.job["page"].endswith("/jobs/brave-otter") and not view.has_ended


def test_charts_are_read_again_only_when_there_are_new_points() -> None:
    job = RecordedJob()
    job.points["loss"] = [1.0]
    reader = ViewReader(job, "brave-otter")
    reader.read()
    reader.read()
    assert job.requests.count("chart") == 1
    job.points["loss"].append(1.0)
    assert reader.read().charts["lines"][0]["count"] == 2
    assert job.requests.count("chart") == 2


def test_the_25th_metric_has_no_chart() -> None:
    job = RecordedJob()
    job.points = {f"metric-{number}": [1.0] for number in range(30)} | {"system/own": [1.0]}
    charts = job.view().charts
    assert len(charts["lines"]) == 24 and charts["left_out"] == 7


def test_the_log_is_that_of_the_failed_rank_else_of_the_first_that_wrote() -> None:
    job = RecordedJob()
    job.logs = {
        "outputs/model.pt": b"weights",
        "user_logs/std_log_process_0.txt": b"",
        "user_logs/std_log_process_1.txt": b"one\n",
        "user_logs/std_log_process_3.txt": b"three\n",
    }
    reader = ViewReader(job, "brave-otter")
    assert reader.read().log["lines"] == ["one"]
    job.body["error"] = {"code": "x", "message": "m", "hint": "h", "details": {"rank": 3}}
    assert reader.read().log["lines"] == ["three"]


def test_the_log_of_the_next_attempt_is_found() -> None:
    job = RecordedJob()
    reader = ViewReader(job, "brave-otter")
    job.logs = {"user_logs/std_log.txt": b"first\n"}
    assert reader.read().log["lines"] == ["first"]
    job.logs = {}
    assert reader.read().log["lines"] == []
    job.body["attempt"] = 2
    job.logs = {"user_logs/std_log.txt": b"second\n"}
    assert reader.read().log["lines"] == ["second"]


def test_of_a_long_log_the_last_whole_lines_are_shown() -> None:
    lines, is_cut = last_lines(b"".join(b"line %d\n" % number for number in range(5))[2:])
    assert lines[-1] == "line 4" and not is_cut
    lines, is_cut = last_lines(b"".join(b"%08d\n" % number for number in range(9999))[-16_384:])
    assert is_cut and len(lines) == 100 and lines[-1] == "00009998"
    lines, is_cut = last_lines(b"x" * 16_384)
    assert is_cut and len(lines) == 1 and len(lines[0]) == 1000
    assert last_lines(b"") == ([], False)


def test_a_job_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFound, match="job `other` does not exist"):
        ViewReader(RecordedJob(), "other").read()
