"""The page about installing names every dependency and every extra, and nothing else."""

from __future__ import annotations

import re
from importlib.metadata import metadata, requires
from pathlib import Path

from packaging.requirements import Requirement

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "install.md").read_text()
REQUIRED = [Requirement(line) for line in requires("torchyard") or ()]


def _named(section: str) -> set[str]:
    """What stands in the first column of a section's table."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return {name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in _words(row)}


def _words(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


def test_every_dependency_is_said_to_be_for_something() -> None:
    always = {each.name for each in REQUIRED if "extra" not in str(each.marker or "")}
    assert always and _named("What comes with it") == always


def test_no_dependency_has_an_upper_bound() -> None:
    bounds = {(each.name, bound.operator) for each in REQUIRED for bound in each.specifier}
    assert {operator for _, operator in bounds} == {">="}, bounds


def test_every_extra_is_in_the_table() -> None:
    assert _named("Extras") == set(metadata("torchyard").get_all("Provides-Extra") or ())
