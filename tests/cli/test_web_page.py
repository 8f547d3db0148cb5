"""`yard ui` and `--web`: links that sign in, and the browser that opens them."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.fake_server import FakeServer

SIGN_IN = "/ui/sign-in?code=abc&next="
LIST = "/ui/workspaces/default/jobs"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open; there is one on this machine."""
    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", urls.append)
    monkeypatch.setenv("BROWSER", "true")
    return urls


def test_ui_prints_a_link_and_opens_it(server: FakeServer, yard: Yard, opened: list[str]) -> None:
    answer = yard("ui")
    assert answer.code == 0 and answer.text == f"{server.url}{SIGN_IN}{LIST}\n"
    assert opened == [answer.text.strip()]
    other = json.loads(yard("ui", "--no-open", "-w", "a b", "-o", "json").out)
    assert other["url"] == f"{server.url}{SIGN_IN}/ui/workspaces/a%2520b/jobs"
    assert other["expires_at"] and len(opened) == 1


def test_over_ssh_the_link_is_printed_alone(
    server: FakeServer, yard: Yard, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BROWSER")
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")
    monkeypatch.setenv("DISPLAY", ":0")
    assert yard("ui").text.startswith(server.url) and not opened


@pytest.mark.parametrize("option", ["--web", "-e"])
def test_web_opens_the_jobs_page(
    server: FakeServer, yard: Yard, opened: list[str], option: str
) -> None:
    Path("job.yml").write_text("command: x\n")
    created = yard("job", "create", "-f", "job.yml", "-n", "mine", option, "-o", "json")
    assert created.code == 0, created.err
    page = f"{server.url}{SIGN_IN}{LIST}/mine"
    assert opened == [page] and page in created.err
    shown = yard("job", "show", "-n", "mine", option, "-o", "json")
    assert opened == [page] * 2 and page in shown.err
    link = json.loads(shown.out)["services"]["Studio"]["endpoint"]
    assert link == f"{server.url}{LIST}/mine"
    updated = yard("job", "update", "-n", "mine", "--description", "x", option, "-o", "none")
    assert updated.code == 0 and opened == [page] * 3
