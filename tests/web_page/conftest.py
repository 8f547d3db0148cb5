"""A real server with real jobs, and Chromium that is signed in to its page.

Owns: the lives of the server and of the browser; noticing what a page must never do.
Leaves: what is done on the page to the tests.
Always: a request to anywhere else, a violation of the Content-Security-Policy and an error of the
page's own fail the test that caused it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, remove, running_yard, wait_until
from web_page import sample_jobs
from web_page.browsing import Jobs, Watched, cookies_of, started_chromium, window


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with started_chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def yard(chromium: Any) -> Iterator[Yard]:
    with running_yard("web-page") as yard:
        yield yard


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="torchyard-web-page-"))
    yield path
    remove(path)


@pytest.fixture(scope="session")
def jobs(yard: Yard, folder: Path, endpoint: str, batch_job: str) -> Jobs:
    names = Jobs()
    sample_jobs.submit(yard, folder, sample_jobs.learning(names.done, 0.5))
    changed = {"code": str(sample_jobs.changed_scripts(folder))}
    sample_jobs.submit(yard, folder, {**sample_jobs.learning(names.slower, 0.05), **changed})
    sample_jobs.submit(yard, folder, sample_jobs.learning(names.failed, 0.5, fail_at=12))
    sample_jobs.submit(yard, folder, sample_jobs.hostile(names.hostile))
    sample_jobs.submit(yard, folder, sample_jobs.sweep(names.sweep))
    sample_jobs.submit(yard, folder, sample_jobs.asha(names.asha))
    sample_jobs.submit(yard, folder, sample_jobs.pipeline(names.first_pipeline))
    yard.completed(names.first_pipeline)
    sample_jobs.submit(yard, folder, sample_jobs.pipeline(names.pipeline, "cubes"))
    yard.completed(names.pipeline)
    yard.completed(names.done)
    yard.completed(names.slower)
    for name in (names.failed, names.hostile):
        assert yard.wait(name)["status"] == "Failed"
    for name in (names.sweep, names.asha):
        assert yard.wait(name)["status"] == "Completed"
    sample_jobs.register_assets(yard, names.done)
    return names


@pytest.fixture(scope="session")
def endpoint(yard: Yard, folder: Path) -> Iterator[str]:
    """An endpoint that answers; it is gone before the server stops."""
    sample_jobs.deploy(yard, folder, "echo")
    yield "echo"
    yard("online-endpoint", "delete", "-n", "echo", "--yes")
    wait_until(lambda: not yard.get("online-endpoints")["value"], 120, "the endpoint is gone")


@pytest.fixture(scope="session")
def batch_job(yard: Yard, folder: Path) -> str:
    """The job of the batch endpoint `numbers`."""
    return sample_jobs.deploy_batch(yard, folder, "numbers")


@pytest.fixture(scope="session")
def server(yard: Yard) -> str:
    """The server's address, without a slash at its end."""
    url: str = json.loads((yard.home / "server.json").read_text())["url"]
    return url


@pytest.fixture(scope="session")
def signed_in(chromium: Any, yard: Yard) -> Any:
    """The cookies of the person who opened the link that `yard ui` prints."""
    return cookies_of(chromium, yard)


@pytest.fixture
def watched(server: str) -> Iterator[Watched]:
    watched = Watched(server)
    yield watched
    assert watched.faults == []


@pytest.fixture
def browse(chromium: Any, signed_in: Any, watched: Watched) -> Iterator[Any]:
    """Open a page in a window of a size and a theme of its own."""
    with ExitStack() as windows:

        def open_page(path: str, **look: Any) -> Any:
            page = windows.enter_context(window(chromium, signed_in, **look)).new_page()
            watched.watch(page)
            page.goto(watched.home + path)
            return page

        yield open_page
