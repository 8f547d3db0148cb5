"""The page of a sweep: its best trial, its table, its plots, its rungs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from web_page.browsing import Jobs
from web_page.page_list import PAGES, WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(300)]


def test_trials_are_sorted_and_lead_to_their_jobs(browse: Any, jobs: Jobs, yard: Any) -> None:
    path, ready = PAGES["sweep"]
    page = browse(WORKSPACE + path.format(**asdict(jobs)))
    page.locator(ready).wait_for()
    table = page.get_by_role("table", name="Trials")
    assert table.locator("tbody tr").count() == 4
    for name in ("Parallel coordinates", "Scatter", "What mattered"):
        page.get_by_role("heading", name=name).wait_for()

    table.get_by_role("button", name="loss").click()
    losses = [float(text) for text in table.locator("tbody tr td:nth-child(3)").all_inner_texts()]
    assert losses == sorted(losses)
    best = yard.get(f"sweeps/{jobs.sweep}/trials")["best"]
    table.locator("tr.is-selected a").click()
    page.get_by_text(best, exact=True).first.wait_for()
    assert page.url.split("?")[0].endswith(f"/jobs/{best}")


def test_rungs_are_listed_the_highest_first(browse: Any, jobs: Jobs, yard: Any) -> None:
    path, ready = PAGES["sweep-rungs"]
    page = browse(WORKSPACE + path.format(**asdict(jobs)))
    page.locator(ready).wait_for()
    rungs = yard.get(f"sweeps/{jobs.asha}/rungs")["value"]
    rungs.sort(key=lambda rung: (-rung["interval"], rung["rank"]))
    assert {rung["interval"] for rung in rungs} == {4, 2}

    table = page.get_by_role("table", name="Rungs")
    heads = [text.split("\t")[0] for text in table.locator(".table-group").all_inner_texts()]
    assert [head.split(" reached")[0].rpartition(" ")[0] for head in heads] == [
        "Interval 4", "Interval 2",
    ]  # fmt: skip
    rows = [
        text.split("\t") for text in table.locator("tr:not(.table-group)").all_inner_texts()[1:]
    ]
    assert [[trial, rank, decision.strip()] for trial, _, rank, decision in rows] == [
        [str(rung["number"]), f"{rung['rank']} of {rung['reached']}", rung["decision"]]
        for rung in rungs
    ]
    assert [float(value) for _, value, *_ in rows] == pytest.approx(
        [rung["value"] for rung in rungs], rel=1e-5
    )
    table.locator("a").first.click()
    page.get_by_text(rungs[0]["trial"], exact=True).first.wait_for()
    assert page.url.split("?")[0].endswith(f"/jobs/{rungs[0]['trial']}")
