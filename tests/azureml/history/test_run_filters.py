"""The run history's filters: what they mean, and that no filter takes long or nests too deep."""

from __future__ import annotations

from typing import Any

import pytest

import steps
from torchyard.azureml.history import run_filters
from torchyard.base.errors import InvalidInput
from torchyard.jobs.records.job_candidates import Having

RUN: dict[str, Any] = {
    "runId": "a",
    "status": "Failed",
    "displayName": "it's (here)",
    "createdUtc": "2026-11-22T18:00:00.0000000+00:00",
    "tags": {"k": 'say "hi"', "a b": "v w", "mark": None, "loss (eq 1)": "C:\\new"},
    "properties": None,
}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("  ", True),
        ("RunId eq a", True),
        ("runid EQ b or Status eq Failed", True),
        ("RunId eq b or Status eq Failed and RunId eq b", False),
        ("(RunId eq b or Status eq Failed) and RunId eq a", True),
        ("(RunId eq b or (Status eq Failed and RunId eq a))", True),
        ("DisplayName eq 'it''s (here)'", True),
        (r'Tags/k eq "say \"hi\""', True),
        ("Tags/k ne null", True),
        ("Tags/x ne null or Tags/x eq null", False),
        ("(Tags/mark ne null or Tags/mark eq null)", True),
        ("Tags/mark eq null", True),
        ("Tags/k eq null", False),
        ('Tags/mark eq "null"', False),
        ("(Tags/a b ne null or Tags/a b eq null)", True),
        ('((Tags/a b eq "v w") and (ParentRunId eq null))', True),
        ('((Tags/a b eq "v") and (ParentRunId eq null))', False),
        ("(Tags/a b eq v w) and RunId eq a", True),
        ('(Tags/k eq "say "hi"") and RunId eq a', True),
        ('Tags/loss (eq 1) eq "C:\\new"', True),
        ("(CreatedUtc ge 2026-11-01 00:00:00)", True),
        ("(CreatedUtc ge 2026-12-01 00:00:00)", False),
        ("Properties/x eq 1", False),
        ("parentRunId eq null", True),
        ("RunId ge a and RunId lt b", True),
        ("RunId eq o'brien", False),
    ],
)
def test_a_filter_says_whether_a_run_fits(text: str, fits: bool) -> None:
    assert run_filters.read(text)(RUN) is fits


@pytest.mark.parametrize(
    "text",
    [
        "RunId",
        "RunId eq",
        "RunId like a",
        "(RunId eq a",
        "RunId eq a)",
        "()",
        "RunId eq a RunId eq b",
        "RunId eq a or",
        "RunId eq 'a",
        '"',
        'Tags/a b eq "c',
        "a b eq c",
        "Tags/" + " " * 40_000 + "x",
        "Tags/k eq " + '"' * 40_000 + "a",
        " eq" * 20_000,
        "'" * 40_000 + "a",
        " " * 40_000 + "a",
        '"\\' * 20_000,
        "(" * 40_000,
        "(" * 51 + "RunId eq a" + ")" * 51,
        " or ".join(["RunId eq a"] * 501),
        "a" * 70_000,
    ],
    ids=lambda text: f"{text[:20]} {len(text)}",
)
def test_what_can_not_be_read_is_refused_at_once(text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        steps.at_most(1_000_000, lambda: run_filters.read(text))
    assert len(refusal.value.message) < 400


def test_long_filters_of_short_conditions_are_read() -> None:
    text = " or ".join(f"RunId eq b{number}" for number in range(499))
    assert not run_filters.read(text)(RUN)
    assert run_filters.read(f"{text} or RunId eq a")(RUN)


@pytest.mark.parametrize(
    ("text", "requires"),
    [
        ("RunId eq a", [("name", "", ("a",))]),
        ("runid eq a or RunId eq b", [("name", "", ("a", "b"))]),
        ("RunId eq a or Status eq Failed", []),
        ("RunId ne a", []),
        ("ParentRunId eq a", [("parent", "", ("a",))]),
        ("ParentRunId eq null", []),
        (
            "(Status eq Failed and Tags/k eq v) or (Tags/k eq w and Status eq Running)",
            [("status", "", ("Failed", "Running")), ("tag", "k", ("v", "w"))],
        ),
        ("Tags/k ne null or Tags/k eq null", [("tag", "k", None)]),
        ("Tags/k eq v or Tags/k gt w", [("tag", "k", None)]),
        ("Properties/k eq v", []),
        # Stars may stand for a secret.
        ("Tags/k eq '**'", [("tag", "k", None)]),
        ("Tags/*** eq v", []),
    ],
)
def test_a_filter_says_what_every_job_that_fits_has(
    text: str, requires: list[tuple[str, str, tuple[str, ...] | None]]
) -> None:
    assert list(run_filters.read(text).requires) == [Having(*each) for each in requires]
