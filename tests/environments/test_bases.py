"""Environments made from Dockerfiles that start from other environments."""

from __future__ import annotations

from typing import Any

import pytest

from environments.build.test_image_environments import FakeEngine, put_context
from environments.conftest import Machine, MakeEnvironments
from torchyard.base.clock import SystemClock
from torchyard.base.errors import InvalidSpec
from torchyard.environments import assets, bases, to_json, types
from torchyard.environments.assembly import Environments
from torchyard.environments.images import containers
from torchyard.environments.images.containers import EngineSearch
from torchyard.environments.types import EnvironmentSpec

WORKSPACE = "default"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def environments(
    make_environments: MakeEnvironments, machine: Machine, engine: FakeEngine
) -> Environments:
    (machine.home / containers.FILE).write_text("os_image: site.org/os:1\n")
    return make_environments(find_engine=lambda *_: EngineSearch(engine, ("fake",)))


def register(environments: Environments, name: str, definition: dict[str, Any]) -> None:
    request = assets.read_document({"name": name, **definition})
    assets.register(environments.db, SystemClock(), WORKSPACE, request, "me", lambda _: None)


def spec_of(environments: Environments, machine: Machine, dockerfile: str) -> EnvironmentSpec:
    return environments.resolver.resolve(put_context(machine, Dockerfile=dockerfile), WORKSPACE)


@pytest.mark.parametrize(
    ("dockerfile", "base"),
    [
        ("FROM azureml:python\nRUN true\n", "python:1"),
        ("FROM mcr.microsoft.com/azureml/curated/acpt-pytorch-2.2-cuda12.1:9\n",
         "acpt-pytorch-2.2-cpu:2"),
        ("ARG B=azureml:python\nFROM $B AS a\nFROM a AS b\nFROM B\n", "python:1"),
        # What only lends its files is not the base.
        ("FROM azureml:python AS a\nFROM debian:12\nCOPY --from=a /x /x\n", ""),
        ("FROM azureml:sklearn-1.5 AS a\nFROM azureml:python\nCOPY --from=a /x /x\n", "python:1"),
        ("FROM azureml:python AS a\nFROM scratch\n", ""),
        ("FROM debian:12\n", ""),
    ],
)  # fmt: skip
def test_the_base_is_that_of_the_last_stage(
    environments: Environments, machine: Machine, dockerfile: str, base: str
) -> None:
    assert bases.one_line(spec_of(environments, machine, dockerfile)) == base


def test_a_base_has_a_base_of_its_own(environments: Environments, machine: Machine) -> None:
    register(environments, "inner", put_context(machine, Dockerfile="FROM azureml:python\n"))
    register(environments, "outer", put_context(machine, Dockerfile="FROM azureml:inner:1\n"))
    spec = spec_of(environments, machine, "FROM azureml:outer\nRUN true\n")
    assert bases.of(spec) == ["outer:1", "inner:1", "python:1"]
    again = types.from_json(spec.to_json())
    assert bases.one_line(again) == "outer:1 > inner:1 > python:1" and again.hash == spec.hash
    body = to_json.version_to_json(environments, WORKSPACE, "outer", "1")
    assert body["base"] == "inner:1 > python:1"


def test_a_record_from_before_has_no_base(environments: Environments, machine: Machine) -> None:
    spec = spec_of(environments, machine, "FROM azureml:python\n")
    document = spec.to_json()
    del document["image"]["base"]
    assert types.from_json(document).hash == spec.hash
    assert bases.of(types.from_json(document)) == []


def test_a_base_that_is_an_image_is_taken_from_the_engine(
    environments: Environments, machine: Machine, engine: FakeEngine
) -> None:
    register(environments, "inner", put_context(machine, Dockerfile="FROM debian:12\nRUN one\n"))
    inner = environments.resolver.resolve("inner:1", WORKSPACE)
    environments.builds.run(inner)
    outer = spec_of(environments, machine, "FROM azureml:inner\nRUN two\n")
    environments.builds.run(outer)
    tag = f"localhost/torchyard:{inner.hash[:24]}"
    assert [text for _, text, _ in engine.built] == [
        "FROM docker.io/library/debian:12\nRUN one\n",
        f"FROM {tag}\nRUN two\n",
    ]
    last = environments.records.last(outer.hash)
    assert last is not None and f"# base inner:1 {inner.hash}" in last.lock


def test_a_base_that_the_engine_lost_is_built_again(
    environments: Environments, machine: Machine, engine: FakeEngine
) -> None:
    register(environments, "inner", put_context(machine, Dockerfile="FROM debian:12\nRUN one\n"))
    spec = spec_of(environments, machine, "FROM azureml:inner\nRUN two\n")
    environments.builds.run(spec)
    assert [text.split()[-1] for _, text, _ in engine.built] == ["one", "two"]


def test_an_environment_that_is_built_from_itself_is_refused(
    environments: Environments, machine: Machine
) -> None:
    register(environments, "turn", put_context(machine, Dockerfile="FROM azureml:table\n"))
    register(environments, "table", put_context(machine, Dockerfile="FROM azureml:turn\n"))
    with pytest.raises(InvalidSpec, match="is built from itself: turn:1 > table:1 > turn:1"):
        environments.resolver.resolve("turn:1", WORKSPACE)


def test_a_long_chain_is_refused(environments: Environments, machine: Machine) -> None:
    before = "python"
    for number in range(12):
        name = f"link-{number}"
        register(environments, name, put_context(machine, Dockerfile=f"FROM azureml:{before}\n"))
        before = name
    with pytest.raises(InvalidSpec, match="more than 10 others"):
        environments.resolver.resolve("link-11", WORKSPACE)
