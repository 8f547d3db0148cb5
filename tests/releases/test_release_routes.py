"""Validations, releases, schedules and advisories over HTTP: who may what, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from releases.release_lab import entry
from workspaces.served import HERE, Served, served

RELEASES = f"{HERE}/environment-releases"
VISION = f"{RELEASES}/vision"
SCHEDULE = f"{HERE}/release-schedules/vision"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        document = {"name": "vision", "pip_requirements": ["six"]}
        made.ok("carl", "POST", f"{HERE}/environments", document)
        yield made


def wrong(site: Served, method: str, path: str, body: Any = None, who: str = "carl") -> Any:
    answer = site.ask(who, method, path, body)
    assert answer.status_code in (400, 404, 409), answer.text
    error: Any = answer.json()
    return error.get("error", error)


def test_a_reader_sees_releases_and_begins_none(site: Served) -> None:
    made = site.ok("carl", "POST", f"{VISION}/release", {"only": ["interpreter"]})
    assert made["base"] == "vision:1"
    assert made["status"] == "NotStarted"
    listed = site.ok("rita", "GET", f"{RELEASES}?environment=vision")
    assert [row["job"] for row in listed["value"]] == [made["job"]]
    assert site.ok("rita", "GET", f"{RELEASES}/{made['job']}")["owner"] == "carl"
    for verb in ("release", "validate"):
        site.refused("rita", "POST", f"{VISION}/{verb}", {})
    site.refused("rita", "PUT", SCHEDULE, {"every_s": 86400})
    site.refused("rita", "PUT", f"{HERE}/advisories", {})


def test_a_release_is_a_job(site: Served) -> None:
    made = site.ok("carl", "POST", f"{VISION}/release", {})
    job = site.ok("carl", "GET", f"{HERE}/jobs/{made['job']}")
    assert job["type"] == "release"
    assert job["experiment_name"] == "release-vision"
    site.ok("carl", "POST", f"{HERE}/jobs/{made['job']}/cancel", {})
    canceled = site.ok("carl", "GET", f"{RELEASES}/{made['job']}")
    assert canceled["status"] == "CancelRequested"


def test_a_second_release_names_the_first(site: Served) -> None:
    made = site.ok("carl", "POST", f"{VISION}/release", {})
    error = wrong(site, "POST", f"{VISION}/release", {})
    assert made["job"] in error["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"only": ["fsdp3"]}, "no workload `fsdp3`"),
        ({"only": "fsdp2"}, "not a list"),
        ({"max_age_days": -1}, "number of days"),
        ({"exceptions": [{"id": "CVE-1"}]}, "no `reason`"),
        ({"workload": "x"}, "workload"),
        ({"compute": "nowhere"}, "nowhere"),
        ({"dry_run": "yes"}, "dry_run"),
    ],
)
def test_a_request_is_checked_key_by_key(site: Served, body: Any, message: str) -> None:
    assert message in wrong(site, "POST", f"{VISION}/release", body)["message"]


def test_what_a_release_can_not_resolve_again_is_refused(site: Served) -> None:
    name = "tensorflow-2.16-cuda12"
    error = wrong(site, "POST", f"{RELEASES}/{name}/release", {})
    assert "variables of Azure's image" in error["message"]


def test_an_old_version_is_not_released(site: Served) -> None:
    document = {"name": "vision", "pip_requirements": ["six", "packaging"]}
    site.ok("carl", "POST", f"{HERE}/environments", document)
    error = wrong(site, "POST", f"{VISION}/release", {"version": "1"})
    assert "`vision:1` is not the newest version" in error["message"]


def test_advisories_count_once_their_last_piece_came(site: Served) -> None:
    first = {"set": "0a" * 8, "entries": [entry("CVE-1", "six", "2026-01-01T00:00:00Z")]}
    assert not site.ok("carl", "PUT", f"{HERE}/advisories", first)["last"]
    second = {**first, "entries": [entry("CVE-2", "six", "2026-01-01T00:00:00Z")], "last": True}
    made = site.ok("carl", "PUT", f"{HERE}/advisories", second)
    assert made["count"] == 2
    assert site.ok("carl", "PUT", f"{HERE}/advisories", second)["count"] == 2
    other = {"set": "0b" * 8, "entries": [], "last": True}
    assert site.ok("carl", "PUT", f"{HERE}/advisories", other)["count"] == 0


def test_an_audit_needs_a_build(site: Served) -> None:
    error = wrong(site, "POST", f"{VISION}/audit", {})
    assert "never built here" in error["message"]


def test_schedules(site: Served) -> None:
    made = site.ok("carl", "PUT", SCHEDULE, {"every_s": 14 * 86400})
    assert made["environment"] == "vision"
    [listed] = site.ok("rita", "GET", f"{HERE}/release-schedules")["value"]
    assert listed["next_at"] == made["next_at"]
    assert "at most once an hour" in wrong(site, "PUT", SCHEDULE, {"every_s": 60})["message"]
    site.ok("carl", "DELETE", SCHEDULE)
    assert "has no schedule" in wrong(site, "DELETE", SCHEDULE)["message"]
