"""Azure ML's SDK v1, real and unmodified: every operation, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operations import WORKS, Operation
from v1_operations import OPERATIONS
from yard_under_test import Yard

pytestmark = [pytest.mark.azure, pytest.mark.timeout(900)]


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.key)
def test_v1_operation(v1_results: dict[str, Any], one: Operation) -> None:
    found = v1_results.get(one.key)
    assert found is not None, "the client's process ended before"
    if one.outcome == WORKS:
        assert found["ok"], found["trace"]
        return
    assert not found["ok"], f"it was not refused: {found['value']}"
    assert one.how.lower() in found["error"].lower(), found["error"]


def test_numbers_are_those_of_yard(yard: Yard, v1_results: dict[str, Any]) -> None:
    run = v1_results["Runs: `Environment` with azureml-core; `submit` of a script that logs"]
    shown = json.loads(yard("job", "show", "-n", run["value"], "-o", "json"))
    numbers = {"loss": 1 / 3, "accuracy": 0.9}
    assert {key: shown["metrics"].get(key) for key in numbers} == numbers, shown["metrics"]
