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


def excuse(expires: date, **changes: Any) -> list[audit.Excuse]:
    entry = {"id": "CVE-1", "reason": "not reachable", "expires": expires.isoformat(), **changes}
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


def test_an_exception_that_ended_excuses_nothing_and_is_shown() -> None:
    ended = NOW.date() - timedelta(days=1)
    audited = audit.audit([vulnerability(99)], excuse(ended), NOW)
    assert audited["failed"] == 1
    [line] = audit.failures(audited)
    assert line == (
        "torch 2.0: CVE-1 (99 days old, fixed in 2.1, its exception ended on 2026-06-29)"
    )


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
        ({"id": "CVE-1", "expires": "2027-01-01"}, "no `reason`"),
        ({"id": "CVE-1", "reason": "x"}, "no day on which it ends"),
        ({"id": "CVE-1", "reason": "x", "expires": "soon"}, "no day on which it ends"),
        ({"id": "CVE-1", "reason": "x", "expire": "2027-01-01"}, "expire"),
        ("CVE-1", "not a mapping"),
    ],
)
def test_an_exception_needs_a_reason_and_an_end(entry: Any, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        audit.read_exceptions([entry])
