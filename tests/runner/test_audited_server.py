"""A server at work starts and reads what docs/reference/started-programs.md says, and no more."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from environments import wheels
from runner import noted_starts
from runner.shared_site import ROOT, SharedSite, shared_site

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]

PAGE = ROOT / "docs" / "reference" / "started-programs.md"
# Its Python is one that uv is asked for.
OLD = {"dependencies": ["python=3.9.1", "pip"]}
DEFINITION = {"name": "vision", "version": "1", "pip_requirements": ["plain==1.0"]}


@pytest.fixture(scope="module")
def site() -> Iterator[SharedSite]:
    with shared_site() as site:
        hook, notes, store = (site.folder / name for name in ("hook", "notes", "store"))
        hook.mkdir(mode=0o755)
        shutil.copy(noted_starts.__file__, hook / "sitecustomize.py")
        notes.touch()
        store.mkdir()
        for path in (notes, store):
            shutil.chown(path, site.user("server"), site.user("server"))
        links = site.folder / "links"
        wheels.put(links, "plain", "1.0").chmod(0o644)
        links.chmod(0o755)
        site.environ = {"NOTED_STARTS": str(notes), "PYTHONPATH": str(hook)}
        site.environ |= {"UV_FIND_LINKS": str(links), "UV_NO_INDEX": "1"}
        site.start_server("--wheels", str(store))
        site.add_person("anna")
        yield site


def _rows(heading: str) -> dict[str, list[str]]:
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| ([^|]+) \|", section, re.MULTILINE)
    return {module: re.findall(r"`([^`]+)`", what) or [what.split()[0]] for module, what in rows}


def _notes(site: SharedSite) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.folder / "notes").read_text().splitlines()]


def _program(note: dict[str, Any]) -> str:
    """The program that was meant, also where base/leash.py's runs it."""
    words = note["words"]
    if words[1:4] == ["-I", "-S", "-c"] and "CHILD_SUBREAPER" in words[4]:
        return str(words[6])
    return str(note["program"])


def _hands(path: Path) -> set[int]:
    """The users who could have made a file, or put another in its place."""
    real = path.resolve()
    uids = set()
    for each in (real, *real.parents):
        status = each.stat()
        uids.add(status.st_uid)
        is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        assert not status.st_mode & 0o002 or is_sticky, f"anybody can change `{each}`"
    return uids


def _work(site: SharedSite) -> None:
    """Have it do what starts something: a build, wheels, patterns, an endpoint, an image."""
    site.ask("POST", "/v1/workspaces/default/environments", DEFINITION, "anna")
    name = site.submit("anna", "python -c 'import plain'", environment="vision:1")
    assert site.wait(name)["status"] == "Completed"
    properties = {"torchyard.retry.max_attempts": "2", "torchyard.retry.on": "log /no such/"}
    name = site.submit("anna", "exit 3", properties=properties)
    assert site.wait(name)["status"] == "Failed"
    endpoint = "/v1/workspaces/default/online-endpoints/digits"
    site.ask("PUT", endpoint, {"name": "digits", "auth_mode": "key"}, "anna")
    path = "/v1/workspaces/default/environments"
    site.ask("POST", f"{path}/resolve", {"environment": {"conda_file": OLD}}, "anna")
    plan = site.ask("POST", f"{path}/image", {"environment": "vision:1"}, "anna")
    for layer in plan["layers"]:
        body = {"environment": "vision:1", "hash": plan["hash"], "layer": layer}
        assert site.ask("POST", f"{path}/image/layer", body, "anna")


def test_a_server_starts_and_reads_nothing_else(site: SharedSite) -> None:
    _work(site)
    notes = _notes(site)
    started = [note for note in notes if "program" in note]
    assert {note["module"] for note in started} >= {
        "endpoints/running/router_process.py",
        "environments/images/libraries.py",
        "environments/packages/pythons.py",
        "jobs/spec/log_patterns.py",
    }
    programs, reads = _rows("Programs"), _rows("Configuration and pickles")
    allowed_uids = {0, site.uid("server")}
    for note in started:
        program = Path(shutil.which(_program(note)) or _program(note))
        patterns = programs.get(note["module"], [])
        assert any(fnmatch.fnmatch(program.name, pattern) for pattern in patterns), note
        assert _hands(program) <= allowed_uids, note
        assert not program.is_relative_to(site.node_folder / "environments"), note
        assert not program.is_relative_to(site.node_folder / "builds"), note
    for note in notes:
        if "file" in note:
            assert Path(note["file"]).name in reads.get(note["module"], []), note
        if "pickle" in note:
            assert "pickle" in reads.get(note["module"], []), note


def test_the_hook_notes_what_is_not_in_the_table(site: SharedSite, tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    package = tmp_path / "torchyard" / "evil.py"
    package.parent.mkdir()
    package.write_text(
        "import os, pickle, subprocess\n"
        "subprocess.run(['/bin/true'])\n"
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)\n"
        "pickle.loads(pickle.dumps(pickle.Pickler))\n"
    )
    notes = tmp_path / "notes"
    notes.touch()
    environ = {"NOTED_STARTS": str(notes), "PYTHONPATH": str(site.folder / "hook")}
    outcome = site.run_as("root", [str(site.program / "python"), str(package)], env=environ)
    assert outcome.returncode == 0, outcome.stderr
    seen = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [note["module"] for note in seen] == ["evil.py"] * 3
    assert [note["event"] for note in seen] == [
        "subprocess.Popen", "os.posix_spawn", "pickle.find_class",
    ]  # fmt: skip
