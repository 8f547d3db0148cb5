"""What a command imports, which is what it costs to start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace

HEAVY = {
    "fastapi", "sqlalchemy", "pydantic", "alembic", "uvicorn", "torch", "mlflow", "rich", "yaml",
    "jmespath", "torchyard.server", "torchyard.executors", "torchyard.worker", "torchyard.base.db",
    "torchyard.base.blobs", "torchyard.jobs", "torchyard.environments", "torchyard.compute",
}  # fmt: skip
SCRIPT = """
import atexit, json, sys
sys.argv = ["yard", *json.loads(sys.argv[1])]
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from torchyard.cli.main import main
main()
"""


def imported(*arguments: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(arguments)], capture_output=True, timeout=60
    )
    names: list[str] = json.loads(ran.stderr.splitlines()[-1])
    # A package is its docstring; what it has stands in `feature` as texts, and costs nothing.
    packages = {name.removesuffix(".feature") for name in names if name.endswith(".feature")}
    with_more = {name.rpartition(".")[0] for name in names if not name.endswith(".feature")}
    return set(names) - (packages - with_more)


def test_help_imports_next_to_nothing() -> None:
    for flag in ("--help", "--version"):
        assert not {"click", "http.client", *HEAVY} & imported(flag)


@pytest.mark.parametrize(
    "arguments",
    [
        ("job", "list"),
        ("job", "--help"),
        ("compute", "list", "-o", "json"),
        ("workspace", "show"),
        ("server", "status"),
        ("data", "list"),
        ("model", "list"),
        ("datastore", "list"),
        ("job", "archive", "x"),
    ],
)
def test_light_commands_import_nothing_heavy(
    server: ServedWorkspace, yard: Yard, arguments: tuple[str, ...]
) -> None:
    assert not HEAVY & imported(*arguments)


def test_the_heaviest_command_knows_no_server(server: ServedWorkspace, yard: Yard) -> None:
    names = imported("job", "create", "-f", "nope.yml")
    assert HEAVY & names == {"yaml"}


def completed(monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    monkeypatch.setenv("_YARD_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    ran = subprocess.run(
        [sys.executable, "-m", "torchyard.cli.main"], capture_output=True, text=True, timeout=60
    )
    assert ran.stderr == ""
    return [line.removeprefix("plain,") for line in ran.stdout.splitlines() if line]


def test_shell_completion(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client() as client:
        client.jobs.create({"name": "brave-otter", "command": "x", "environment": "python"})
        Path("m.pt").write_bytes(b"weights")
        client.models.create({"name": "digits", "path": "m.pt"})
        client.computes.create({"name": "gpu-8", "type": "amlcompute"})
    assert completed(monkeypatch, "yard com") == ["compute", "component", "completion"]
    assert completed(monkeypatch, "yard job str") == ["stream"]
    assert completed(monkeypatch, "yard job show -n br") == ["brave-otter"]
    assert completed(monkeypatch, "yard job stream br") == ["brave-otter"]
    # With one name given, none is offered behind a flag or for the bare name.
    for verb in ("clone", "show", "top", "shell", "cancel"):
        assert completed(monkeypatch, f"yard job {verb} -n brave-otter ") == [], verb
    assert completed(monkeypatch, "yard job clone -n brave-otter --plot ") == []
    assert completed(monkeypatch, "yard model show -n ") == ["digits"]
    assert completed(monkeypatch, "yard compute delete g") == ["gpu-8"]
    monkeypatch.setenv("TORCHYARD_URL", "http://127.0.0.1:9")
    assert completed(monkeypatch, "yard job show -n br") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(yard: Yard, shell: str) -> None:
    answer = yard("completion", shell)
    assert answer.code == 0 and "_YARD_COMPLETE" in answer.text and answer.err == ""
