"""The built site: links hold, nothing is fetched from elsewhere, Chromium reads and searches it.

Owns: a build of its own for the session, opened from the disk without a server.
Leaves: links between Markdown files, as GitHub shows them, to tooling/test_documents.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from documentation.snippets import ROOT
from web_page.browsing import Watched, started_chromium

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(300)]

WIDTHS = (1280, 390)


@pytest.fixture(scope="session")
def docs_site() -> Any:
    """The module that builds it; Zensical needs Python 3.11."""
    if sys.version_info < (3, 11) or find_spec("zensical") is None:
        assert os.environ.get("TORCHYARD_TEST_SERVICES") != "required", "run `make docs-site`"
        pytest.skip("`make docs-site` installs Zensical")
    import docs_site

    return docs_site


@pytest.fixture(scope="session")
def site(docs_site: Any) -> Path:
    docs_site.build()
    built: Path = docs_site.SITE
    return built


# A module's, since a process has one Playwright at a time, and tests/web_page starts another.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with started_chromium() as browser:
        yield browser


@pytest.fixture(params=WIDTHS)
def page(request: pytest.FixtureRequest, chromium: Any, site: Path) -> Iterator[Any]:
    """The first page, opened from the disk; the browser is offline."""
    context = chromium.new_context(
        viewport={"width": request.param, "height": 900}, offline=True, reduced_motion="reduce"
    )
    context.set_default_timeout(30_000)
    watched = Watched(site.as_uri())
    page = context.new_page()
    watched.watch(page)
    page.goto((site / "index.html").as_uri())
    yield page
    folder = os.environ.get("TORCHYARD_KEEP_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{request.node.name}.png")
    context.close()
    assert watched.faults == []


def is_narrow(page: Any) -> bool:
    return bool(page.viewport_size["width"] < 960)


def test_a_word_is_found_offline_and_leads_to_its_page(page: Any) -> None:
    button = "label.md-header__button[for=__search]" if is_narrow(page) else ".md-search__button"
    page.locator(button).click()
    page.locator("input[role=combobox]").fill("preemption_grace")
    page.locator("a[role=option][href*='guides/clusters.html']").first.click()
    page.wait_for_url("**/guides/clusters.html*")
    assert page.locator("h1").inner_text().startswith("Clusters")


def test_the_navigation_leads_through_the_site(page: Any) -> None:
    if is_narrow(page):
        page.locator("label.md-header__button[for=__drawer]").click()
    navigation = page.locator("nav.md-nav--primary" if is_narrow(page) else "nav.md-tabs")
    navigation.get_by_text("Tutorial", exact=True).click()
    page.wait_for_url("**/tutorial.html")
    page.get_by_role("link", name="coming from Azure ML", exact=True).click()
    page.wait_for_url("**/coming-from-azure-ml.html")
    assert page.locator("h1").inner_text().startswith("Coming from Azure ML")


@pytest.mark.parametrize(
    "path", ["index", "tutorial", "comparison", "reference/commands", "reference/job-file"]
)
def test_no_page_is_wider_than_its_window(page: Any, site: Path, path: str) -> None:
    page.goto((site / f"{path}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_first_page_fits_a_screen(page: Any) -> None:
    if not is_narrow(page):
        last = page.get_by_role("link", name="comparison", exact=True).last
        assert last.bounding_box()["y"] < 900


def test_dark_and_light_are_the_readers_choice(page: Any) -> None:
    colors = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.reload()
        colors.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colors[0] != colors[1]


def test_a_page_loads_nothing_from_another_host(docs_site: Any, site: Path, tmp_path: Path) -> None:
    assert docs_site.foreign_loads(site) == []
    (tmp_path / "planted.html").write_text('<script src="https://cdn.example.org/x.js"></script>')
    (tmp_path / "planted.css").write_text("@import url(https://fonts.example.org/inter.css);")
    (tmp_path / "harmless.html").write_text('<a href="https://example.org">read on</a>')
    assert [load.split(":")[0] for load in docs_site.foreign_loads(tmp_path)] == [
        "planted.css",
        "planted.html",
    ]


def test_links_that_lead_nowhere_fail_the_build(docs_site: Any, site: Path, tmp_path: Path) -> None:
    pages = tmp_path / ".docs-site/pages"
    shutil.copytree(docs_site.PAGES, pages)
    shutil.copytree(ROOT / "tools/site", tmp_path / "tools/site")
    shutil.copyfile(ROOT / "zensical.toml", tmp_path / "zensical.toml")
    docs_site.render(tmp_path)
    (pages / "index.md").write_text("[a](guides/none.md) [b](guides/sweeps.md#none) [c](#none)\n")
    with pytest.raises(docs_site.SiteError, match="3 issues found"):
        docs_site.render(tmp_path)


def test_a_link_to_a_file_that_is_not_there_is_refused(docs_site: Any) -> None:
    source = ROOT / "docs/index.md"
    with pytest.raises(docs_site.SiteError, match=r"none\.md` does not exist"):
        docs_site.relinked("See [a](guides/none.md).", source, {source: "index.md"})


def test_a_link_to_a_file_off_the_site_leads_to_the_repository(docs_site: Any) -> None:
    source = ROOT / "docs/guides/ray.md"
    text = docs_site.relinked("[a](../../Makefile#L1)", source, {source: "guides/ray.md"})
    assert text == f"[a]({docs_site.repository()}/blob/main/Makefile#L1)"


def test_what_continues_a_numbered_item_stays_in_it(docs_site: Any) -> None:
    text = "1. One:\n\n   ```\n   a\n   ```\n\n2. Two\n\n    not of it\n\nEnd\n   same\n"
    deepened = docs_site.deepened(text)
    assert deepened.startswith("1. One:\n\n    ```\n    a\n    ```\n\n2. Two\n")
    assert deepened.endswith("End\n   same\n")
