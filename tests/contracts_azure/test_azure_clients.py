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
@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.key)
def test_operation(results: Results, client: str, one: Operation) -> None:
    found = results[client].get(one.key)
    assert found is not None, "the client's process ended before"
    if client in one.faulty:
        assert not found["ok"], "it works now: take it out of `faulty`"
        return
    if one.outcome == WORKS:
        assert found["ok"], found["trace"]
        return
    assert not found["ok"], f"it was not refused: {found['value']}"
    said = found["error"].lower()
    assert one.how.lower() in said, said
    assert "hint" in said, said


def test_the_page_tells_what_was_seen(results: Results) -> None:
    text = operations_page.page(results, operations_page.PAGE.read_text())
    operations_page.write_if_asked(text)
    assert text == operations_page.PAGE.read_text(), "make it anew with `make azure-page`"
