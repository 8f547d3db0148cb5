"""What every engine must keep beside starting nodes; each one's tests inherit these.

Owns: describing, releasing, probing, closing.
Leaves: launch, status, stop and recover to executor_contract.py, whole jobs to
executors/engine_contract.py.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eventually import LIMIT_S, PATIENCE, eventually
from torchyard.executors.executor import Engine, EngineUnreachable, Handle, Probing
from torchyard.shared.plan import LaunchPlan

T = TypeVar("T")
# Longer than any test: what waits for its end is seen.
_LONG_S = 3600.0
_STATES = {"idle", "running", "draining", "down", "joining"}


class EngineUnderTest(ABC):
    """An engine, and what a test has to know of its cluster.

    Attributes:
        settings: the cluster's, as its document's `torchyard:` has them.
        secrets: what nobody reads in a handle or a description, beside the tokens of plans.
        lacks: the verbs of `Engine` and `Probing` that it does not have by design, and why.
    """

    settings: Mapping[str, Any] = {}
    secrets: Sequence[str] = ()
    lacks: Mapping[str, str] = {}

    @abstractmethod
    def open(self) -> Any:
        """The engine, as a server that was just started has it."""

    def plan(self) -> LaunchPlan:
        """A new attempt of one node, which runs soon, and until it is stopped."""
        raise NotImplementedError

    def unreachable(self) -> AbstractContextManager[tuple[Mapping[str, Any], Handle]]:
        """A cluster that does not answer meanwhile: its settings, and an attempt there."""
        raise NotImplementedError

    def held(self, plan: LaunchPlan) -> list[str]:
        """What the engine still has of an attempt."""
        raise NotImplementedError


class EngineVerbsContract:
    """Inherit, and give a fixture `site`."""

    @pytest.fixture
    def site(self) -> EngineUnderTest:
        raise NotImplementedError

    def test_it_lacks_no_verb_but_those_that_it_says(self, site: EngineUnderTest) -> None:
        engine = site.open()
        verbs = [name for each in (Engine, Probing) for name in vars(each) if name.isalpha()]
        assert {"describe", "release", "close", "probe"} <= {*verbs}
        assert {verb for verb in verbs if not hasattr(engine, verb)} == {*site.lacks}
        if "close" not in site.lacks:
            engine.close()

    def test_it_describes_itself_in_json_and_without_secrets(self, site: EngineUnderTest) -> None:
        _need(site, "describe")
        with closing(site.open()) as engine, _running(site, engine) as (plan, handle):
            view = _patiently(lambda: engine.describe(site.settings))
        assert (view.engine, view.version != "") == (handle.executor, True)
        assert view.nodes and view.most_nodes >= 0
        names = [node.name for node in view.nodes]
        assert len({*names}) == len(names) and all(names)
        assert {node.state for node in view.nodes} <= _STATES
        assert all(min(node.cpus, node.memory_bytes, node.gpus) >= 0 for node in view.nodes)
        written = json.dumps([asdict(view), handle.to_json()])
        secrets = (*site.secrets, plan.report_token, plan.run_token)
        assert all(secrets) and not any(secret in written for secret in secrets)

    def test_releasing_what_is_not_there_is_harmless(self, site: EngineUnderTest) -> None:
        _need(site, "release")
        with closing(site.open()) as engine, closing(site.open()) as other:
            with _running(site, engine) as (plan, handle):
                assert site.held(plan)
            assert site.held(plan) == []
            _patiently(lambda: engine.release(handle))
            _patiently(lambda: other.release(handle))
            assert site.held(plan) == []

    def test_a_probe_blames_no_machine_that_answers(self, site: EngineUnderTest) -> None:
        _need(site, "probe")
        with closing(site.open()) as engine:
            with _running(site, engine) as (_, handle):
                assert engine.probe(handle, [], set()) == {}
                assert engine.probe(handle, [0], set()) == {}
            assert engine.probe(handle, [0], {0}) == {}

    @pytest.mark.parametrize("verb", ["describe", "release", "probe"])
    def test_an_engine_that_does_not_answer_says_why(
        self, site: EngineUnderTest, temporary: Path, verb: str
    ) -> None:
        _need(site, verb)
        with site.unreachable() as (settings, handle), _leaving_nothing(temporary):
            with closing(site.open()) as engine:
                calls: Mapping[str, Callable[[], object]] = {
                    "describe": lambda: engine.describe(settings),
                    "release": lambda: engine.release(handle),
                    "probe": lambda: engine.probe(handle, [0], {0}),
                }
                asked_at = time.monotonic()
                with pytest.raises(EngineUnreachable) as caught:
                    calls[verb]()
                assert time.monotonic() - asked_at < LIMIT_S * PATIENCE
            assert caught.value.message and caught.value.hint

    def test_a_closed_engine_leaves_nothing_behind(
        self, site: EngineUnderTest, temporary: Path
    ) -> None:
        _need(site, "close")
        plan = site.plan()
        with _leaving_nothing(temporary):
            engine = site.open()
            handle = _launched(engine, plan)
            _patiently(lambda: engine.describe(site.settings))
            _patiently(lambda: engine.stop(handle, _LONG_S))
            engine.close()
            engine.close()
            with suppress(EngineUnreachable):
                engine.status(handle)
        with closing(site.open()) as other:
            _end(other, handle)

    def test_jobs_go_on_when_their_engine_is_closed(self, site: EngineUnderTest) -> None:
        _need(site, "close")
        plan = site.plan()
        with closing(site.open()) as engine:
            handle = _launched(engine, plan)
        with closing(site.open()) as other:
            _wait_until_it_runs(other, handle)
            _end(other, handle)

    @pytest.fixture
    def temporary(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """Where temporary files are made; its path is short enough for sockets of Ray."""
        folder = Path(tempfile.mkdtemp(prefix="ty-", dir="/tmp"))
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        yield folder
        shutil.rmtree(folder)


def _need(site: EngineUnderTest, verb: str) -> None:
    if verb in site.lacks:
        pytest.skip(f"it has no `{verb}`: {site.lacks[verb]}")


@contextmanager
def _running(site: EngineUnderTest, engine: Engine) -> Iterator[tuple[LaunchPlan, Handle]]:
    """An attempt that runs meanwhile, and is released afterwards."""
    plan = site.plan()
    handle = _launched(engine, plan)
    yield plan, handle
    _end(engine, handle)


def _launched(engine: Engine, plan: LaunchPlan) -> Handle:
    handle = _patiently(lambda: engine.launch(plan))
    _wait_until_it_runs(engine, handle)
    return handle


def _wait_until_it_runs(engine: Engine, handle: Handle) -> None:
    eventually(lambda: _patiently(lambda: engine.status(handle)).state == "running", "it runs")


def _end(engine: Engine, handle: Handle) -> None:
    _patiently(lambda: engine.stop(handle, 0.0))
    eventually(lambda: _patiently(lambda: engine.status(handle)).over, "it is over")
    _patiently(lambda: engine.release(handle))


def _patiently(ask: Callable[[], T]) -> T:
    """As the server's rounds do: an engine that does not answer is asked again."""
    deadline = time.monotonic() + LIMIT_S * PATIENCE
    while True:
        try:
            return ask()
        except EngineUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextmanager
def _leaving_nothing(temporary: Path) -> Iterator[None]:
    """Of threads, child processes, descriptors of this process and temporary files."""
    before = _belongings()
    yield
    deadline = time.monotonic() + LIMIT_S * PATIENCE
    while left := (_belongings() - before) | {*map(str, temporary.iterdir())}:
        assert time.monotonic() < deadline, sorted(left)
        time.sleep(0.1)


def _belongings() -> set[str]:
    found = {f"thread {thread.name} {thread.ident}" for thread in threading.enumerate()}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found |= {f"process {pid}" for pid in (task / "children").read_text().split()}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.add(f"descriptor {number} {os.readlink(f'/proc/self/fd/{number}')}")
    return found
