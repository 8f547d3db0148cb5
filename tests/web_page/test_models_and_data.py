"""Models and data on the page: where they come from, what is in them, what can be changed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard
from web_page.browsing import Jobs
from web_page.page_list import WORKSPACE
from web_page.sample_jobs import HOSTILE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]


def test_a_model_leads_to_its_job_and_its_files(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/models")
    page.get_by_role("link", name="classifier").click()
    lineage = page.get_by_role("table", name="Lineage")
    lineage.get_by_role("link", name="logistic lr=0.5").wait_for()
    lineage.get_by_text("Completed").wait_for()
    page.get_by_role("tab", name="Files").click()
    page.get_by_role("link", name=re.compile("predictions.csv")).click()
    page.get_by_role("cell").first.wait_for()
    page.go_back()
    page.go_back()
    lineage.get_by_role("link", name="logistic lr=0.5").click()
    page.wait_for_url(f"**/jobs/{jobs.done}")


def test_stage_and_tags_of_a_model_are_changed(browse: Any, jobs: Jobs, yard: Yard) -> None:
    page = browse(f"{WORKSPACE}/models/classifier/1")
    page.get_by_label("Stage").select_option("Staging")
    page.locator(".page-name .badge", has_text="Staging").wait_for()
    page.get_by_label("New tag").fill(f"note={HOSTILE}")
    page.keyboard.press("Enter")
    page.get_by_role("link", name=f"note: {HOSTILE}").wait_for()
    with yard.open("models/classifier/versions/1") as answer:
        text = answer.read().decode()
    assert '"stage":"Staging"' in text
    page.get_by_role("button", name="Remove the tag note").click()
    page.get_by_role("link", name=f"note: {HOSTILE}").wait_for(state="detached")
    page.get_by_label("Stage").select_option("")
    page.locator(".page-name .badge", has_text="Staging").wait_for(state="detached")
    assert page.evaluate("window.hacked") is None


def test_data_is_text_whatever_it_holds(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/data/scripts?tab=files&path=hostile.py")
    page.locator(".preview").get_by_text("window.hacked").first.wait_for()
    page.get_by_role("tab", name="Overview").click()
    page.get_by_text(HOSTILE, exact=True).first.wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main [onerror]").count() == 0


def test_a_part_of_an_axis_is_chosen_by_keys_and_kept_in_the_address(
    browse: Any, jobs: Jobs
) -> None:
    page = browse(f"{WORKSPACE}/compare?job={jobs.done}&job={jobs.slower}")
    axis = page.get_by_role("slider", name="Part of lr")
    axis.focus()
    page.keyboard.press("ArrowUp")
    page.get_by_text("1 of 2 jobs are within what was chosen.").wait_for()
    assert "part=inputs.lr" in page.url
    page.reload()
    page.get_by_text("1 of 2 jobs are within what was chosen.").wait_for()
    axis.focus()
    page.keyboard.press("Escape")
    page.get_by_text("Drag along an axis").wait_for()
    page.get_by_role("link", name=re.compile(r"^logistic lr=0\.5.*: .*loss")).last.click()
    page.wait_for_url(f"**/jobs/{jobs.done}")
