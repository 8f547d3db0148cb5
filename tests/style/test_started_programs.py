"""docs/reference/started-programs.md names every module that starts programs or unpickles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "torchyard"
PAGE = ROOT / "docs" / "reference" / "started-programs.md"
# Other programs than the server: what people type, what runs on nodes, in jobs and in instances,
# and the runner, which is root's.
ELSEWHERE = (
    "base/leash.py",
    "batch_endpoints/running/in_job/",
    "cli/",
    "client/",
    "endpoints/running/in_instance/",
    "environments/build/bytecode_program.py",
    "environments/contents.py",
    "environments/selftest/",
    "executors/bootstrap_program.py",
    "executors/ray/bridge_program.py",
    "local_program/",
    "node_agent/",
    "releases/workloads/",
    "runner/",
    "train/",
    "worker/",
)
STARTING = {
    "subprocess": {"run", "Popen", "call", "check_call", "check_output", "getoutput"},
    "os": {"system", "popen", "posix_spawn", "posix_spawnp", "fork", "forkpty"},
    "leash": {"run", "command"},
    "multiprocessing": {"Process", "Pool"},
    "pty": {"spawn", "fork"},
    "runpy": {"run_path", "run_module"},
    "importlib.util": {"spec_from_file_location"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
}
UNPICKLING = {
    module: {"load", "loads", "Unpickler"} for module in ("pickle", "marshal", "joblib", "shelve")
} | {"torch": {"load"}, "yaml": {"load", "unsafe_load", "full_load"}}


def _rows(heading: str) -> dict[str, str]:
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([\w/]+\.py)` \| ([^|]+) \|", section, re.MULTILINE))


def _calls(file: Path, wanted: dict[str, set[str]]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and wanted.get(node.module or ""):
            # `from subprocess import run` would hide who calls it.
            yield from (name.name for name in node.names if name.name in wanted[str(node.module)])
        if not isinstance(node, ast.Attribute):
            continue
        module = ast.unparse(node.value)
        if node.attr in wanted.get(module, ()) or (module == "os" and _is_exec(node.attr, wanted)):
            yield f"{module}.{node.attr}"


def _is_exec(name: str, wanted: dict[str, set[str]]) -> bool:
    return "os" in wanted and name.startswith(("exec", "spawn"))


def _modules(wanted: dict[str, set[str]]) -> set[str]:
    names = set()
    for file in SOURCE.rglob("*.py"):
        name = file.relative_to(SOURCE).as_posix()
        if not name.startswith(ELSEWHERE) and any(_calls(file, wanted)):
            names.add(name)
    return names


def test_the_table_names_every_module_that_starts_a_program() -> None:
    # Of a part that isn't the server's these two are used by it, too.
    elsewhere = {"base/leash.py", "worker/system/mounts.py"}
    assert _modules(STARTING) == set(_rows("Programs")) - elsewhere


def test_the_table_names_every_module_that_unpickles() -> None:
    pickles = {
        name for name, what in _rows("Configuration and pickles").items() if what == "pickle"
    }
    assert _modules(UNPICKLING) == pickles


@pytest.mark.parametrize("heading", ["Programs", "Configuration and pickles"])
def test_its_modules_exist(heading: str) -> None:
    assert [name for name in _rows(heading) if not (SOURCE / name).exists()] == []
