"""Azure ML's real clients, each in its own environment: every operation, one by one."""

from __future__ import annotations

from typing import Any

import client_venvs
import operations_page
import pytest
from all_operations import OPERATIONS
from operations import WORKS, Operation

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

Results = dict[str, dict[str, Any]]


@pytest.mark.parametrize("client", client_venvs.CLIENTS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.key)
def test_operation(results: Results, client: str, operation: Operation) -> None:
    result = results[client].get(operation.key)
    assert result is not None, "the client's process ended before"
    if client in operation.faulty:
        assert not result["ok"], "it works now: take it out of `faulty`"
        return
    if operation.outcome == WORKS:
        assert result["ok"], result["trace"]
        return
    assert not result["ok"], f"it was not refused: {result['value']}"
    message = result["error"].lower()
    assert operation.how.lower() in message, message
    assert "hint" in message, message


def test_the_page_tells_what_was_seen(results: Results) -> None:
    text = operations_page.page(results, operations_page.PAGE.read_text())
    operations_page.write_if_asked(text)
    assert text == operations_page.PAGE.read_text(), "make it again with `make azure-page`"
