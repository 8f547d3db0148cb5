from __future__ import annotations

import pytest

import torchyard
from torchyard.base import versions


@pytest.fixture(autouse=True)
def _server_of_1_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "USER_AGENT", "torchyard/1.4.2")
    monkeypatch.setattr(torchyard, "__version__", "1.4.2")
    versions.refusal.cache_clear()


@pytest.mark.parametrize(
    "user_agent",
    ["torchyard/1.4.0", "torchyard/1.3.9", "torchyard/1.5.0 (linux)", "curl/8.0", "", "torchyard"],
)
def test_who_is_answered(user_agent: str) -> None:
    assert versions.refusal(user_agent) is None


@pytest.mark.parametrize("version", ["1.2.9", "1.6.0", "0.4.2", "2.4.2"])
def test_who_is_refused_and_told_what_to_install(version: str) -> None:
    refusal = versions.refusal(f"torchyard/{version}")
    assert refusal is not None and refusal.code == "version_too_far"
    assert f"your torchyard is {version}:" in refusal.message
    assert "pip install torchyard==1.4.2" in refusal.hint


def test_a_version_without_end_is_not_read() -> None:
    assert versions.refusal(f"torchyard/1.{'9' * 5000}.0") is None
