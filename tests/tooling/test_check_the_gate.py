"""The faults that are planted to see whether the gate catches them."""

from __future__ import annotations

import pytest

import check_the_gate
from check_the_gate import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_product_has_what_a_fault_changes(fault: Fault) -> None:
    assert (check_the_gate.ROOT / fault.file).read_text().count(fault.old) == 1
