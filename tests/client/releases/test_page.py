"""The page of a version of an environment."""

from __future__ import annotations

from typing import Any

from torchyard.client.releases.page import page

VERSION: dict[str, Any] = {
    "name": "vision",
    "version": "2",
    "packages": ["torch==2.13.0+cpu", "six==1.17.0"],
    "created_at": "2026-11-28T01:00:00Z",
    "deprecated": "2027-10",
}
LABEL = {
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "cuda": "",
    "machine": "x86_64",
    "packages": {"torch": "2.13.0+cpu", "six": "1.17.0"},
    "variables": {},
    "differences": [],
}
WORKLOAD = {"status": "passed", "reason": "", "seconds": 1.25, "figures": {"accuracy": 0.97}}


def report(day: str, cpu: str = "a processor", **changes: Any) -> dict[str, Any]:
    return {
        "kind": "validation",
        "report": {
            "label": LABEL,
            "ended_at": f"2026-11-{day}T01:00:00Z",
            "hardware": [{"cpu": cpu, "cores": 2, "gpus": []}],
            "workloads": [{"name": "ddp-digits", **WORKLOAD, **changes}],
        },
    }


def finding(age_days: int | None, id: str, **changes: Any) -> dict[str, Any]:
    return {
        "package": "six",
        "version": "1.17.0",
        "ids": [id],
        "age_days": age_days,
        "status": "too old",
        "fixed": ["1.18"],
        "exception": None,
        **changes,
    }


def test_it_says_what_it_holds_and_until_when() -> None:
    text = page(VERSION, [report("27")])
    assert text.startswith("# vision:2\n")
    assert "| Python | 3.11.7 |" in text and "| torch | 2.13.0+cpu |" in text
    assert "| size | not known |" in text and "| deprecated from | 2027-10 |" in text
    assert "The environment answers what the label says: 2 packages" in text
    assert "`six==1.17.0`" in text


def test_of_each_workload_it_has_the_newest_result_on_each_kind_of_hardware() -> None:
    older, newest = report("20", figures={"accuracy": 0.5}), report("27")
    text = page(VERSION, [newest, older, report("21", "another", reason="it | fails")])
    rows = [line for line in text.splitlines() if line.startswith("| `ddp-digits`")]
    assert rows == [
        "| `ddp-digits` | passed | accuracy 0.97 | 1.2 | a processor, 2 cores | 2026-11-27 |",
        "| `ddp-digits` | passed | it \\| fails | 1.2 | another, 2 cores | 2026-11-21 |",
    ]


def test_vulnerabilities_are_sorted_by_age() -> None:
    excused = {"review_by": "2027-01-31", "reason": "only its server"}
    audit = {
        "packages": 2,
        "failed": 2,
        "excused": 1,
        "advisories": {"count": 9, "replaced_at": "2026-11-27T00:00:00Z"},
        "findings": [
            finding(3, "CVE-1", status="recent"),
            finding(None, "CVE-2", status="undated"),
            finding(90, "CVE-3", status="excused", exception=excused),
        ],
    }
    text = page(VERSION, [], audit)
    rows = [line for line in text.splitlines() if "CVE-" in line]
    assert rows == [
        "| not known | six 1.17.0 | CVE-2 | 1.18 | undated |",
        "| 90 | six 1.17.0 | CVE-3 | 1.18 | excused until 2027-01-31: only its server |",
        "| 3 | six 1.17.0 | CVE-1 | 1.18 | recent |",
    ]


def test_what_is_not_known_is_said() -> None:
    text = page(VERSION, [], why_no_audit="the workspace has no advisories")
    assert "the workspace has no advisories." in text
    assert "No validation of this version is stored" in text
    assert "No validation has compared this label" in text


def test_a_wrong_label_is_named() -> None:
    wrong = report("27")
    wrong["report"]["label"] = {
        **LABEL,
        "differences": ["Python is 3.10.1, and the label says 3.11"],
    }
    assert "The label is wrong: Python is 3.10.1, and the label says 3.11." in page(
        VERSION, [wrong]
    )
