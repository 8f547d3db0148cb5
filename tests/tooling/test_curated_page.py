"""The page of curated environments is what the records say."""

from __future__ import annotations

from pathlib import Path

import curated_page
from torchyard.environments.names import components, curated_environments

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "curated-environments.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == curated_page.page(), "run `make docs`"


def test_it_names_every_environment_component_and_gap() -> None:
    page = curated_page.page()
    for curated in curated_environments.every():
        assert f"| `{curated.name}` | {curated.version} |" in page
        if components.promises(curated):
            assert f"### {curated.name}:{curated.version}" in page
    for component in components.every():
        family = [c for c in curated_environments.every() if components.promises(c)]
        assert page.count(f"| {component.name} |") == len(family)
    for entry in components.unresolved():
        assert f"| `{entry.name}` |" in page
