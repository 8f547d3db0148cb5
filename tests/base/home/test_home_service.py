"""Which server a home has when commands don't start it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard.base.home import home_service
from torchyard.base.home.home_service import HomeService

CGROUPS = "0::/system.slice/torchyard.service\n"


def test_what_is_recorded_is_read_until_it_is_taken_back(tmp_path: Path) -> None:
    service = HomeService("torchyard.service", "0.0.0.0")
    home_service.record(tmp_path, service)
    assert home_service.read(tmp_path) == service
    home_service.record(tmp_path, None)
    home_service.record(tmp_path, None)
    assert home_service.read(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "null", '{"unit": "x"}', "\xff"])
def test_a_broken_file_names_no_service(tmp_path: Path, text: str) -> None:
    (tmp_path / "service.json").write_text(text, "latin-1")
    assert home_service.read(tmp_path) is None


def test_the_unit_is_that_of_its_main_process_only() -> None:
    variables = {"SYSTEMD_EXEC_PID": str(os.getpid())}
    assert home_service.unit_of_this_process(variables, CGROUPS) == "torchyard.service"
    # A shell below a unit, as in a terminal or on a CI runner, passes the variable on.
    assert home_service.unit_of_this_process({"SYSTEMD_EXEC_PID": "1"}, CGROUPS) == ""
    assert home_service.unit_of_this_process(variables, "0::/\n") == ""
