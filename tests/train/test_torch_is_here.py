"""Whether the tests of torchyard.train can run."""

from __future__ import annotations

import importlib.util
import os

import pytest

pytestmark = pytest.mark.torch


def test_torch_is_installed_for_the_tests_of_train() -> None:
    if importlib.util.find_spec("torch") is None:
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail("torch is not installed")
        pytest.skip("torch is not installed: `make test-train` installs it")
