"""Modules are compiled after a build, beside the jobs that start meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from environments import builders, wheels
from environments.conftest import Machine, MakeEnvironments
from eventually import eventually
from torchyard.environments.assembly import Environments
from torchyard.environments.build import bytecode
from torchyard.environments.build import compiling as compiling_module
from torchyard.environments.types import EnvironmentSpec

# The larger one takes about a second to compile.
_SMALL, _LARGE = (
    "\n".join(f"def f{number}(x):\n    return [x + {number}, x]" for number in range(count))
    for count in (30, 20_000)
)


@contextmanager
def compiling(environments: Environments) -> Iterator[None]:
    environments.compiler.start()
    try:
        yield
    finally:
        environments.compiler.close()


def asked(environments: Environments, *requirements: str) -> EnvironmentSpec:
    return environments.resolver.resolve({"pip_requirements": list(requirements)})


def compiled(folder: Path) -> list[Path]:
    return sorted(folder.glob("lib/python3*/site-packages/alpha*/__pycache__/*.pyc"))


def is_marked(environments: Environments, spec: EnvironmentSpec) -> bool:
    paths = environments.folders.paths(spec.hash)
    return paths.compiled.exists() and paths.compiled.read_text() == paths.mark.read_text()


@pytest.fixture
def environments(make_environments: MakeEnvironments, machine: Machine) -> Environments:
    for name in ("alpha", "alphabet"):
        wheels.put(machine.wheels, name, "1.0", text=_SMALL)
    environments = make_environments()
    # A test must not wait until the machine has nothing else to do.
    environments.compiler.is_idle = False
    return environments


def test_a_build_ends_before_its_modules_are_compiled(environments: Environments) -> None:
    spec = asked(environments, "alpha")
    folder = environments.builds.run(spec)
    assert compiled(folder) == [] and not is_marked(environments, spec)
    assert "in the background" in environments.folders.log_path(spec.hash).read_text()
    environments.compiler.finish(spec.hash)
    assert len(compiled(folder)) == 1 and is_marked(environments, spec)
    assert folder.stat().st_mode & 0o222 == 0
    assert compiled(folder)[0].parent.stat().st_mode & 0o222 == 0
    assert not environments.folders.is_changed(spec)


def test_jobs_that_start_meanwhile_run_and_keep_nothing(environments: Environments) -> None:
    spec = asked(environments, "alpha")
    folder = environments.builds.run(spec)
    words = [str(folder / "bin" / "python"), "-B", "-c", "import alpha; print(alpha.f7(1))"]
    with compiling(environments):
        while not is_marked(environments, spec):
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            assert done.stdout == "[8, 1]\n"
    done = subprocess.run([*words[:2], "-v", *words[2:]], capture_output=True, text=True)
    assert f"{compiled(folder)[0]} matches" in done.stderr


def test_a_second_environment_compiles_nothing_again(environments: Environments) -> None:
    first, other = asked(environments, "alpha"), asked(environments, "alpha", "alphabet")
    with compiling(environments):
        one = environments.builds.run(first)
        eventually(lambda: is_marked(environments, first), "the modules are compiled")
        two = environments.builds.run(other)
        eventually(lambda: is_marked(environments, other), "the modules are linked")
    assert compiled(two)[0].samefile(compiled(one)[0])


_KILLED = """
environments.builds.run(spec)
environments.compiler.is_idle = False
environments.compiler.start()
print("ready", flush=True)
import time
time.sleep(600)
"""


def test_a_server_that_was_killed_has_its_compile_ended_and_the_next_one_goes_on(
    environments: Environments, machine: Machine
) -> None:
    names = [f"alpha{number}" for number in range(4)]
    for name in names:
        text = f"{_LARGE if name == names[-1] else _SMALL}\nNAME = {name!r}\n"
        wheels.put(machine.wheels, name, "1.0", text=text)
    server = builders.start(machine.home, machine.database, machine.variables, *names, then=_KILLED)
    spec = asked(environments, *names)
    folder = machine.home / "environments" / spec.hash
    try:
        eventually(lambda: compiled(folder), "a module is compiled", every_s=0.01)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()
    eventually(lambda: not _programs(machine), "the compile ended")
    before = {path: path.stat().st_ino for path in compiled(folder)}
    assert not is_marked(environments, spec)
    with compiling(environments):
        eventually(lambda: is_marked(environments, spec), "the modules are compiled")
    assert len(compiled(folder)) == len(names)
    assert {path: path.stat().st_ino for path in before} == before


def test_it_runs_only_when_nothing_else_wants_to(
    environments: Environments, machine: Machine
) -> None:
    spec = asked(environments, "alpha")
    environments.builds.run(spec)
    environments.compiler.is_idle = True
    with compiling(environments):
        eventually(
            lambda: os.SCHED_IDLE in map(_policy, _programs(machine)), "it has stepped aside"
        )
    assert _programs(machine) == []


def _policy(process: int) -> int:
    try:
        return os.sched_getscheduler(process)
    except ProcessLookupError:
        return -1


def _programs(machine: Machine) -> list[int]:
    """The programs of compiles that run on this machine for this test."""
    found = []
    root = bytes(machine.home)
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", number, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(root) and b"/.compiling-" in word for word in words):
            found.append(int(number))
    return found


def test_one_that_is_built_again_is_compiled_again(environments: Environments) -> None:
    spec = asked(environments, "alpha")
    folder = environments.builds.run(spec)
    environments.compiler.finish(spec.hash)
    assert environments.folders.remove(spec.hash, lambda connection: False)
    environments.builds.run(spec)
    assert not is_marked(environments, spec) and compiled(folder) == []
    environments.compiler.finish(spec.hash)
    assert is_marked(environments, spec)


def test_a_removal_needs_not_wait(environments: Environments) -> None:
    spec = asked(environments, "alpha")
    folder = environments.builds.run(spec)
    with compiling(environments):
        assert environments.folders.remove(spec.hash, lambda connection: False)
        environments.compiler.finish(spec.hash)
    assert not folder.exists() and not is_marked(environments, spec)


def test_a_store_that_cannot_be_written_is_told_once_and_the_environment_is_good(
    environments: Environments, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    spec = asked(environments, "alpha")
    folder = environments.builds.run(spec)
    store = machine.home / "cache" / "bytecode"
    store.parent.mkdir(exist_ok=True)
    store.write_text("not a folder")
    for _ in range(2):
        environments.compiler.finish(spec.hash)
    told = [record for record in caplog.records if "compiled no further" in record.getMessage()]
    assert len(told) == 1 and spec.hash[:12] in told[0].getMessage()
    assert environments.folders.find(spec) == folder and not environments.folders.is_changed(spec)


@pytest.mark.parametrize("script", ["echo no; exec cat /dev/zero", "exit 3", "exec >&-; sleep 600"])
def test_a_compiler_that_was_taken_over_ends_and_its_environment_is_not_marked(
    environments: Environments,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    script: str,
) -> None:
    spec = asked(environments, "alpha")
    folder = environments.builds.run(spec)
    monkeypatch.setattr(bytecode, "compile_command", lambda *_: ["sh", "-c", script])
    monkeypatch.setattr(compiling_module, "_EXIT_S", 0.1)
    environments.compiler.finish(spec.hash)
    assert "the program that compiles ended with" in caplog.text
    assert compiled(folder) == [] and not is_marked(environments, spec)


def test_somebody_who_waits_for_modules_asks_until_they_are_there(
    environments: Environments, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile it is compiled before those that were used later, as fast as any program."""
    wheels.put(machine.wheels, "large", "1.0", text=f"{_LARGE}\n" * 5)
    spec, long = asked(environments, "alpha"), asked(environments, "large")
    environments.builds.run(spec)
    environments.builds.run(long)
    assert environments.compiler.is_ready(spec.hash)  # nothing compiles here
    environments.compiler.is_idle = True
    with compiling(environments):
        eventually(lambda: environments.compiler.is_ready(spec.hash), "its turn has come")
        assert is_marked(environments, spec)
        monkeypatch.setattr(compiling_module, "_PATIENCE_S", 0.0)
        eventually(lambda: environments.compiler.is_ready(long.hash), "it has waited enough")


def test_requests_of_a_killed_server_are_removed(
    environments: Environments, machine: Machine
) -> None:
    spec = asked(environments, "alpha")
    environments.builds.run(spec)
    left = machine.home / "environments" / ".compiling-left"
    left.mkdir()
    (left / "request.json").write_text("{}")
    os.utime(left, (0, 0))
    environments.compiler.finish(spec.hash)
    assert not left.exists() and is_marked(environments, spec)


def test_a_new_environment_need_not_wait_until_another_is_compiled(
    environments: Environments, machine: Machine
) -> None:
    """At least what others have compiled is linked at once: its first job is about to start."""
    wheels.put(machine.wheels, "large", "1.0", text=f"{_LARGE}\n" * 5)
    shared, long, new = (
        asked(environments, *names) for names in (("alpha",), ("large",), ("alpha", "alphabet"))
    )
    environments.builds.run(shared)
    environments.compiler.finish(shared.hash)
    environments.builds.run(long)
    with compiling(environments):
        eventually(lambda: _programs(machine), "the long compile has begun")
        folder = environments.builds.run(new)
        eventually(lambda: compiled(folder), "modules are linked")
        assert not is_marked(environments, long)
