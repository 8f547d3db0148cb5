"""By browser alone: watch a job, cancel it, read why one failed, clone, compare, register."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from web_page import sample_jobs
from web_page.browsing import Jobs
from web_page.page_list import WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]


def steps_shown(page: Any) -> int:
    """How many points the chart of the loss says it has."""
    text = page.locator("section.metric", has=page.get_by_role("heading", name="accuracy")).locator(
        ".metric-foot"
    )
    return int(re.sub(r"\D", "", text.inner_text().split(" ")[0]) or 0)


@pytest.mark.smoke
def test_a_distributed_job_is_watched_live_and_canceled(
    browse: Any, yard: Yard, folder: Path, jobs: Jobs
) -> None:
    page = browse(f"{WORKSPACE}/jobs")
    name = sample_jobs.submit(
        yard, folder, sample_jobs.learning("endless", 0.02, steps=100_000, pause=0.2)
    )
    # Nobody loads the page again: the job comes by itself, then its metrics, then its lines.
    row = page.locator("tr", has=page.get_by_role("link", name="logistic lr=0.02"))
    row.get_by_text("Running").wait_for()
    row.get_by_role("link", name="logistic lr=0.02").click()
    page.get_by_role("tab", name="Metrics").click()
    page.get_by_role("figure").first.wait_for()
    before = steps_shown(page)
    wait_until(lambda: steps_shown(page) > before, 120, "the chart goes on by itself")
    page.get_by_role("tab", name="Logs").click()
    page.get_by_role("button", name="rank 1").click()
    lines = page.locator(".log-text", has_text="loss on this rank")
    lines.first.wait_for()
    last = page.locator(".log-number").last
    seen = int(last.inner_text())
    wait_until(lambda: int(last.inner_text()) > seen, 120, "the log goes on by itself")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.locator(".page-head").get_by_text("Canceled").wait_for()
    assert yard.wait(name)["status"] == "Canceled"


def test_a_charts_zoom_stands_in_the_address(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs/{jobs.done}?tab=metrics")

    def chart(of: Any) -> Any:
        return of.locator("section.metric", has=of.get_by_role("heading", name="accuracy"))

    box = chart(page).locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40, steps=4)
    page.mouse.up()
    chart(page).get_by_text("zoomed").wait_for()
    all_points = 60
    wait_until(lambda: 0 < steps_shown(page) < all_points, 60, "the points of the part are shown")
    zoomed = steps_shown(page)
    # The chart beside it shows the same steps; both are one step back.
    assert "zoom=loss%3Astep" in page.url
    chosen = re.search(r"zoom=accuracy%3Astep%3A([\d.]+)%3A([\d.]+)", page.url)
    assert chosen and 0 < float(chosen[1]) < float(chosen[2]) < all_points

    page.go_back()
    page.get_by_text("zoomed").first.wait_for(state="detached")
    page.go_forward()
    chart(page).get_by_text("zoomed").wait_for()

    again = browse(page.url.partition(page.url.split("/ui/")[0])[2])
    chart(again).get_by_text("zoomed").wait_for()
    wait_until(lambda: steps_shown(again) == zoomed, 60, "the address shows the same part")
    chart(again).get_by_role("button", name="Show all").click()
    chart(again).get_by_text("zoomed").wait_for(state="detached")
    assert "zoom=accuracy" not in again.url
    wait_until(lambda: steps_shown(again) == all_points, 60, "all points are shown")
    again.go_back()
    chart(again).get_by_text("zoomed").wait_for()

    page.get_by_role("button", name="Time", exact=True).or_(
        page.get_by_label("Time", exact=True)
    ).first.click()
    chart(page).get_by_text("zoomed").wait_for(state="detached")


def test_a_workspaces_recipient_is_added_and_removed(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/settings?tab=messages")
    page.get_by_text("Nobody is told", exact=True).wait_for()
    page.get_by_role("button", name="Add a recipient").click()
    page.get_by_label("Address").fill("http://127.0.0.1/hook")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("not at an address of the internet").wait_for()
    page.get_by_label("Address").fill("https://hooks.example.org/T0/secret")
    page.get_by_label("The URL is itself a secret").check()
    page.get_by_role("button", name="Add", exact=True).click()
    row = page.locator("tr", has_text="HOOK_URL_1")
    row.get_by_text("failed").wait_for()
    assert "T0/secret" not in page.content()
    row.get_by_role("button", name="Remove HOOK_URL_1").click()
    page.get_by_text("Nobody is told", exact=True).wait_for()


def test_a_jobs_environment_says_what_is_in_it(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs/{jobs.done}?tab=environment")
    page.get_by_role("link", name="python:1").wait_for()
    page.get_by_text("Generated files").click()
    page.get_by_text("FROM python").wait_for()
    page.get_by_text("requirements.txt", exact=True).click()
    page.get_by_role("heading", name="requirements.txt").wait_for()
    assert "part=files" in page.url and "format=requirements" in page.url
    page.get_by_text("Build", exact=True).click()
    page.get_by_role("heading", name="Build log").wait_for()


def test_a_failure_names_its_cause_and_leads_to_the_log(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs?status=Failed")
    page.get_by_text("expected 128 features").first.wait_for()
    page.locator("tr", has=page.get_by_text("expected 128 features")).get_by_role(
        "link"
    ).first.click()
    failure = page.get_by_role("alert", name="Why it ended")
    failure.get_by_text("rank 1 on node 1 exited with code 1").wait_for()
    assert "raise ValueError" in failure.inner_text()
    failure.get_by_role("link", name=re.compile("std_log_process_1")).click()
    page.locator(".ansi-red", has_text="loading shard 3 failed").wait_for()


def test_a_clone_learns_better_is_compared_and_its_model_registered(
    browse: Any, yard: Yard, jobs: Jobs
) -> None:
    page = browse(f"{WORKSPACE}/jobs/{jobs.slower}")
    page.get_by_role("button", name="Clone").click()
    page.get_by_label("Display name").fill("logistic, faster")
    page.get_by_label("lr", exact=True).fill("0.5")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("heading", name="logistic, faster").wait_for()
    page.locator(".page-head").get_by_text("Completed").wait_for()
    name = page.url.split("?")[0].rsplit("/", 1)[1]
    clone = yard.job(name)
    assert clone["spec"]["inputs"]["lr"] == 0.5
    assert clone["properties"]["torchyard.cloned_from"] == jobs.slower

    page.get_by_role("link", name="Compare").last.click()
    values = page.get_by_role("region", name="Values")
    values.get_by_text("0.05", exact=True).first.wait_for()
    row = values.locator("tr", has=page.get_by_role("cell", name="loss", exact=True))
    faster, slower = (float(text) for text in row.locator("td").all_inner_texts()[1:3])
    assert faster < slower
    page.go_back()

    page.get_by_role("button", name="Register model").click()
    page.get_by_label("Name", exact=True).fill("logistic")
    page.get_by_label("Content").select_option(label="outputs/model.json")
    page.get_by_role("button", name="Register", exact=True).click()
    page.get_by_text("Registered logistic:1").wait_for()
    page.get_by_role("link", name="logistic:1").wait_for()
    assert [(m["name"], m["version"]) for m in yard.job(name)["models"]] == [("logistic", 1)]


def test_many_jobs_are_chosen_tagged_and_archived(browse: Any, yard: Yard, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs")
    for name in (jobs.done, jobs.slower):
        page.get_by_label(f"Select {name}").check()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_label("Tag", exact=True).fill("reviewed")
    page.get_by_label("Value").fill("yes")
    page.get_by_role("dialog").get_by_role("button", name="Tag", exact=True).click()
    page.get_by_text("2 jobs tagged").wait_for()
    assert yard.job(jobs.done)["tags"]["reviewed"] == "yes"
    for verb, listed in (("Archive", "archived=1"), ("Restore", "")):
        page.get_by_label(f"Select {jobs.slower}").check()
        page.get_by_role("toolbar").get_by_role("button", name=verb).click()
        page.get_by_text(f"1 job {verb.lower()}d").wait_for()
        assert yard.job(jobs.slower)["archived"] is (verb == "Archive")
        page.goto(page.url.split("?")[0] + f"?{listed}")


def test_the_leaderboard_is_in_the_address(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs?experiment=logistic&column=metrics.loss&column=inputs.lr")
    page.get_by_role("button", name="loss").click()
    page.wait_for_url("**sort=metrics.loss**")
    page.reload()
    names = page.locator(".job-link")
    names.first.wait_for()
    losses = [
        float(text)
        for text in page.locator("tbody td.cell-number:nth-child(4)").all_inner_texts()
        if text
    ]
    assert len(losses) >= 2
    assert losses == sorted(losses)


def test_a_log_is_searched_and_the_hit_is_in_view(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs/{jobs.done}?tab=logs")
    page.get_by_label(re.compile("^Search user_logs")).fill("step  59")
    page.locator(".log-hits", has_text=re.compile(r"^1\b")).wait_for()
    page.keyboard.press("Enter")
    page.locator(".log-line.is-current mark", has_text="step  59").wait_for()
    assert "find=step++59" in page.url


def test_keys_move_between_pages(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/jobs")
    page.get_by_role("heading", name="Jobs").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url("**/models")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").get_by_text("Go to Jobs").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.get_by_label("Search jobs").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("broken")
    page.wait_for_url("**text=broken**")
    page.locator(".job-link").nth(0).wait_for()
