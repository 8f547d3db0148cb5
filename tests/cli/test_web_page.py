"""`yard ui` and `--web`: links that sign in, and the browser that opens them."""

from __future__ import annotations

import json
import re
import webbrowser
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace

SIGN_IN = r"/ui/sign-in\?code=[\w-]+&next="


def leads_to(page: str, url: str, server: ServedWorkspace) -> bool:
    """Whether a link signs in and shows a page of the workspace then."""
    pattern = f"{server.url}{SIGN_IN}/ui/workspaces/{server.name}/{page}"
    return re.fullmatch(pattern, url) is not None


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open; there is one on this machine."""
    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", urls.append)
    monkeypatch.setenv("BROWSER", "true")
    return urls


def test_ui_prints_a_link_and_opens_it(
    server: ServedWorkspace, yard: Yard, opened: list[str]
) -> None:
    answer = yard("ui")
    assert answer.code == 0 and leads_to("jobs", answer.text.strip(), server)
    assert opened == [answer.text.strip()]
    other = json.loads(yard("ui", "--no-open", "-w", "a b", "-o", "json").out)
    assert other["url"].endswith("&next=/ui/workspaces/a%2520b/jobs")
    assert other["expires_at"] and len(opened) == 1


def test_over_ssh_the_link_is_printed_alone(
    server: ServedWorkspace, yard: Yard, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BROWSER")
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")
    monkeypatch.setenv("DISPLAY", ":0")
    assert yard("ui").text.startswith(server.url) and not opened


@pytest.mark.parametrize("option", ["--web", "-e"])
def test_web_opens_the_jobs_page(
    server: ServedWorkspace, yard: Yard, opened: list[str], option: str
) -> None:
    Path("job.yml").write_text("command: x\nenvironment: python\n")
    created = yard("job", "create", "-f", "job.yml", "-n", "mine", option, "-o", "json")
    assert created.code == 0, created.err
    assert leads_to("jobs/mine", opened[0], server) and opened[0] in created.err
    shown = yard("job", "show", "-n", "mine", option, "-o", "json")
    assert leads_to("jobs/mine", opened[1], server) and opened[1] in shown.err
    link = json.loads(shown.out)["services"]["Studio"]["endpoint"]
    assert link == f"{server.url}/ui/workspaces/{server.name}/jobs/mine"
    updated = yard("job", "update", "-n", "mine", "--description", "x", option, "-o", "none")
    assert updated.code == 0 and len(opened) == 3 and leads_to("jobs/mine", opened[2], server)
