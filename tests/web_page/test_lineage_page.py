"""Lineage on the page: from data over a pipeline's steps to a model, by pointer, keys and table."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard
from web_page import sample_jobs
from web_page.browsing import AXE, Jobs, serious_issues, until
from web_page.page_list import WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]

PIPELINE, MODEL, DATA = "digits-lineage", "digits.weights", "digits.rows"
PATH = f"{WORKSPACE}/models/{MODEL}/1"
LABELS = [f"{DATA}:1", "prepare", "features", "train", f"{MODEL}:1"]


@pytest.fixture(scope="module", autouse=True)
def model(yard: Yard, folder: Path, jobs: Jobs) -> None:
    """A model of a step whose pipeline read data; dots in their names mean nothing."""
    rows = folder / "rows"
    rows.mkdir()
    (rows / "made.txt").write_text("1\n")
    yard("data", "create", "-n", DATA, "-p", str(rows), "--type", "uri_folder")
    document = sample_jobs.pipeline(PIPELINE, "lineage")
    document["inputs"] = {"rows": {"type": "uri_folder", "path": f"azureml:{DATA}:1"}}
    document["jobs"]["prepare"]["inputs"] = {"rows": "${{parent.inputs.rows}}"}
    sample_jobs.submit(yard, folder, document)
    yard.completed(PIPELINE)
    output = f"azureml://jobs/{PIPELINE}_train/outputs/data/paths/"
    yard("model", "create", "-n", MODEL, "-p", output, "--type", "custom_model")


def opened(browse: Any, path: str = PATH, **look: Any) -> Any:
    page = browse(path, **look)
    page.locator(".graph-node").first.wait_for()
    return page


def test_the_graph_and_its_table_hold_what_led_to_a_model(browse: Any) -> None:
    page = opened(browse)
    page.get_by_role("img", name="Graph of 1 data asset, 3 jobs, 1 model").wait_for()
    assert page.locator(".graph-name").all_text_contents() == LABELS
    assert page.locator(".graph-node:has(.is-selected) .graph-name").all_text_contents() == [
        LABELS[-1]
    ]
    arrows = page.locator(".graph-frame g:has(> .graph-arrow) > title").all_text_contents()
    assert sorted(arrows) == ["data", "data → features", "data → prepare", "rows"]
    table = page.get_by_role("table", name="Lineage")
    assert table.locator("tbody tr td:first-child").all_inner_texts() == LABELS
    assert [link.get_attribute("href") for link in table.locator("tbody a").all()] == [
        f"{WORKSPACE}/data/{DATA}/1",
        *(f"{WORKSPACE}/jobs/{PIPELINE}_{step}" for step in LABELS[1:4]),
        PATH,
    ]
    assert table.locator("tbody tr td:last-child").all_inner_texts()[1:] == [
        f"{DATA}:1 (rows)",
        "prepare (data → prepare)",
        "features (data → features)",
        "train (data)",
    ]


def test_a_click_leads_from_page_to_page(browse: Any) -> None:
    page = opened(browse)
    page.locator(".graph-node", has_text="train").click()
    page.wait_for_url(f"**/jobs/{PIPELINE}_train")
    # The job has the same lineage.
    page.get_by_role("tab", name="Lineage").click()
    page.locator(".graph-node", has_text=DATA).click()
    page.wait_for_url(f"**/data/{DATA}/1")
    page.get_by_text("Uploaded by").wait_for()
    # The steps that were left out of the model's: they too came of the data.
    page.locator(".graph-node", has_text="report").wait_for()


def test_keys_move_and_open(browse: Any) -> None:
    page = opened(browse)
    page.get_by_role("group", name="Graph of the jobs and assets").focus()
    page.keyboard.press("ArrowUp")
    page.get_by_text(f"train, completed; comes from features; used by {MODEL}:1").wait_for()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{PIPELINE}_features")


def test_a_pipeline_shows_the_lineage_of_its_steps(browse: Any) -> None:
    page = opened(browse, f"{WORKSPACE}/jobs/{PIPELINE}?tab=lineage")
    rows = page.get_by_role("table", name="Lineage").locator("tr.is-selected td:first-child")
    steps = ["prepare", "features", "baseline", "train", "report"]
    assert sorted(rows.all_inner_texts()) == sorted(steps)


def test_a_deleted_job_a_path_and_what_is_left_out_are_said(browse: Any, jobs: Jobs) -> None:
    def without(route: Any) -> None:
        answer = route.fetch().json()
        job, path = answer["nodes"][1], answer["nodes"][0]
        job.update(status="", display_name="")
        path.update(kind="path", name="azureml://datastores/blobs/paths/raw/", version="")
        route.fulfill(json={**answer, "is_whole": False})

    page = browse(f"{WORKSPACE}/models")
    page.route("**/lineage/**", without)
    page.goto(page.url + f"/{MODEL}/1")
    page.get_by_text("Only the nearest 5 are shown.").wait_for()
    rows = page.get_by_role("table", name="Lineage").locator("tbody tr")
    texts = [row.locator("td").all_inner_texts()[:2] for row in rows.all()[:2]]
    assert texts == [
        ["azureml://datastores/blobs/paths/raw/", "Path"],
        [f"{PIPELINE}_prepare", "Deleted"],
    ]
    assert page.locator("tbody a").count() == 3
    for text in ("Path", "Deleted"):
        page.locator(".graph-node", has_text=text).click()
    assert page.url.endswith(PATH)


def test_what_was_uploaded_and_used_by_nothing_says_so(browse: Any, jobs: Jobs) -> None:
    page = browse(f"{WORKSPACE}/data/scripts/1")
    page.get_by_text("Uploaded by").wait_for()
    page.get_by_text("Used by nothing yet.").wait_for()
    assert page.locator(".graph-frame").count() == 0


def test_a_phone_shows_it_from_top_to_bottom(browse: Any) -> None:
    page = opened(browse, width=375, height=760, theme="dark")
    tops = [page.locator(".graph-node", has_text=label).bounding_box()["y"] for label in LABELS]
    assert tops == sorted(tops)
    assert until(page, "document.documentElement.scrollWidth <= 375")
    page.evaluate(AXE.read_text())
    assert serious_issues(page) == []


def test_it_is_saved_as_a_file_of_its_own(browse: Any, tmp_path: Path) -> None:
    page = opened(browse)
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == f"{MODEL}-lineage.svg"
    file = tmp_path / "lineage.svg"
    download.value.save_as(file)
    root = ElementTree.parse(file).getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(LABELS) <= set(texts)
    assert not [element for element in root.iter() if "class" in element.attrib]
