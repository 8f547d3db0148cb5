"""The page of a pipeline: its graph by pointer and by keys, a step, the table, the saved file."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from web_page import sample_jobs
from web_page.browsing import Jobs, until
from web_page.page_list import PAGES, WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(300)]

STEPS = ["prepare", "features", "baseline", "train", "report"]
SCALE = "document.querySelector('.graph-drawing > g').getCTM().a"
LEFT = "document.querySelector('[data-node]').getBoundingClientRect().left"


@pytest.fixture
def page(browse: Any, jobs: Jobs) -> Any:
    """The pipeline's page, with its graph."""
    path, ready = PAGES["pipeline"]
    page = browse(WORKSPACE + path.format(**asdict(jobs)))
    page.locator(ready).first.wait_for()
    return page


def step(page: Any, name: str) -> Any:
    return page.locator(f'[data-node="{name}"]')


def test_a_click_opens_a_step_and_leads_to_its_job(page: Any, jobs: Jobs) -> None:
    page.get_by_role("img", name="Graph of 5 steps: 5 completed; 1 reused").wait_for()
    table = page.get_by_role("table", name="Steps")
    assert table.locator("tbody tr td:first-child").all_inner_texts() == STEPS
    assert [name for name in STEPS if "Reused" in step(page, name).text_content()] == ["prepare"]

    step(page, "features").click()
    opened = page.get_by_role("region", name="Step features")
    opened.get_by_text("the command was").wait_for()
    assert "step=features" in page.url
    assert table.locator("tr.is-selected td:first-child").inner_text() == "features"
    opened.get_by_role("link", name="train").click()
    page.get_by_role("region", name="Step train").wait_for()
    page.go_back()

    opened.get_by_role("link", name=f"{jobs.pipeline}_features", exact=True).click()
    page.get_by_role("tab", name="Metrics").wait_for()
    assert page.url.endswith(f"/jobs/{jobs.pipeline}_features")


def test_a_reused_step_leads_to_where_it_ran(page: Any, jobs: Jobs) -> None:
    page.get_by_role("table", name="Steps").get_by_role("link", name="prepare", exact=True).click()
    opened = page.get_by_role("region", name="Step prepare")
    opened.get_by_text("Why it was reused").wait_for()
    opened.get_by_role("link", name=jobs.first_pipeline, exact=True).click()
    page.get_by_text("5 steps: 5 completed").first.wait_for()
    page.get_by_role("region", name="Step prepare").wait_for()
    assert f"/jobs/{jobs.first_pipeline}?" in page.url


def test_keys_move_between_steps_and_open_them(page: Any) -> None:
    page.get_by_role("group", name="Graph of the steps").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("features, completed; uses prepare; used by baseline, train").wait_for()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_role("region", name="Step report").wait_for()
    assert page.evaluate("document.querySelectorAll('.is-keyed .graph-cursor').length") == 1
    page.keyboard.press("Escape")
    page.get_by_role("region", name="Step report").wait_for(state="detached")
    assert "step=" not in page.url


def test_the_graph_zooms_and_moves(page: Any) -> None:
    frame = page.get_by_role("group", name="Graph of the steps")
    box = frame.bounding_box()
    scale = page.evaluate(SCALE)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 10)
    page.mouse.wheel(0, -200)
    assert until(page, f"{SCALE} > {scale}")
    left = page.evaluate(LEFT)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 20, box["y"] + box["height"] - 12)
    page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + box["height"] - 14)
    page.mouse.up()
    assert until(page, f"{LEFT} > {left} + 30")
    assert "step=" not in page.url
    page.get_by_role("button", name="Fit").click()
    assert until(page, f"{SCALE} === {scale}")


def test_the_graph_is_saved_as_a_file_of_its_own(page: Any, tmp_path: Path, jobs: Jobs) -> None:
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == f"{jobs.pipeline}.svg"
    file = tmp_path / "graph.svg"
    download.value.save_as(file)
    root = ElementTree.parse(file).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(STEPS) <= set(texts)
    values = [value for element in root.iter() for value in element.attrib.values()]
    assert not [value for value in values if "var(" in value or "url(" in value]
    assert not [element for element in root.iter() if "class" in element.attrib]


def test_steps_change_while_one_looks(browse: Any, jobs: Jobs, yard: Any, folder: Path) -> None:
    document = sample_jobs.pipeline("digits-3", "roots")
    document["jobs"]["report"]["command"] += ' && while [ ! -e "$GO" ]; do sleep 0.1; done'
    go = folder / "go"
    document["jobs"]["report"]["environment_variables"] = {"GO": str(go)}
    sample_jobs.submit(yard, folder, document)
    page = browse(f"{WORKSPACE}/jobs/digits-3?step=report")
    page.get_by_text("5 steps: 4 completed, 1 running; 1 reused").first.wait_for()
    go.touch()
    page.get_by_text("5 steps: 5 completed; 1 reused").first.wait_for()
    opened = page.get_by_role("region", name="Step report")
    opened.get_by_text("Completed", exact=True).wait_for()


def test_of_two_thousand_steps_there_is_a_table_only(browse: Any, jobs: Jobs) -> None:
    def many(route: Any) -> None:
        answer = route.fetch().json()
        first = answer["steps"][0]
        names = [f"step-{number}" for number in range(2000)]
        answer["steps"] = [
            {**first, "number": number, "name": name} for number, name in enumerate(names)
        ]
        route.fulfill(json=answer)

    page = browse(f"{WORKSPACE}/jobs")
    page.route("**/pipelines/*/steps", many)
    page.goto(page.url + f"/{jobs.pipeline}?step=step-1999")
    page.get_by_text("A graph is drawn of up to 300 steps").wait_for()
    page.get_by_role("region", name="Step step-1999").wait_for()
    assert page.locator(".graph-drawing").count() == 0
    rows = page.get_by_role("table", name="Steps").locator("tbody tr")
    assert rows.count() == 300
    page.get_by_role("button", name="Show more").click()
    assert until(page, "document.querySelectorAll('tbody tr').length === 600")


@pytest.fixture(scope="module")
def failed(jobs: Jobs, yard: Any, folder: Path) -> str:
    """A pipeline whose last step failed, and does not if it runs again."""
    name, go = "digits-failed", folder / "go-on"
    document = sample_jobs.pipeline(name, "retried")
    document["jobs"]["report"]["command"] += ' && test -e "$GO"'
    document["jobs"]["report"]["environment_variables"] = {"GO": str(go)}
    sample_jobs.submit(yard, folder, document)
    assert yard.wait(name)["status"] == "Failed"
    go.touch()
    return name


def retry(page: Any) -> None:
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("button", name="Retry the pipeline").click()


def test_a_retry_keeps_what_completed(browse: Any, yard: Any, failed: str) -> None:
    page = browse(f"{WORKSPACE}/jobs/{failed}")
    retry(page)
    page.get_by_text("5 steps: 5 completed; 4 reused").first.wait_for()
    made = page.url.rsplit("/", 1)[-1]
    assert made != failed
    steps = yard.get(f"pipelines/{made}/steps")["steps"]
    reused = {step["name"]: step["reused_from"] for step in steps}
    assert reused["train"] == reused["baseline"] == reused["features"] == failed
    assert reused["report"] == ""
    page.locator(".page-name .status-green").wait_for()
    assert page.get_by_role("button", name="Retry").count() == 0


def test_a_refused_retry_says_why(browse: Any, failed: str) -> None:
    def refuse(route: Any) -> None:
        body = {"error": {"code": "forbidden", "message": "not yours", "hint": "give its file"}}
        route.fulfill(status=403, content_type="application/json", body=json.dumps(body))

    page = browse(f"{WORKSPACE}/jobs")
    page.route("**/pipelines/*/retry", refuse)
    page.goto(f"{page.url}/{failed}")
    retry(page)
    page.locator(".toast-red", has_text="give its file").wait_for()
    assert page.url.endswith(f"/jobs/{failed}")
