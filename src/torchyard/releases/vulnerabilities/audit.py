"""What an environment's known vulnerabilities mean: their ages, what is excused, what fails.

Owns: the limit of age, exceptions and their end, the JSON of an audit.
Leaves: which versions are affected to osv.py, where entries lie to advisories.py.
Always: a vulnerability without a date counts as too old; an exception needs a reason and a day by
which it is reviewed, and is shown wherever it excuses something; after that day the audit fails,
whether or not it would still excuse something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from torchyard.base import fields
from torchyard.base.clock import to_text
from torchyard.base.errors import InvalidSpec
from torchyard.releases.vulnerabilities.osv import Vulnerability

MAX_AGE_DAYS = 30
_KEYS = ("id", "package", "reason", "review_by")
_LONGEST = 1000


@dataclass(frozen=True)
class Excuse:
    """Why a vulnerability is accepted until it is reviewed, on the day `review_by` at the latest.

    `package` may be empty.
    """

    id: str
    reason: str
    review_by: date
    package: str = ""

    def to_json(self) -> dict[str, str]:
        return {**vars(self), "review_by": self.review_by.isoformat()}


def read_exceptions(listed: Any, at: Sequence[str | int] = ("exceptions",)) -> list[Excuse]:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    if not isinstance(listed, list):
        raise InvalidSpec(
            "exceptions are not a list",
            "write `- {id: CVE-…, reason: …, review_by: 2027-01-31}`",
            at=at,
        )
    return [_read(entry, [*at, position]) for position, entry in enumerate(listed)]


def _read(entry: Any, at: Sequence[str | int]) -> Excuse:
    if not isinstance(entry, Mapping):
        raise InvalidSpec("an exception is not a mapping", f"it needs {_quote_keys(_KEYS)}", at=at)
    for key in entry:
        if key not in _KEYS:
            raise fields.unknown_key(str(key), _KEYS, tuple(at))
    texts = {}
    for key in ("id", "reason"):
        value = entry.get(key)
        if not isinstance(value, str) or not value.strip():
            raise InvalidSpec(
                f"an exception has no `{key}`",
                "write down which vulnerability is excused, and why",
                at=[*at, key],
            )
        texts[key] = value.strip()[:_LONGEST]
    package = str(entry.get("package") or "").strip()
    return Excuse(texts["id"], texts["reason"], _day(entry, at), package)


def _day(entry: Mapping[str, Any], at: Sequence[str | int]) -> date:
    value = entry.get("review_by")
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise InvalidSpec(
            f"exception `{entry.get('id')}` has no day by which it is reviewed",
            "write `review_by: 2027-01-31`",
            at=[*at, "review_by"],
        ) from None


def audit(
    vulnerabilities: Sequence[Vulnerability],
    exceptions: Sequence[Excuse],
    now: datetime,
    max_age_days: int = MAX_AGE_DAYS,
) -> dict[str, Any]:
    """The findings, each with its age and whether it fails; `failed` counts those that do, and the
    exceptions that should have been reviewed.
    """
    findings = [_finding(each, exceptions, now, max_age_days) for each in vulnerabilities]
    used = {finding["exception"]["id"] for finding in findings if finding["exception"]}
    overdue = [each for each in exceptions if each.review_by < now.date()]
    return {
        "max_age_days": max_age_days,
        "findings": findings,
        "failed": sum(finding["fails"] for finding in findings) + len(overdue),
        "excused": sum(finding["status"] == "excused" for finding in findings),
        "unused_exceptions": [each.to_json() for each in exceptions if each.id not in used],
        "overdue_exceptions": [each.to_json() for each in overdue],
    }


def _finding(
    vulnerability: Vulnerability,
    exceptions: Sequence[Excuse],
    now: datetime,
    max_age_days: int,
) -> dict[str, Any]:
    published = vulnerability.published
    age_days = None if published is None else max(0, (now - published).days)
    exception = _excusing(vulnerability, exceptions, now.date())
    if exception is not None and exception.review_by >= now.date():
        status = "excused"
    elif age_days is None:
        status = "undated"
    else:
        status = "too old" if age_days > max_age_days else "recent"
    return {
        "package": vulnerability.package,
        "version": vulnerability.version,
        "ids": list(vulnerability.ids),
        "summary": vulnerability.summary,
        "published": None if published is None else to_text(published),
        "age_days": age_days,
        "fixed": list(vulnerability.fixed),
        "status": status,
        "fails": status in ("too old", "undated"),
        "exception": None if exception is None else exception.to_json(),
    }


def _excusing(
    vulnerability: Vulnerability, exceptions: Sequence[Excuse], today: date
) -> Excuse | None:
    """The exception about it with the last day, even one that is past."""
    about = [
        each
        for each in exceptions
        if each.id in vulnerability.ids and each.package in ("", vulnerability.package)
    ]
    return max(about, key=lambda each: each.review_by, default=None)


def mended(
    before: Sequence[Vulnerability], audited: Mapping[str, Any], now: datetime
) -> list[dict[str, Any]]:
    """Those of the version before that are gone, each with its days from publication until now."""
    left = {(finding["package"], finding["ids"][0]) for finding in audited["findings"]}
    return [
        {
            "package": each.package,
            "version": each.version,
            "id": each.ids[0],
            "days": None if each.published is None else max(0, (now - each.published).days),
        }
        for each in before
        if (each.package, each.ids[0]) not in left
    ]


def failures(audited: Mapping[str, Any]) -> list[str]:
    """In words, each finding that fails, and each exception that should have been reviewed."""
    lines = []
    for finding in audited["findings"]:
        if not finding["fails"]:
            continue
        age = "no date" if finding["age_days"] is None else f"{finding['age_days']} days old"
        fixed = f", fixed in {', '.join(finding['fixed'])}" if finding["fixed"] else ""
        package = f"{finding['package']} {finding['version']}"
        lines.append(f"{package}: {finding['ids'][0]} ({age}{fixed})")
    for exception in audited["overdue_exceptions"]:
        lines.append(f"exception {exception['id']} was to be reviewed by {exception['review_by']}")
    return lines


def _quote_keys(keys: Sequence[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)
