"""Documents are found from the index, links lead somewhere, decisions are numbered."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs/decisions"
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")


def pages() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [name for name in listing.splitlines() if (ROOT / name).is_file()]


def without_code(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("name", pages())
def test_every_link_leads_somewhere(name: str) -> None:
    page = ROOT / name
    broken = []
    for path, anchor in LINK.findall(without_code(page.read_text())):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs/README.md"
    listed = {(index.parent / path).resolve() for path, _ in LINK.findall(index.read_text())}
    expected = {
        ROOT / name
        for name in pages()
        if name.startswith("docs/") and not name.startswith("docs/decisions/")
    } | {DECISIONS / "README.md"}
    assert expected - listed - {index} == set()


def test_decisions_are_numbered_without_holes() -> None:
    numbers = sorted(path.name[:4] for path in DECISIONS.glob("[0-9]*.md"))
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]


@pytest.mark.parametrize(
    "page", sorted(DECISIONS.glob("[0-9]*.md")), ids=lambda page: page.name[:4]
)
def test_a_decision_has_a_status_and_a_line_in_the_index(page: Path) -> None:
    title, _, status = page.read_text().splitlines()[:3]
    number, name = page.name[:4], title[len("# 0000 ") :]
    assert title == f"# {number} {name}"
    assert re.match(r"Status: (accepted|superseded by \d{4})\b", status)
    assert (
        f"| {number} | [{name}]({page.name}) | {status[len('Status: ') :].rstrip('.')} |"
        in (DECISIONS / "README.md").read_text().splitlines()
    )
