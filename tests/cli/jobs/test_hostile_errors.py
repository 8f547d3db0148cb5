"""What a job can put into its error reaches the terminal as text."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.cli.jobs import causes, page, streaming

HOSTILE = ["\x1b]0;owned\x07", "\x1b[2J", "\x07", "\x1b]8;;http://evil\x1b\\", "\x9b31m", "\r"]
JOB: dict[str, Any] = {
    "name": "j",
    "status": "Failed",
    "created_at": "2026-01-01T10:00:00Z",
    "duration_s": 1.0,
}


@pytest.mark.parametrize("text", HOSTILE)
def test_an_error_controls_no_terminal(text: str) -> None:
    frame = {"file": f"a{text}.py", "line": 1, "function": f"f{text}", "code": f"x{text}"}
    for details in (
        {"log": "std_log.txt", "log_lines": [f"line{text}"]},
        {"frames": [frame], "exception": f"E{text}"},
    ):
        error = {"message": f"m{text}", "hint": f"h{text}", "details": details}
        metrics, models = {f"k{text}": 1.0}, [{"name": f"n{text}", "version": "1"}]
        job = {**JOB, "error": error, "metrics": metrics, "models": models}
        uncoloured = streaming.summary(job)
        for code in ("0", "1", "31", "33"):
            uncoloured = uncoloured.replace(f"\x1b[{code}m", "")
        assert all(c.isprintable() or c == "\n" for c in uncoloured), uncoloured


def test_colours_of_a_log_are_left_out() -> None:
    details = {"log": "std_log.txt", "log_lines": ["\x1b[31mred\x1b[0m"]}
    assert "  red\n" in causes.error_text({"error": {"message": "m", "details": details}}) + "\n"


def test_some_metrics_are_shown_and_the_rest_is_named() -> None:
    metrics = {f"m{number}": float(number) for number in range(1503)}
    shown = streaming.summary({**JOB, "metrics": metrics})
    assert "m19 " in shown and "m20 " not in shown
    assert "and 1483 older: `yard job metrics -n j`" in shown


def test_the_newest_metrics_are_shown() -> None:
    metrics = {f"m{number}": float(number) for number in range(1503)}
    newest = [f"m{number}" for number in range(1502, 1482, -1)]
    shown = streaming.summary({**JOB, "metrics": metrics, "newest_metrics": newest})
    assert "m1502 " in shown and "m1483 " in shown and "m1482 " not in shown and "m19 " not in shown


def test_the_page_of_a_job_shows_the_newest_metrics_and_some_parameters() -> None:
    values = {f"m{number}": float(number) for number in range(1503)}
    params = {f"p{number}": str(number) for number in range(1503)}
    job = {**JOB, "created_at": "2026-01-02T03:04:05Z", "metrics": values, "params": params}
    shown = page.page({**job, "newest_metrics": ["m1502", "m7"]})
    assert "m1502 " in shown and "m7 " in shown and "m0 " not in shown
    assert "and 1501 older: `yard job metrics -n j`" in shown
    assert "p19 " in shown and "p20 " not in shown
    assert "and 1483 more: `yard job show -n j -o json`" in shown


def test_a_long_tag_is_cut_on_the_page_of_a_job() -> None:
    job = {**JOB, "created_at": "2026-01-02T03:04:05Z", "tags": {"short": "x", "long": "y" * 600}}
    lines = [line.strip() for line in page.page(job).splitlines()]
    assert "short  x" in lines and f"long   {'y' * 100}…" in lines
