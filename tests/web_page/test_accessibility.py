"""axe finds nothing serious on any page in either theme; nothing scrolls sideways on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from web_page.browsing import AXE, Jobs, Watched, serious_issues, until, window
from web_page.page_list import PAGES, WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]

# What is too wide, for the message.
WIDE = """[...document.querySelectorAll('main *')]
    .filter(element => element.getBoundingClientRect().right > 376)
    .map(element => `${element.tagName}.${element.className}`).slice(0, 5)"""
PHONE = {"width": 375, "height": 760}


@pytest.fixture(scope="module", params=PAGES)
def visited(
    request: pytest.FixtureRequest, chromium: Any, signed_in: Any, server: str, jobs: Jobs
) -> Iterator[Any]:
    """Each page, loaded once for all that is looked for on it."""
    path, ready = PAGES[request.param]
    watched = Watched(server)
    with window(chromium, signed_in) as context:
        page = context.new_page()
        watched.watch(page)
        page.goto(server + WORKSPACE + path.format(**asdict(jobs)))
        page.locator(ready).first.wait_for()
        # By the browser's own protocol: the page's policy forbids it to a script of the page.
        page.evaluate(AXE.read_text())
        yield page
        assert watched.faults == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(visited: Any, theme: str) -> None:
    visited.emulate_media(color_scheme=theme, reduced_motion="reduce")
    assert until(visited, f"getComputedStyle(document.body).colorScheme === '{theme}'")
    assert serious_issues(visited) == []


def test_nothing_scrolls_sideways_on_a_phone(visited: Any) -> None:
    visited.set_viewport_size(PHONE)
    fits = "innerWidth === 375 && document.documentElement.scrollWidth <= 375"
    # Charts are drawn again in the next frames.
    assert until(visited, fits, limit_s=20), visited.evaluate(WIDE)


def test_the_navigation_of_a_phone_opens_and_closes(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs", **PHONE)
    page.get_by_role("button", name="Navigation").click()
    page.get_by_role("link", name="Models").click()
    page.wait_for_url("**/models")
    page.get_by_role("link", name="Settings").wait_for(state="hidden")
