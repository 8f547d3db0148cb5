"""All tabs of a browser share one stream of events, and follow whose session the browser has."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from web_page.browsing import Jobs, ask, sign_in, token_of, window
from web_page.page_list import WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]

STREAMS = re.compile(r'^torchyard_http_requests_in_progress\{group="events"\} (\d+)', re.M)
# More than the six connections that a browser opens to a server.
TABS = [
    "/jobs",
    "/jobs?group=1",
    "/jobs/{done}",
    *(f"/jobs/{{done}}?tab={tab}" for tab in ("metrics", "logs", "files", "code", "children")),
    "/jobs/{done}?tab=environment",
    "/compare?job={done}&job={slower}",
    "/compare?experiment=logistic",
    "/jobs?status=Completed",
]


def streams_at(server: str, token: str) -> int:
    """How many streams of events the server has open."""
    found = STREAMS.search(ask(server, token, "/metrics"))
    return int(found[1]) if found else 0


def is_live(page: Any) -> None:
    page.get_by_role("status").get_by_text("Live", exact=True).wait_for()


def test_twelve_tabs_are_live_on_one_stream(
    chromium: Any, signed_in: Any, yard: Yard, server: str, jobs: Jobs
) -> None:
    token = token_of(yard)
    wait_until(lambda: streams_at(server, token) == 0, 120, "no other page is open")
    with window(chromium, signed_in) as context:
        tabs = []
        for path in TABS:
            tabs.append(context.new_page())
            tabs[-1].goto(server + WORKSPACE + path.format(done=jobs.done, slower=jobs.slower))
            is_live(tabs[-1])
        assert len(tabs) == 12
        wait_until(lambda: streams_at(server, token) == 1, 120, "one stream is open")
        # Without loading anything again, every tab hears of what happens.
        yard("job", "update", "-n", jobs.done, "--set", "display_name=seen by every tab")
        for tab in tabs:
            tab.get_by_text("seen by every tab").first.wait_for()
        assert streams_at(server, token) == 1
        for tab in tabs[:-1]:
            tab.close()
        # The stream is no tab's own.
        yard("job", "update", "-n", jobs.done, "--set", "display_name=logistic lr=0.5")
        tabs[-1].get_by_text("logistic lr=0.5", exact=True).first.wait_for()
        assert streams_at(server, token) == 1
    wait_until(lambda: streams_at(server, token) == 0, 120, "the stream ends with the last tab")


def test_tabs_follow_the_session_of_the_browser(
    chromium: Any, yard: Yard, server: str, jobs: Jobs
) -> None:
    token = token_of(yard)
    ask(server, token, "/v1/users", {"name": "rita", "role": "reader", "workspace": "default"})
    made = ask(server, token, "/v1/users/rita/tokens", {"name": "first"})
    wait_until(lambda: streams_at(server, token) == 0, 120, "no other page is open")
    with window(chromium, None) as context:
        first, second = context.new_page(), context.new_page()
        first.goto(f"{server}{WORKSPACE}/jobs/{jobs.done}")
        sign_in(first, token)
        is_live(first)
        # Another person signs in while the first one's session goes on at the server.
        second.goto(f"{server}/ui/sign-in")
        sign_in(second, json.loads(made)["token"])
        for page in (first, second):
            page.locator(".person-name").get_by_text("rita").wait_for()
            is_live(page)
        wait_until(lambda: streams_at(server, token) == 1, 120, "the first one's stream has ended")
        # Who signs out does so in all tabs, and so does who signs in.
        second.get_by_role("button", name="Sign out").click()
        for page in (first, second):
            page.get_by_role("heading", name="Sign in to torchyard").wait_for()
        wait_until(lambda: streams_at(server, token) == 0, 120, "the stream ends with the session")
        sign_in(second, token)
        first.get_by_role("heading", name="logistic lr=0.5").wait_for()
        for page in (first, second):
            is_live(page)
        wait_until(lambda: streams_at(server, token) == 1, 120, "one stream is open")
