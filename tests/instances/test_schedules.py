"""Cron expressions, recurrences and documents of compute instances."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.instances import cron, documents, schedules
from torchyard.instances.types import Schedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("expression", "moment", "fits"),
    [
        ("30 8 * * 1-5", "2026-11-23T08:30", True),  # a Monday
        ("30 8 * * 1-5", "2026-11-22T08:30", False),
        ("30 8 * * mon-fri", "2026-11-23T08:31", False),
        ("*/15 * * * *", "2026-11-23T10:45", True),
        ("*/15 * * * *", "2026-11-23T10:46", False),
        ("0 0 1,15 * *", "2026-11-15T00:00", True),
        ("0 0 1 * 0", "2026-11-22T00:00", True),  # either day, where both are restricted
        ("0 0 1 * 7", "2026-11-22T00:00", True),
        ("0 12 * feb *", "2026-11-22T12:00", False),
        ("5-20/5 3 * * *", "2026-11-22T03:15", True),
        ("5-20/5 3 * * *", "2026-11-22T03:25", False),
    ],
)
def test_a_cron_expression_fits_its_minutes(expression: str, moment: str, fits: bool) -> None:
    assert cron.parse(expression).fits(datetime.fromisoformat(moment)) is fits


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *", "* " * 5000],
)
def test_a_cron_expression_that_is_none_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput, match="not a cron expression"):
        cron.parse(expression)


def schedule(action: str = "start", **trigger: Any) -> Schedule:
    document = {
        "name": "lab",
        "type": "computeinstance",
        "schedules": {"compute_start_stop": [{"action": action, "trigger": trigger}]},
    }
    return documents.read(document).schedules[0]


def test_a_recurrence_knows_days_weeks_and_time_zones() -> None:
    weekly = schedule(
        type="recurrence",
        frequency="week",
        interval=2,
        start_time="2026-11-02T00:00:00",
        time_zone="Europe/Berlin",
        schedule={"hours": [9], "minutes": [30], "week_days": ["monday", "friday"]},
    ).trigger
    assert schedules.fits(weekly, at("2026-11-16T08:30"))  # 9:30 in Berlin, two weeks later
    assert schedules.fits(weekly, at("2026-11-20T08:30"))
    assert not schedules.fits(weekly, at("2026-11-16T09:30"))
    assert not schedules.fits(weekly, at("2026-11-09T08:30"))
    assert not schedules.fits(weekly, at("2026-10-19T07:30"))
    daily = schedule(type="recurrence", frequency="day", interval=1, schedule={"hours": 7}).trigger
    assert schedules.fits(daily, at("2026-01-05T07:00"))
    assert not schedules.fits(daily, at("2026-01-05T08:00"))
    pacific = schedule(
        type="cron", expression="0 8 * * *", time_zone="Pacific Standard Time"
    ).trigger
    assert schedules.fits(pacific, at("2026-01-05T16:00"))


def test_the_last_of_what_was_missed_counts_and_nothing_older_than_a_day() -> None:
    start = schedule("start", type="cron", expression="0 8 * * *")
    stop = schedule("stop", type="cron", expression="0 18 * * *")
    both = [start, stop]
    day = at("2026-11-23T07:59")
    assert schedules.due(both, day, at("2026-11-23T08:00:30")) == "start"
    assert schedules.due(both, at("2026-11-23T08:00:30"), at("2026-11-23T08:05")) == ""
    assert schedules.due(both, day, at("2026-11-23T19:00")) == "stop"
    assert schedules.due([start], at("2026-11-01T00:00"), at("2026-11-23T07:00")) == "start"
    once = schedule("start", type="cron", expression="0 8 1 * *")
    assert schedules.due([once], at("2026-11-01T00:00"), at("2026-11-23T07:00")) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "x"}, "not a valid compute name"),
        ({"ssh_settings": {"ssh_key_value": "k"}}, "`ssh_settings` is not served"),
        ({"enable_root_access": False}, "is not served"),
        ({"setup_scripts": {"creation_script": {}}}, "`setup_scripts` is not served"),
        ({"max_instances": 3}, "max_instances"),
        ({"idle_time_before_shutdown": "soon"}, "idle_time_before_shutdown"),
        ({"idle_time_before_shutdown_minutes": -1}, "idle_time_before_shutdown_minutes"),
        ({"schedules": {"compute_start_stop": [{"action": "x"}]}}, "`action`"),
        (
            {
                "schedules": {
                    "compute_start_stop": [
                        {"action": "stop", "trigger": {"type": "cron", "expression": "no"}}
                    ]
                }
            },
            "not a cron",
        ),
        (
            {
                "schedules": {
                    "compute_start_stop": [
                        {
                            "action": "stop",
                            "trigger": {"expression": "0 8 * * *", "time_zone": "Mars/Base"},
                        }
                    ]
                }
            },
            "not a time zone",
        ),
        ({"torchyard": {"clutter": "x"}}, "clutter"),
    ],
)
def test_what_is_wrong_with_an_instance_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        documents.read({"name": "my-lab", "type": "computeinstance", **change})


def test_azures_idle_time_is_understood() -> None:
    document = {"name": "lab", "idle_time_before_shutdown": "PT1H30M"}
    assert documents.read(document).idle_minutes == 90
