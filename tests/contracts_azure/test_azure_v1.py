"""Azure ML's SDK v1, real and unmodified: every operation, one by one."""

from __future__ import annotations

import json
from typing import Any

import all_operations
import client_venvs
import operations_page
import pytest
from operations import WORKS, Operation
from v1_equivalents import EQUIVALENTS
from v1_operations import OPERATIONS
from yard_under_test import Yard

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.key)
def test_v1_operation(v1_results: dict[str, Any], operation: Operation) -> None:
    result = v1_results.get(operation.key)
    assert result is not None, "the client's process ended before"
    if operation.outcome == WORKS:
        assert result["ok"], result["trace"]
        return
    assert not result["ok"], f"it was not refused: {result['value']}"
    assert operation.how.lower() in result["error"].lower(), result["error"]


def test_numbers_are_those_of_yard(yard: Yard, v1_results: dict[str, Any]) -> None:
    run = v1_results["Jobs: `Environment` with azureml-core; `submit` of a script that logs"]
    shown = json.loads(yard("job", "show", "-n", run["value"], "-o", "json"))
    numbers = {"loss": 1 / 3, "accuracy": 0.9}
    assert {key: shown["metrics"].get(key) for key in numbers} == numbers, shown["metrics"]


def test_v1_has_the_page_tell_what_was_seen(v1_results: dict[str, Any]) -> None:
    before = operations_page.PAGE.read_text()
    text = operations_page.page({client_venvs.SDK_V1: v1_results}, before)
    operations_page.write_if_asked(text)
    assert text == operations_page.PAGE.read_text(), "make it again with `make azure-page`"


def test_every_equivalent_names_existing_operations() -> None:
    v1_keys = {operation.key for operation in OPERATIONS}
    v2_keys = {operation.key for operation in all_operations.OPERATIONS}
    for section, pairs in EQUIVALENTS.items():
        assert {f"{section}: {call}" for call in pairs} <= v1_keys
        assert {f"{section}: {call}" for call in pairs.values()} <= v2_keys
