"""Pictures of each page in both themes and on a phone; `make ui-pictures` names this file.

Owns: which jobs are in them; which ones the documentation shows: those lie in docs/pictures, all
others where TORCHYARD_PICTURES says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard
from web_page import sample_jobs
from web_page.browsing import Jobs
from web_page.page_list import PAGES, WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]

DOCUMENTATION = Path(__file__).parents[2] / "docs/pictures"
SHOWN = {
    "jobs-light",
    "job-metrics-dark",
    "job-failed-light",
    "job-logs-dark",
    "compare-light",
    "job-phone",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"height": 800},
    "dark": {"height": 800, "theme": "dark"},
    "phone": {"width": 375, "height": 760},
}


@pytest.fixture(scope="session")
def jobs(yard: Yard, folder: Path, endpoint: str) -> Iterator[Jobs]:
    """Those of a person at work; one still runs, and nothing is hostile."""
    names = Jobs()
    changed = {"code": str(sample_jobs.changed_scripts(folder))}
    for document in (
        {**sample_jobs.learning(names.slower, 0.05), **changed},
        sample_jobs.learning("quick-0-2", 0.2),
        {**sample_jobs.learning(names.failed, 0.5, fail_at=12), **changed},
        sample_jobs.learning(names.done, 0.5),
        sample_jobs.sweep(names.sweep),
        sample_jobs.asha(names.asha),
        sample_jobs.pipeline(names.first_pipeline),
        sample_jobs.pipeline(names.pipeline, "cubes"),
    ):
        sample_jobs.submit(yard, folder, document)
        yard.wait(document["name"])
    sample_jobs.register_assets(yard, names.done, "Learned on 400 points by two ranks")
    running = sample_jobs.learning("steady", 0.02, steps=100_000, pause=0.5)
    sample_jobs.submit(yard, folder, running)
    yield names
    yard("job", "cancel", "steady")
    yard.wait("steady")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_its_picture(browse: Any, jobs: Jobs, name: str, look: str) -> None:
    path, ready = PAGES[name]
    page = browse(WORKSPACE + path.format(**asdict(jobs)), **LOOKS[look])
    page.locator(ready).first.wait_for()
    page.get_by_text("Live", exact=True).wait_for(state="attached")
    page.wait_for_timeout(800)
    picture = f"{name}-{look}"
    folder = DOCUMENTATION if picture in SHOWN else Path(os.environ["TORCHYARD_PICTURES"])
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{picture}.png")
