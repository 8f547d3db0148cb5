"""What a pipeline is once everything in it is known: its steps, and what leads from one to another.

Owns: `Step` and `Plan`, the order of steps.
Leaves: making a plan to expansion.py.
Always: a plan has no cycle; its steps stand in an order in which they can run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec


@dataclass(frozen=True)
class Made:
    """What a step makes: `output` of `step`."""

    step: str
    output: str


@dataclass(frozen=True)
class Taken(Made):
    """The same as the input of another step, which has `type` and `mode`."""

    type: str = "uri_folder"
    mode: str = ""

    def as_input(self, path: str) -> dict[str, str]:
        """As of a job's file, where what was made lies at `path`."""
        return {"type": self.type, "path": path, **({"mode": self.mode} if self.mode else {})}


@dataclass(frozen=True)
class Step:
    """One job to be.

    `name` has dots between the steps of nested pipelines and theirs. `document` is its job file
    without name and without the inputs that others make, which `takes` has. `component` is
    `name:version`, empty for one of its own. `at` is where it stands in the pipeline's file, and
    `places` has where else in it stands what its job file has at the places that are its keys.
    """

    name: str
    document: Mapping[str, Any]
    takes: Mapping[str, Taken] = field(default_factory=dict)
    component: str = ""
    is_deterministic: bool = True
    at: At = ()
    places: Mapping[At, At] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """`outputs` are those of the pipeline, by the outputs of steps that they are."""

    steps: Sequence[Step]
    outputs: Mapping[str, Made]


def in_order(steps: Sequence[Step]) -> list[Step]:
    """The steps, each after those whose outputs it takes; else as they are written.

    Raises:
        InvalidSpec: steps wait for each other.
    """
    by_name = {step.name: step for step in steps}
    waits = {
        step.name: {taken.step for taken in step.takes.values() if taken.step in by_name}
        for step in steps
    }
    users: dict[str, list[str]] = {}
    for name, before in waits.items():
        for each in before:
            users.setdefault(each, []).append(name)
    ready = [name for name, before in waits.items() if not before]
    ordered = []
    for name in ready:  # grows
        ordered.append(by_name[name])
        for user in users.get(name, ()):
            waits[user].discard(name)
            if not waits[user]:
                ready.append(user)
    if len(ordered) < len(steps):
        raise _cycle(by_name, {name: before for name, before in waits.items() if before})
    return ordered


def _cycle(by_name: Mapping[str, Step], waits: Mapping[str, set[str]]) -> InvalidSpec:
    name, path = next(iter(waits)), [""]
    while name not in path:
        path.append(name)
        name = min(waits[name])
    circle = path[path.index(name) :]
    shown = " → ".join(f"`{each}`" for each in [*circle[:8], name])
    return InvalidSpec(
        f"steps wait for each other: {shown}, where each takes an output of the next",
        "let one of them take something else",
        code="cyclic_reference",
        at=(*by_name[name].at, "inputs"),
    )
