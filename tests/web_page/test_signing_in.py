"""Signing in by a token and out again, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard
from web_page.browsing import AXE, Jobs, Watched, serious_issues, window
from web_page.page_list import WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]


@pytest.fixture
def stranger(chromium: Any, watched: Watched) -> Iterator[Any]:
    """A page of someone who is not signed in."""
    with window(chromium, None) as context:
        page = context.new_page()
        watched.watch(page)
        yield page


def test_a_token_signs_in_at_the_page_that_was_asked_for_and_signing_out_ends_it(
    stranger: Any, yard: Yard, server: str, jobs: Jobs
) -> None:
    stranger.goto(f"{server}{WORKSPACE}/jobs/{jobs.done}?tab=code")
    stranger.get_by_role("heading", name="Sign in to torchyard").wait_for()
    stranger.evaluate(AXE.read_text())
    assert serious_issues(stranger) == []
    stranger.get_by_label("Token").fill("yard_p_wrong")
    stranger.keyboard.press("Enter")
    stranger.get_by_role("alert").wait_for()

    stranger.get_by_label("Token").fill((yard.home / "token").read_text().strip())
    stranger.keyboard.press("Enter")
    stranger.get_by_role("heading", name="logistic lr=0.5").wait_for()
    assert stranger.url.endswith(f"/jobs/{jobs.done}?tab=code")

    stranger.get_by_role("button", name="Sign out").click()
    stranger.get_by_role("heading", name="Sign in to torchyard").wait_for()
    assert stranger.context.cookies() == []
    stranger.goto(f"{server}{WORKSPACE}/jobs")
    stranger.get_by_role("heading", name="Sign in to torchyard").wait_for()


def test_a_link_of_yard_ui_signs_in_once(stranger: Any, yard: Yard) -> None:
    link = yard("ui", "--no-open").strip()
    stranger.goto(link)
    stranger.get_by_role("navigation", name="Sections").wait_for()
    stranger.context.clear_cookies()
    stranger.goto(link)
    stranger.get_by_role("alert").wait_for()
    stranger.get_by_role("heading", name="Sign in to torchyard").wait_for()
