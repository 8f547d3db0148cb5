"""From a pipeline's file to its plan: bindings followed, nested pipelines laid flat.

Owns: what each binding leads to, that what it names is there and fits.
Leaves: finding components to the caller, the job files of steps to step_documents.py.
Always: every step of every nested pipeline is checked before anything is stored; an error names
both ends of a binding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.documents.faults import entries, joined
from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.jobs.spec.inputs import read_inputs, read_outputs
from torchyard.pipelines.spec import bindings, step_documents
from torchyard.pipelines.spec.bindings import Binding
from torchyard.pipelines.spec.pipeline_file import MOST_STEPS, PipelineSpec, Settings, read_nodes
from torchyard.pipelines.spec.plan import Made, Plan, Step, in_order
from torchyard.pipelines.spec.values import (
    LITERALS,
    Data,
    Literal,
    Output,
    Port,
    Value,
    check_fits,
)

_DEEPEST = 20


@dataclass(frozen=True)
class Component:
    """`label` is `name:version`, empty for one that stands in the file."""

    definition: Mapping[str, Any]
    label: str = ""


Resolve = Callable[[Any, At], Component]
"""What stands at `component` of a step; raises InvalidSpec at that place or below it."""


@dataclass
class _Node:
    """One step as it is written, or a nested pipeline; `ports` are None for one of its own."""

    name: str
    written: Mapping[str, Any]
    at: At
    component: Component
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def ports(self) -> Mapping[str, Port] | None:
        return (self.component.definition.get("inputs") or {}) if self.is_declared else None

    @property
    def output_ports(self) -> Mapping[str, Port]:
        if self.is_declared:
            return self.component.definition.get("outputs") or {}
        return {name: value or {} for name, value in self.outputs.items()}

    @property
    def is_declared(self) -> bool:
        return bool(self.component.definition)


@dataclass
class _Found:
    """What the whole pipeline is made of: `same` has the outputs of nested pipelines."""

    steps: list[Step] = field(default_factory=list)
    same: dict[Made, Made] = field(default_factory=dict)

    def made(self, made: Made) -> Made:
        while made in self.same:
            made = self.same[made]
        return made


def plan(spec: PipelineSpec, resolve: Resolve) -> Plan:
    """
    Raises:
        InvalidSpec: the first thing that is wrong with the graph, with its place and the others.
    """
    found = _Found()
    inputs = {name: _given(name, value) for name, value in spec.inputs.items()}
    outputs = {name: value or {} for name, value in spec.outputs.items()}
    at: At = ("jobs",)
    nodes = spec.nodes
    if spec.component:
        component = resolve(spec.component, ("component",))
        nodes, at = _nodes_of(component, ("component",)), ("component", "jobs")
        root = _Node("", {"inputs": spec.inputs}, (), component)
        inputs = _Scope(found, resolve, "", ("jobs",), {}, {}, spec.settings).values(root, inputs)
        outputs = {name: outputs.get(name, {}) for name in root.output_ports}
    scope = _Scope(found, resolve, "", at, inputs, outputs, spec.settings)
    made = scope.expand(nodes)
    steps = [
        replace(
            step,
            takes={
                name: replace(taken, step=of.step, output=of.output)
                for name, taken in step.takes.items()
                for of in [found.made(Made(taken.step, taken.output))]
            },
        )
        for step in found.steps
    ]
    return Plan(in_order(steps), {name: found.made(each) for name, each in made.items()})


def _given(name: str, value: Any) -> Value | None:
    """An input of the pipeline itself, whose form is known to be right."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return Literal(value)
    if "value" in value or not value.get("path"):
        return Literal(value.get("value"))
    given = read_inputs({name: value}, ("inputs",))[name]
    return Data(given.path, given.type, str(value.get("mode") or ""))


def _nodes_of(component: Component, at: At) -> Mapping[str, Mapping[str, Any]]:
    nodes = component.definition.get("jobs")
    if nodes is None:
        raise InvalidSpec(
            f"`{component.label or 'the component'}` is no pipeline component",
            "run it as a step of `type: command`",
            at=at,
        )
    return read_nodes(nodes, (*at, "jobs"))


@dataclass
class _Scope:
    """One pipeline, the outermost or a nested one: what its bindings may name."""

    found: _Found
    resolve: Resolve
    prefix: str
    at: At
    inputs: Mapping[str, Value | None]
    outputs: Mapping[str, Mapping[str, Any]]
    settings: Settings
    depth: int = 0

    def __post_init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._values: dict[tuple[str, str], Value | None] = {}
        self._bound: dict[str, Made] = {}

    def expand(self, nodes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Made]:
        """Add the steps to those that were found; the pipeline's outputs."""
        self._nodes = entries(nodes, self.at, self._node)
        entries(self._nodes, self.at, lambda node, at: self._bind_outputs(node))
        entries(self._nodes, self.at, lambda node, at: self._add(node))
        return self._bound

    def _node(self, written: Mapping[str, Any], at: At) -> _Node:
        component = Component({})
        if written.get("component") is not None:
            component = self.resolve(written["component"], (*at, "component"))
            is_pipeline = component.definition.get("type") == "pipeline"
            if is_pipeline != (written["type"] == "pipeline"):
                raise InvalidSpec(
                    f"step `{at[-1]}` is of `type: {written['type']}`, and its component is one "
                    f"of `type: {component.definition.get('type')}`",
                    f"write `type: {component.definition.get('type')}`",
                    at=(*at, "type"),
                )
        node = _Node(str(at[-1]), written, at, component)
        if not node.is_declared:
            node.outputs = {
                name: each if isinstance(each, dict) else {}
                for name, each in written["outputs"].items()
            }
        return node

    def _bind_outputs(self, node: _Node) -> None:
        """What is said of each output, at the step and of that of the pipeline that it is."""
        ports = node.output_ports
        joined_outputs: dict[str, dict[str, Any]] = {}

        def output(value: Any, at: At) -> None:
            name = str(at[-1])
            if name not in ports:
                raise InvalidSpec(
                    f"step `{node.name}` has no output `{name}`",
                    did_you_mean(name, list(ports), "its component declares none")
                    if not ports
                    else did_you_mean(name, list(ports)),
                    at=at,
                )
            written = dict(value) if isinstance(value, Mapping) else {}
            place = (*at, "path") if written else at
            bound = (
                bindings.read(written.get("path") if written else value, place)
                if (_is_binding(written.get("path") if written else value))
                else None
            )
            if isinstance(value, str) and bound is None:
                read_outputs({name: value}, at[:-1])
            if bound is not None:
                written.pop("path", None)
                written = {**self._output_of(bound, node, name, place), **written}
            elif written:
                read_outputs({name: written}, at[:-1])
            joined_outputs[name] = written

        entries(node.written["outputs"], (*node.at, "outputs"), output)
        node.outputs = {name: joined_outputs.get(name, {}) for name in ports}

    def _output_of(self, bound: Binding, node: _Node, name: str, at: At) -> Mapping[str, Any]:
        """What the pipeline says of its output."""
        subject = f"output `{name}` of step `{node.name}`"
        if bound.step or bound.kind != "outputs":
            raise InvalidSpec(
                f"{subject} is bound to `{bound}`, which is no output of the pipeline",
                "use `${{parent.outputs.<name>}}`",
                at=at,
            )
        if bound.name not in self.outputs:
            raise InvalidSpec(
                f"{subject} is bound to `{bound}`, and the pipeline has no output `{bound.name}`",
                did_you_mean(bound.name, list(self.outputs), "declare it under `outputs`")
                if self.outputs
                else "declare it under `outputs`",
                at=at,
            )
        other = self._bound.get(bound.name)
        if other is not None:
            raise InvalidSpec(
                f"{subject} is bound to `{bound}`, as is output `{other.output}` of step "
                f"`{other.step.removeprefix(self.prefix)}`",
                "give one of them another output",
                at=at,
            )
        self._bound[bound.name] = Made(f"{self.prefix}{node.name}", name)
        return self.outputs[bound.name]

    def _add(self, node: _Node) -> None:
        """Add the steps that a node is."""
        values = self.values(node, node.written["inputs"])
        if node.written["type"] == "pipeline":
            self._nest(node, values)
            return
        known, takes = step_documents.inputs(values, node.ports or {})
        document = step_documents.of_step(node.written, node.component.definition)
        ports = node.output_ports

        def output(written: Mapping[str, Any], at: At) -> Any:
            name = str(at[-1])
            return step_documents.output(name, ports[name], written, self.settings, at)

        outputs = entries(node.outputs, (*node.at, "outputs"), output)
        document |= {"inputs": known} if known else {}
        document |= {"outputs": outputs} if outputs else {}
        if compute := self._compute(node):
            document["compute"] = compute
        if len(self.found.steps) >= MOST_STEPS:
            raise InvalidSpec(
                f"the pipeline and those in it have more than {MOST_STEPS:,} steps",
                "let one step do the work of several",
                at=node.at,
            )
        definition = node.component.definition
        inline = isinstance(node.written.get("component"), Mapping)
        step = Step(
            name=f"{self.prefix}{node.name}",
            document=document,
            takes=takes,
            component=node.component.label,
            is_deterministic=bool(
                node.written.get("is_deterministic", definition.get("is_deterministic", True))
            ),
            at=node.at,
            component_at=(*node.at, "component") if inline else node.at,
            own_keys=frozenset(node.written),
        )
        self.found.steps.append(step)

    def _nest(self, node: _Node, values: Mapping[str, Value | None]) -> None:
        at = (*node.at, "component")
        if self.depth >= _DEEPEST:
            raise InvalidSpec(
                f"pipelines are nested more than {_DEEPEST} deep", "let one hold the steps", at=at
            )
        inner = _Scope(
            self.found,
            self.resolve,
            f"{self.prefix}{node.name}.",
            (*at, "jobs"),
            values,
            node.outputs,
            replace(self.settings, compute=node.written.get("compute") or self.settings.compute),
            self.depth + 1,
        )
        made = inner.expand(_nodes_of(node.component, at))
        for name in node.output_ports:
            if name in made:
                self.found.same[Made(f"{self.prefix}{node.name}", name)] = made[name]

    def _compute(self, node: _Node) -> str:
        written = str(node.written.get("compute") or self.settings.compute)
        at = (*node.at, "compute")
        bound = bindings.read(written, at)
        if bound is None:
            return written
        value = self._bound_value(bound, f"the compute of step `{node.name}`", at, ())
        if not isinstance(value, Literal):
            raise InvalidSpec(f"`{bound}` is no name of a cluster", "bind a text", at=at)
        return str(value.value)

    def values(self, node: _Node, written: Mapping[str, Any]) -> dict[str, Value | None]:
        """The inputs of a node: those that it sets, and the defaults of its component."""
        ports, at = node.ports, (*node.at, "inputs")
        faults: list[InvalidSpec] = []
        values: dict[str, Value | None] = {}
        for name in [*(ports or {}), *(each for each in written if each not in (ports or {}))]:
            try:
                values[name] = self._input(node, name, ())
            except InvalidSpec as error:
                faults.append(error)
        if faults:
            raise joined(faults, written, at)
        return values

    def _input(self, node: _Node, name: str, trail: tuple[tuple[str, str], ...]) -> Value | None:
        """One input of a node.

        Args:
            trail: the inputs that led here, each bound to the next.
        """
        key = (node.name, name)
        if key in self._values:
            return self._values[key]
        at = (*node.at, "inputs", name)
        subject = f"input `{name}` of {f'step `{node.name}`' if node.name else 'the pipeline'}"
        if key in trail:
            raise InvalidSpec(
                f"{subject} is bound to itself", "bind it to an input of the pipeline",
                code="cyclic_reference", at=at,
            )  # fmt: skip
        ports = node.ports
        port = (ports or {}).get(name)
        if ports is not None and port is None:
            raise InvalidSpec(
                f"the component of {subject.partition(' of ')[2]} has no input `{name}`",
                did_you_mean(name, list(ports)) if ports else "it declares none",
                at=at,
            )
        written = node.written["inputs"].get(name)
        if written is None:
            value = self._unset(node, name, port or {}, subject)
        else:
            value = self._written(written, port or {}, subject, at, (*trail, key))
        self._values[key] = value
        return value

    def _unset(self, node: _Node, name: str, port: Port, subject: str) -> Value | None:
        if port.get("default") is not None:
            return Literal(port["default"])
        if node.ports is None or port.get("optional") in (True, "true", "True"):
            return None
        raise InvalidSpec(
            f"{subject} has no value",
            f"write `{name}:` under `inputs`, or give it a `default` in the component",
            at=(*node.at, "inputs"),
        )

    def _written(
        self, written: Any, port: Port, subject: str, at: At, trail: tuple[tuple[str, str], ...]
    ) -> Value | None:
        source, mode = "", ""
        is_mapping = isinstance(written, Mapping)
        key = "path" if is_mapping and "path" in written else "value"
        text = written.get(key) if is_mapping else written
        place = (*at, key) if is_mapping else at
        if is_mapping:
            read_inputs({at[-1]: written}, at[:-1])
            mode = str(written.get("mode") or "")
        bound = bindings.read(text, place)
        value: Value | None
        if bound is not None:
            source = f"`{bound}`"
            value = self._bound_value(bound, subject, place, trail)
            if mode and isinstance(value, Data | Output):
                value = replace(value, mode=mode)
        elif is_mapping and key == "path":
            value = Data(str(text), str(written.get("type") or port.get("type") or ""), mode)
        elif isinstance(text, str) and port and port.get("type") not in (*LITERALS, "path"):
            value = Data(text, str(port.get("type") or ""))
        else:
            value = Literal(text)
        if value is None and not port.get("optional") and port.get("default") is None and port:
            raise InvalidSpec(
                f"{subject} is bound to {source}, which has no value",
                "give it one, or make the input of the component optional",
                at=at,
            )
        if value is None and port.get("default") is not None:
            return Literal(port["default"])
        if value is not None:
            check_fits(value, port, subject, source, at)
        return value

    def _bound_value(
        self, bound: Binding, subject: str, at: At, trail: tuple[tuple[str, str], ...]
    ) -> Value | None:
        if bound.step:
            return self._of_step(bound, subject, at, trail)
        if bound.kind == "outputs":
            raise InvalidSpec(
                f"{subject} is bound to `{bound}`, an output of the pipeline",
                "name the step that makes it: `${{parent.jobs.<step>.outputs.<name>}}`",
                at=at,
            )
        if bound.name not in self.inputs:
            raise InvalidSpec(
                f"{subject} is bound to `{bound}`, and the pipeline has no input `{bound.name}`",
                did_you_mean(bound.name, list(self.inputs), "declare it under `inputs`")
                if self.inputs
                else "declare it under `inputs`",
                at=at,
            )
        return self.inputs[bound.name]

    def _of_step(
        self, bound: Binding, subject: str, at: At, trail: tuple[tuple[str, str], ...]
    ) -> Value | None:
        node = self._nodes.get(bound.step)
        if node is None:
            raise InvalidSpec(
                f"{subject} is bound to `{bound}`, and there is no step `{bound.step}`",
                did_you_mean(bound.step, list(self._nodes)),
                at=at,
            )
        if bound.kind == "inputs":
            return self._input(node, bound.name, trail)
        port = node.output_ports.get(bound.name)
        if port is None:
            raise InvalidSpec(
                f"{subject} is bound to `{bound}`, and step `{bound.step}` has no output "
                f"`{bound.name}`",
                did_you_mean(bound.name, list(node.output_ports), "declare it under its `outputs`")
                if node.output_ports
                else "declare it under its `outputs`",
                at=at,
            )
        kind = str(port.get("type") or node.outputs.get(bound.name, {}).get("type") or "uri_folder")
        return Output(f"{self.prefix}{node.name}", bound.name, kind)


def _is_binding(value: Any) -> bool:
    return isinstance(value, str) and "${{" in value and "parent." in value
