"""`yard configure`: the user's defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace
from torchyard.base import settings
from torchyard.client.connection import default_workspace


def workspace() -> str:
    """The one that commands in this folder mean."""
    return default_workspace(settings.read(), Path.cwd())


def listed(yard: Yard) -> dict[str, str]:
    rows = json.loads(yard("configure", "--list-defaults", "-o", "json").out)
    return {row["name"]: row["value"] for row in rows}


def test_the_default_workspace_is_that_of_every_folder(yard: Yard) -> None:
    assert workspace() == "default"
    assert listed(yard) == {}
    answer = yard("configure", "--defaults", "group=research", "workspace=vision")
    assert answer.code == 0 and "vision" in answer.text
    assert listed(yard) == {"workspace": "vision", "group": "research"}
    assert workspace() == "vision"
    # No server is started.
    assert [file.name for file in (Path.cwd().parent / "home").iterdir()] == ["defaults.json"]
    assert yard("configure", "-d", "group=", "location=here").code == 0
    assert listed(yard) == {"workspace": "vision", "location": "here"}
    assert yard("configure", "--defaults", "workspace=").code == 0
    assert workspace() == "default"


def test_nearer_names_of_a_workspace_win(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    yard("configure", "--defaults", "workspace=vision")
    folder = Path(".azureml")
    folder.mkdir()
    (folder / "config.json").write_text('{"workspace_name": "speech"}')
    assert workspace() == "speech"
    monkeypatch.setenv("TORCHYARD_WORKSPACE", "text")
    assert workspace() == "text"


def test_a_workspace_that_a_running_server_does_not_have_is_told(
    yard: Yard, server: ServedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHYARD_WORKSPACE")
    answer = yard("configure", "-d", "workspace=default")
    assert (answer.code, answer.err) == (0, "")
    answer = yard("configure", "-d", "workspace=defualt")
    assert answer.code == 0
    assert "workspace `defualt` does not exist; did you mean `default`?" in answer.err
    answer = yard("configure", "-d", "workspace=speech")
    assert "yard workspace create -n speech" in answer.err
    assert workspace() == "speech"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--defaults", "workspce=a", "vm=b"], "`workspce`, `vm`", "did you mean `workspace`?"),
        (["--defaults", "acr=a"], "`acr`", "defaults: workspace, group, location"),
        (["--defaults", "vision"], "`vision` sets no default", "workspace=NAME"),
        ([], "nothing to configure", "--list-defaults"),
    ],
)
def test_what_is_no_default_is_refused(
    yard: Yard, words: list[str], message: str, hint: str
) -> None:
    answer = yard("configure", *words)
    assert answer.code == 2 and message in answer.err and hint in answer.err
    assert listed(yard) == {}


def test_a_file_that_is_something_else_is_named(yard: Yard) -> None:
    home = Path.cwd().parent / "home"
    home.mkdir()
    for content in ("[]", "{", '{"workspace": 3}'):
        (home / "defaults.json").write_text(content)
        answer = yard("configure", "--list-defaults")
        assert answer.code == 2 and "defaults.json` is not what `yard configure`" in answer.err
