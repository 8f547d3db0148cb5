"""The page of whose things are is what the rules say."""

from __future__ import annotations

from pathlib import Path

import ownership_page
from torchyard.workspaces import ownership

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "ownership.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == ownership_page.page(), "run `make docs`"


def test_every_rule_of_the_module_is_in_the_table() -> None:
    rules = {value for value in vars(ownership).values() if isinstance(value, ownership.Rule)}
    assert rules == set(ownership.RULES)
