"""An open page goes on by itself after its server was killed, and after its line was cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, running_yard, wait_until
from web_page import sample_jobs
from web_page.browsing import Jobs, Line, cookies_of, sign_in, token_of, window
from web_page.page_list import WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]


@pytest.fixture
def fragile_yard(chromium: Any) -> Iterator[Yard]:
    """A server of its own, to be killed."""
    with running_yard("web-page-killed") as yard:
        try:
            yield yard
        finally:
            yard("server", "start")
            yard.quiet_down(timeout_s=120)


def points_of(page: Any, key: str) -> int:
    """How many points the chart of a metric says it has."""
    chart = page.locator("section.metric", has=page.get_by_role("heading", name=key, exact=True))
    text = chart.locator(".metric-foot").inner_text()
    return int(re.sub(r"\D", "", text.split(" ")[0]) or 0)


def test_a_page_catches_up_after_its_server_was_killed(
    chromium: Any, fragile_yard: Yard, folder: Path
) -> None:
    document = sample_jobs.learning("survivor", 0.02, steps=100_000, pause=0.2)
    name = sample_jobs.submit(fragile_yard, folder, document)
    with window(chromium, cookies_of(chromium, fragile_yard)) as context:
        page = context.new_page()
        home = re.match(r"http://[^/]+", fragile_yard("ui", "--no-open"))
        assert home is not None
        page.goto(f"{home[0]}{WORKSPACE}/jobs/{name}?tab=metrics")
        page.get_by_role("heading", name="accuracy", exact=True).wait_for()
        wait_until(lambda: points_of(page, "accuracy") > 0, 150, "the chart has points")
        page.evaluate("window.isSamePage = true")
        fragile_yard.kill_server()
        page.get_by_role("status").get_by_text("Not connected").wait_for()
        before = points_of(page, "accuracy")

        fragile_yard("server", "start")
        page.get_by_role("status").get_by_text("Live").wait_for()
        wait_until(lambda: points_of(page, "accuracy") > before, 150, "the chart caught up")
        # What happens from now on comes by the new stream.
        fragile_yard("job", "cancel", name)
        page.locator(".page-head").get_by_text("Canceled").wait_for()
        assert page.evaluate("window.isSamePage") is True
    fragile_yard.wait(name)


def test_a_page_whose_line_was_cut_goes_on_after_the_last_event(
    chromium: Any, yard: Yard, server: str, jobs: Jobs
) -> None:
    with Line(server) as line, window(chromium, None) as context:
        page = context.new_page()
        page.goto(f"{line.url}{WORKSPACE}/jobs")
        sign_in(page, token_of(yard))
        page.get_by_role("status").get_by_text("Live").wait_for()
        # An event that came has the number after which it goes on.
        yard("job", "update", "-n", jobs.slower, "--set", "display_name=renamed before")
        page.get_by_role("link", name="renamed before").first.wait_for()
        line.cut()
        page.get_by_role("status").get_by_text("Not connected").wait_for()
        yard("job", "update", "-n", jobs.slower, "--set", "display_name=renamed meanwhile")
        line.mend()
        page.get_by_role("status").get_by_text("Live").wait_for()
        page.get_by_role("link", name="renamed meanwhile").first.wait_for()
        assert re.search(r"/events\?(\S*&)?last=\w", line.requests[-1]), line.requests
    yard("job", "update", "-n", jobs.slower, "--set", "display_name=logistic lr=0.05")
