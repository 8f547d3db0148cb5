"""Endpoints on the page: deployments, traffic, a request that is tried, a batch endpoint's jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from web_page.page_list import WORKSPACE
from web_page.sample_jobs import HOSTILE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(900)]


def test_an_endpoint_is_looked_at_and_asked(browse: Any, endpoint: str) -> None:
    page = browse(f"{WORKSPACE}/endpoints")
    row = page.locator("tr", has=page.get_by_role("link", name=endpoint))
    row.get_by_text("blue 100 %").wait_for()
    row.get_by_text(HOSTILE).wait_for()
    row.get_by_role("link", name=endpoint).click()
    page.get_by_role("cell", name="1 of 1").wait_for()
    page.get_by_role("region", name="Instances").get_by_text("Ready").wait_for()
    page.get_by_label("Request, as JSON").fill('"hello"')
    page.get_by_role("button", name="Send").click()
    answer = page.get_by_label("Answer")
    answer.get_by_text("hello").wait_for()
    assert json.loads(answer.inner_text()) == f'"hello"{HOSTILE}'
    assert page.evaluate("window.hacked") is None


def test_a_deployment_is_chosen_and_its_refusal_is_shown(browse: Any, endpoint: str) -> None:
    page = browse(f"{WORKSPACE}/endpoints/{endpoint}")
    page.get_by_label("Deployment", exact=True).select_option("blue")
    page.get_by_label("Request, as JSON").fill('"fail"')
    page.get_by_role("button", name="Send").click()
    page.locator(".badge-red", has_text="424").wait_for()
    page.get_by_role("link", name="Endpoints").first.wait_for()


def test_an_instance_leads_to_its_log(browse: Any, endpoint: str) -> None:
    page = browse(f"{WORKSPACE}/endpoints/{endpoint}")
    page.get_by_role("table", name="Instances").get_by_role("link").first.click()
    page.locator(".log-line").first.wait_for()


def test_a_batch_endpoint_leads_to_its_jobs(browse: Any, batch_job: str) -> None:
    page = browse(f"{WORKSPACE}/endpoints")
    table = page.get_by_role("table", name="Batch endpoints")
    table.get_by_text(HOSTILE).wait_for()
    table.get_by_role("link", name="numbers").click()
    page.get_by_role("cell", name="triple default").wait_for()
    page.get_by_role("cell", name="7", exact=True).wait_for()
    page.get_by_role("table", name="Deployments").get_by_role("link", name="local").wait_for()
    page.locator(f'a[href$="/jobs/{batch_job}"]').click()
    page.get_by_role("tab", name="Overview").wait_for()
    assert page.evaluate("window.hacked") is None
