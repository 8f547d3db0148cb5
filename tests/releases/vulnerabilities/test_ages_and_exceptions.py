"""What fails an audit, and what is excused."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.releases.vulnerabilities import audit
from torchyard.releases.vulnerabilities.osv import Vulnerability

NOW = datetime(2026, 6, 30, 12, tzinfo=timezone.utc)


def vulnerability(age_days: int | None, id: str = "CVE-1") -> Vulnerability:
    published = None if age_days is None else NOW - timedelta(days=age_days)
    return Vulnerability("torch", "2.0", (id, "GHSA-1"), "runs code", published, ("2.1",))


def excuse(review_by: date, **changes: Any) -> list[audit.Excuse]:
    entry = {
        "id": "CVE-1",
        "reason": "not reachable",
        "review_by": review_by.isoformat(),
        **changes,
    }
    return audit.read_exceptions([entry])


@pytest.mark.parametrize(
    ("age_days", "status"), [(0, "recent"), (30, "recent"), (31, "too old"), (None, "undated")]
)
def test_what_is_older_than_the_limit_fails(age_days: int | None, status: str) -> None:
    audited = audit.audit([vulnerability(age_days)], [], NOW)
    assert audited["findings"][0]["status"] == status
    assert audited["failed"] == (status != "recent")


def test_an_exception_excuses_up_to_its_day() -> None:
    audited = audit.audit([vulnerability(99)], excuse(NOW.date()), NOW)
    assert audited["failed"] == 0
    assert audited["excused"] == 1
    assert audited["findings"][0]["exception"]["reason"] == "not reachable"


def test_an_exception_past_its_day_excuses_nothing_and_fails_itself() -> None:
    past = NOW.date() - timedelta(days=1)
    audited = audit.audit([vulnerability(99)], excuse(past), NOW)
    assert audited["failed"] == 2
    assert audit.failures(audited) == [
        "torch 2.0: CVE-1 (99 days old, fixed in 2.1)",
        "exception CVE-1 was to be reviewed by 2026-06-29",
    ]
    # Also where there is nothing left to excuse.
    audited = audit.audit([], excuse(past), NOW)
    assert audited["failed"] == 1
    assert audit.failures(audited) == ["exception CVE-1 was to be reviewed by 2026-06-29"]


def test_an_exception_by_an_alias_and_for_another_package() -> None:
    by_alias = excuse(NOW.date(), id="GHSA-1")
    assert audit.audit([vulnerability(99)], by_alias, NOW)["failed"] == 0
    elsewhere = excuse(NOW.date(), package="numpy")
    audited = audit.audit([vulnerability(99)], elsewhere, NOW)
    assert audited["failed"] == 1
    assert audited["unused_exceptions"][0]["package"] == "numpy"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"id": "CVE-1", "review_by": "2027-01-01"}, "no `reason`"),
        ({"id": "CVE-1", "reason": "x"}, "no day by which it is reviewed"),
        ({"id": "CVE-1", "reason": "x", "review_by": "soon"}, "no day by which it is reviewed"),
        ({"id": "CVE-1", "reason": "x", "expires": "2027-01-01"}, "expires"),
        ("CVE-1", "not a mapping"),
    ],
)
def test_an_exception_needs_a_reason_and_a_day(entry: Any, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        audit.read_exceptions([entry])
