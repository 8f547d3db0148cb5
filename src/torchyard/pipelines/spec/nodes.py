"""What stands at each step of one pipeline, and what is found while it is followed.

Owns: `Component`, `Node`, `Scope`, the faults of a whole file.
Leaves: filling them in to expansion.py, input_bindings.py and output_bindings.py.
Always: a step that is wrong in itself stays, marked as broken, so that what is bound to it brings
no faults of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torchyard.base.documents.checks import At
from torchyard.base.documents.faults import MOST
from torchyard.base.errors import InvalidSpec, nearest
from torchyard.pipelines.spec.pipeline_file import Settings
from torchyard.pipelines.spec.plan import Made
from torchyard.pipelines.spec.values import Port, Value

_Result = TypeVar("_Result")
_Other = TypeVar("_Other")
_MOST_NAMES = 20


@dataclass(frozen=True)
class Component:
    """`label` is `name:version`, empty for one that stands in the file."""

    definition: Mapping[str, Any]
    label: str = ""

    @property
    def kind(self) -> str:
        return str(self.definition.get("type") or "command")


Resolve = Callable[[Any, At], Component]
"""What stands at `component` of a step; raises InvalidSpec at that place or below it."""


@dataclass
class Node:
    """One step as it is written, or a nested pipeline.

    `path` is its name with those of the steps that it is nested in. `component` is None for a step
    of its own. `said` is what the step and the output of the
    pipeline that it is bound to say of each output, `said_at` where.
    """

    path: str
    written: Mapping[str, Any]
    at: At
    component: Component | None = None
    is_broken: bool = False
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    said_at: dict[str, At] = field(default_factory=dict)

    @property
    def definition(self) -> Mapping[str, Any]:
        return self.component.definition if self.component else {}

    @property
    def is_pipeline(self) -> bool:
        return self.component is not None and self.component.kind == "pipeline"

    @property
    def ports(self) -> Mapping[str, Port] | None:
        """Its inputs as they are declared; None where nothing declares them."""
        return (self.definition.get("inputs") or {}) if self.component else None

    @property
    def input_names(self) -> Collection[str]:
        return self.written.get("inputs", {}) if self.ports is None else self.ports

    @property
    def output_ports(self) -> Mapping[str, Port]:
        if self.component:
            return self.definition.get("outputs") or {}
        outputs = self.written["outputs"]
        return {name: each if isinstance(each, Mapping) else {} for name, each in outputs.items()}


class Faults:
    """What is wrong, as far as it is told."""

    def __init__(self) -> None:
        self.found: list[InvalidSpec] = []

    @property
    def is_full(self) -> bool:
        return len(self.found) > MOST

    def of(self, act: Callable[[], _Result], otherwise: _Other) -> _Result | _Other:
        """What it returns; the other value, and a fault more, where it raises one."""
        try:
            return act()
        except InvalidSpec as error:
            self.found.append(error)
            return otherwise


@dataclass
class Scope:
    """One pipeline, the outermost or a nested one: what its bindings may name.

    `prefix` is what the names of its steps begin with, `around` the components that it stands in.
    """

    at: At
    inputs: Mapping[str, Value | None]
    outputs: Mapping[str, Mapping[str, Any]]
    settings: Settings
    prefix: str = ""
    around: tuple[str, ...] = ()
    outputs_at: Mapping[str, At] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    values: dict[tuple[str, str], Value | None] = field(default_factory=dict)
    bound: dict[str, Made] = field(default_factory=dict)


def meant(name: str, known: Collection[str], otherwise: str) -> str:
    """The hint for a name that is not known: the nearest one, or the others while they are few."""
    if guess := nearest(name, known):
        return f"did you mean `{guess}`?"
    is_few = 0 < len(known) <= _MOST_NAMES
    return f"use one of: {', '.join(known)}" if is_few else otherwise
