"""A job full of markup is text wherever it is shown; files of a job never run in the page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from web_page.browsing import Jobs, until
from web_page.page_list import WORKSPACE
from web_page.sample_jobs import HOSTILE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]

HTML = "<script>window.hacked=1</script>"
TABS = {
    "overview": HOSTILE,
    "metrics": "loss .- img src=x",
    "logs": HTML,
    "files": "<img src=x onerror=window.hacked=4>.txt",
    "code": "window.hacked=1",
    "environment": "",
    "environment&part=files": "",
    "environment&part=build": "",
    "environment&part=variables": HOSTILE,
    "resources": "",
    "children": "",
}


def assert_unharmed(page: Any) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main iframe, main [onerror], main [onload]").count() == 0
    links = page.eval_on_selector_all("a[href]", "links => links.map(link => link.protocol)")
    assert set(links) <= {"http:"}


def test_the_list_shows_it_as_text(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs?column=params.markup&column=params.link&group=1")
    page.get_by_role("link", name=HOSTILE).first.wait_for()
    page.get_by_text(HTML, exact=True).first.wait_for()
    assert_unharmed(page)
    page.get_by_label(f"Select {jobs.hostile}").check()
    page.get_by_role("link", name="Compare").last.click()
    page.get_by_text(HOSTILE).first.wait_for()
    assert_unharmed(page)


@pytest.mark.parametrize("tab", TABS)
def test_each_part_of_the_job_shows_it_as_text(browse: Any, jobs: Jobs, tab: str) -> None:
    page = browse(f"{WORKSPACE}/jobs/{jobs.hostile}?tab={tab}")
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page.get_by_role("tabpanel").get_by_text(TABS[tab]).first.wait_for()
    assert until(page, "!document.querySelector('main .loading')")
    assert_unharmed(page)


@pytest.mark.parametrize(
    "file",
    [
        "page.html",
        "drawing.svg",
        "table.csv",
        "record.json",
        "<img src=x onerror=window.hacked=4>.txt",
    ],
)
def test_files_are_shown_and_never_run(browse: Any, jobs: Jobs, file: str) -> None:
    page = browse(f"{WORKSPACE}/jobs/{jobs.hostile}?tab=files&path={quote('outputs/' + file)}")
    page.locator(".preview").get_by_text("window.hacked").first.wait_for()
    assert_unharmed(page)


def test_forms_take_it_as_text(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs/{jobs.hostile}")
    page.get_by_role("button", name="Clone").click()
    assert page.get_by_label("Display name").input_value() == HOSTILE
    assert_unharmed(page)


def test_an_address_made_by_someone_else_runs_nothing(browse: Any, jobs: Jobs) -> None:
    evil = quote("javascript:window.hacked=1")
    for path in (
        f"{WORKSPACE}/jobs/{quote(HOSTILE, safe='')}",
        f"{WORKSPACE}/{quote(HTML, safe='')}",
        f"{WORKSPACE}/jobs?text={quote(HTML)}&tag={quote(HTML)}&owner={quote(HTML)}",
        f"/ui/sign-in?next={evil}",
        f"/ui/workspaces/{quote(HTML, safe='')}/jobs",
    ):
        page = browse(path)
        page.locator("main").wait_for()
        assert until(page, "!document.querySelector('main .loading')")
        assert_unharmed(page)
