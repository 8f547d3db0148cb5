"""Which addresses `yard ui` and `yard server status` name for other machines."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer

FOR_OTHERS = ["https://10.0.0.5:8766", "https://[fd00::5]:8766"]


@pytest.fixture(scope="module", params=[FOR_OTHERS, []], ids=["listening", "alone"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("server"), node_urls=request.param)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def environment(served: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_URL", served.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", served.token)


def test_status_names_every_address_that_others_use(
    served: RealServer, yard: Yard, request: pytest.FixtureRequest
) -> None:
    addresses = request.node.callspec.params["served"]
    answer = yard("server", "status", "-o", "json")
    assert json.loads(answer.text)["addresses_for_others"] == addresses
    shown = yard("server", "status").text
    assert (", ".join(addresses) or "none") in shown


def test_the_link_of_the_page_is_printed_for_each_of_them(
    served: RealServer, yard: Yard, request: pytest.FixtureRequest
) -> None:
    addresses = request.node.callspec.params["served"]
    link = json.loads(yard("ui", "--no-open", "-o", "json").text)
    assert link["url"].startswith(served.url)
    path = link["url"].removeprefix(served.url)
    assert link["urls_for_others"] == [address + path for address in addresses]
    lines = yard("ui", "--no-open").text.splitlines()
    assert len(lines) == (2 if addresses else 1)
    assert all(address in lines[-1] for address in addresses)
