"""What each environment of the catalogue holds of the components that Azure's documents name.

Owns: reading `components.yml`, `unresolved.yml` and each `tests.json` in curated/; the state of a
component in an environment.
Leaves: environments and their contents to curated_environments.py, running tests to selftest/.
Always: a component is installed, a layer of torchyard's, or unavailable with a reason; there is no
other state, and the state is read from what the environment holds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torchyard.environments.names import curated_environments
from torchyard.environments.names.curated_environments import Curated

State = Literal["installed", "layer", "unavailable"]

FAMILY = "acpt-"
_LAYER = "+torchyard"


@dataclass(frozen=True)
class Component:
    """`packages` are the distributions that bring it; `step` is its one-step test, empty for what
    no environment holds.

    `reason` and `instead` are for environments that lack it and say nothing themselves.
    """

    name: str
    packages: tuple[str, ...]
    step: str = ""
    reason: str = ""
    instead: str = ""


@dataclass(frozen=True)
class EnvironmentComponent:
    """A component in an environment; `package` and `version` are empty where it is unavailable.

    One that `needs_gpu` is there, and has `reason` and `instead` for machines without one.
    """

    component: Component
    state: State
    package: str = ""
    version: str = ""
    reason: str = ""
    instead: str = ""
    needs_gpu: bool = False


@dataclass(frozen=True)
class StepResult:
    """What a one-step test printed, or the `error` that it ended with."""

    version: str
    seconds: float
    result: str = ""
    error: str = ""


@dataclass(frozen=True)
class TestRun:
    """The tests of an environment on one kind of hardware, on one day.

    `distributions` and `modules` count what was compared with the label; `differences` are
    sentences about what did not agree. `pairs` counts the packages that import one another,
    `faults` are sentences about imports that fail.
    """

    __test__ = False

    version: str
    date: str
    hardware: str
    python: str
    distributions: int
    modules: int
    differences: tuple[str, ...]
    steps: Mapping[str, StepResult] = field(default_factory=dict)
    pairs: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unresolved:
    """An environment that the catalogue lacks."""

    name: str
    reason: str
    instead: str


@functools.cache
def every() -> tuple[Component, ...]:
    """In the order of the documents."""
    return tuple(
        Component(**{**entry, "packages": tuple(entry["packages"])})
        for entry in _yaml("components.yml")
    )


@functools.cache
def unresolved() -> tuple[Unresolved, ...]:
    return tuple(Unresolved(**entry) for entry in _yaml("unresolved.yml"))


def promises(curated: Curated) -> bool:
    """Whether it is one of those that hold every component, or say why not."""
    return curated.name.startswith(FAMILY)


def components_of(curated: Curated) -> tuple[EnvironmentComponent, ...]:
    """Every component, as this environment has it.

    Raises:
        ValueError: it lacks one without a reason.
    """
    versions = dict(line.partition("==")[::2] for line in curated.packages)
    return tuple(_component_in(component, versions, curated) for component in every())


def _component_in(
    component: Component, versions: Mapping[str, str], curated: Curated
) -> EnvironmentComponent:
    for package in component.packages:
        if package in versions:
            version = versions[package]
            is_layer = _LAYER in version
            without_gpu = curated.needs_gpu.get(component.name, {})
            return EnvironmentComponent(
                component,
                "layer" if is_layer else "installed",
                package,
                version,
                **without_gpu,
                needs_gpu=bool(without_gpu),
            )
    explanation = curated.unavailable.get(component.name, {})
    reason = explanation.get("reason", component.reason)
    if not reason:
        raise ValueError(f"`{curated.name}` lacks {component.name}, and gives no reason")
    return EnvironmentComponent(
        component,
        "unavailable",
        reason=reason,
        instead=explanation.get("instead", component.instead),
    )


def tests_file(name: str) -> Path:
    """The file in which the self-test records its runs."""
    return curated_environments.FOLDER / name / "tests.json"


def runs(name: str) -> tuple[TestRun, ...]:
    """The recorded runs of an environment's tests, one for each kind of hardware."""
    return read_runs(tests_file(name))


def read_runs(file: Path) -> tuple[TestRun, ...]:
    """The runs that a `tests.json` holds; none where it does not exist."""
    if not file.exists():
        return ()
    return tuple(_run(entry) for entry in json.loads(file.read_text(encoding="utf-8")))


def _run(entry: Mapping[str, Any]) -> TestRun:
    steps = {name: StepResult(**step) for name, step in entry["steps"].items()}
    differences, faults = tuple(entry["differences"]), tuple(entry.get("faults", ()))
    return TestRun(**{**entry, "differences": differences, "faults": faults, "steps": steps})


def _yaml(name: str) -> Any:
    import yaml

    return yaml.safe_load((curated_environments.FOLDER / name).read_text(encoding="utf-8"))
