"""From a pipeline's file to its steps: bindings followed, nested pipelines laid flat.

Owns: which steps there are, the limits on their number and depth, the job file of each.
Leaves: finding components to the caller, inputs to input_bindings.py, outputs to
output_bindings.py, the words of a job's file to step_documents.py.
Always: every step of every nested pipeline is looked at, and all that is wrong is told at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec.inputs import read_inputs
from torchyard.pipelines.spec import input_bindings, output_bindings, step_documents
from torchyard.pipelines.spec.nodes import Component, Faults, Node, Resolve, Scope, meant
from torchyard.pipelines.spec.pipeline_file import MOST_STEPS, PipelineSpec, read_nodes
from torchyard.pipelines.spec.plan import Made, Plan, Step, Taken, in_order
from torchyard.pipelines.spec.values import UNKNOWN, Data, Literal, Value

_DEEPEST = 20
# What a step has that runs something, which a nested pipeline does not.
_OF_COMMANDS = (
    *("code", "environment", "environment_variables", "distribution", "resources", "limits"),
    *("services", "queue_settings", "torchyard"),
)
_WITH_BINDINGS = ("limits", "resources")


@dataclass
class Expansion:
    """`outputs` are those of the pipeline that a step makes, `unmade` the others."""

    steps: list[Step] = field(default_factory=list)
    outputs: dict[str, Made] = field(default_factory=dict)
    unmade: tuple[str, ...] = ()
    faults: Faults = field(default_factory=Faults)
    # The outputs of nested pipelines, and of the steps in them that make them.
    same: dict[Made, Made] = field(default_factory=dict)
    # Those that no step in them makes.
    lost: set[Made] = field(default_factory=set)
    is_too_large: bool = False

    def plan(self) -> Plan:
        """
        Raises:
            InvalidSpec: steps wait for each other.
        """
        return Plan(in_order(self.steps), self.outputs)


def expand(spec: PipelineSpec, resolve: Resolve, broken: Collection[str] = ()) -> Expansion:
    """
    Args:
        broken: steps that are wrong in themselves, which `spec` leaves out.
    """
    found = Expansion()
    scope = Scope(
        at=("jobs",),
        inputs={name: _given(name, value) for name, value in spec.inputs.items()},
        outputs={name: value or {} for name, value in spec.outputs.items()},
        settings=spec.settings,
        outputs_at={name: ("outputs", name) for name in spec.outputs},
    )
    nodes = spec.nodes
    if spec.component:
        nodes = found.faults.of(partial(_enter, found, spec, scope, resolve), {})
    made = _Expander(found, resolve, scope).expand(nodes, broken)
    found.outputs = {name: _source(found, each) for name, each in made.items()}
    found.unmade = tuple(name for name in scope.outputs if name not in made)
    found.steps = [replace(step, takes=_sources(found, step)) for step in found.steps]
    return found


def _sources(found: Expansion, step: Step) -> dict[str, Taken]:
    """What a step takes, by the steps that make it in place of nested pipelines."""
    takes = {}
    for name, taken in step.takes.items():
        source = _source(found, Made(taken.step, taken.output))
        if source in found.lost:
            found.faults.found.append(
                InvalidSpec(
                    f"input `{name}` of step `{step.name}` is bound to output `{source.output}` of "
                    f"pipeline `{source.step}`, and no step in that makes it",
                    f"bind an output of one of them to `${{{{parent.outputs.{source.output}}}}}`",
                    at=step.places[("inputs", name)],
                )
            )
        takes[name] = replace(taken, step=source.step, output=source.output)
    return takes


def _source(found: Expansion, made: Made) -> Made:
    while made in found.same:
        made = found.same[made]
    return made


def _given(name: str, value: Any) -> Value | None:
    """An input of the pipeline itself, whose form is known to be right."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return Literal(value)
    if "value" in value or not value.get("path"):
        return Literal(value.get("value"))
    given = read_inputs({name: value}, ("inputs",))[name]
    kind, mode = str(value.get("type") or ""), str(value.get("mode") or "")
    return Data(given.path, given.type if kind else "", mode, ("inputs", name))


def _enter(
    found: Expansion, spec: PipelineSpec, scope: Scope, resolve: Resolve
) -> Mapping[str, Mapping[str, Any]]:
    """The steps of the component that stands in place of `jobs`, whose pipeline the scope is."""
    component = resolve(spec.component, ("component",))
    nodes = _nodes_of(component, ("component",))
    root = Node("", {"inputs": spec.inputs, "outputs": {}}, (), component)
    outer = replace(scope, nodes={"": root}, values={})
    scope.at, scope.around = ("component", "jobs"), (component.label,)
    scope.inputs = input_bindings.of_node(outer, "", found.faults)
    for name in spec.outputs:
        if name not in root.output_ports:
            hint = meant(name, root.output_ports, "see the component")
            found.faults.found.append(
                InvalidSpec(
                    f"the component has no output `{name[:80]}`", hint, at=("outputs", name)
                )
            )
    scope.outputs = {name: scope.outputs.get(name, {}) for name in root.output_ports}
    return nodes


def _nodes_of(component: Component, at: At) -> Mapping[str, Mapping[str, Any]]:
    if component.kind != "pipeline":
        raise InvalidSpec(
            f"`{component.label or 'the component'}` is not a pipeline component",
            "run it as a step of `type: command`",
            at=at,
        )
    return read_nodes(component.definition.get("jobs"), (*at, "jobs"))


@dataclass
class _Expander:
    """Adds the steps of one pipeline, the outermost or a nested one, to those that were found."""

    found: Expansion
    resolve: Resolve
    scope: Scope

    def expand(
        self, nodes: Mapping[str, Mapping[str, Any]], broken: Collection[str] = ()
    ) -> Mapping[str, Made]:
        """The pipeline's outputs, by the steps that make them."""
        scope, faults = self.scope, self.found.faults
        for name in broken:
            scope.nodes[name] = Node(scope.prefix + name, {}, (*scope.at, name), is_broken=True)
        for name, written in nodes.items():
            node = scope.nodes[name] = Node(scope.prefix + name, written, (*scope.at, name))
            faults.of(partial(self._resolve, node), None)
        for node in scope.nodes.values():
            if not node.is_broken:
                output_bindings.bind(scope, node, faults)
        for name, node in scope.nodes.items():
            if faults.is_full or self.found.is_too_large:
                break
            if not node.is_broken:
                faults.of(partial(self._add, name, node), None)
        return scope.bound

    def _resolve(self, node: Node) -> None:
        """Find the component of a step."""
        written = node.written.get("component")
        if written is None:
            return
        node.is_broken = True
        component = self.resolve(written, (*node.at, "component"))
        kind = node.written["type"]
        if kind and component.kind != kind:
            raise InvalidSpec(
                f"step `{node.path}` is of `type: {kind}`, and its component is one of `type: "
                f"{component.kind}`",
                f"write `type: {component.kind}`",
                at=(*node.at, "type"),
            )
        node.component, node.is_broken = component, False

    def _add(self, name: str, node: Node) -> None:
        """Add the steps that a node is."""
        values = input_bindings.of_node(self.scope, name, self.found.faults)
        if node.is_pipeline:
            self._nest(node, values)
            return
        if len(self.found.steps) >= MOST_STEPS:
            self.found.is_too_large = True
            raise InvalidSpec(
                f"the pipeline and those in it have more than {MOST_STEPS:,} steps",
                "let one step do the work of several",
                at=node.at,
            )
        # With an unknown input there is no telling what is wrong with the job.
        if not any(value is UNKNOWN for value in values.values()):
            self.found.steps.append(self._step(node, values))

    def _step(self, node: Node, values: Mapping[str, Value | None]) -> Step:
        document, places = step_documents.of_step(node.written, node.definition, node.at)
        for key in _WITH_BINDINGS:
            if isinstance(part := document.get(key), Mapping):
                at = places.get((key,), node.at)
                document[key] = {
                    name: self._literal(each, f"`{name}`", node, (*at, name))
                    for name, each in part.items()
                }
        known, takes = step_documents.inputs(values, node.ports or {})
        compute, compute_at = self._compute(node)
        further = {"inputs": known, "outputs": self._outputs(node, places), "compute": compute}
        for name, value in values.items():
            at = value.at if isinstance(value, Data) else ()
            places[("inputs", name)] = at or (*node.at, "inputs", name)
        is_deterministic = node.written.get(
            "is_deterministic", node.definition.get("is_deterministic", True)
        )
        return Step(
            name=node.path,
            document=document | {key: value for key, value in further.items() if value},
            takes=takes,
            component=node.component.label if node.component else "",
            is_deterministic=str(is_deterministic).lower() != "false",
            at=node.at,
            places={**places, ("compute",): compute_at},
        )

    def _outputs(self, node: Node, places: dict[At, At]) -> dict[str, Any]:
        """As of a job's file; adds where each stands."""
        outputs, settings = {}, self.scope.settings
        for name, port in node.output_ports.items():
            said = node.said.get(name, {})
            at = node.said_at.get(name, (*node.at, "component", "outputs", name))
            outputs[name] = step_documents.output(name, port, said, settings, at)
            places[("outputs", name)] = at
            if not said.get("path"):
                places[("outputs", name, "path")] = ("settings", "default_datastore")
        return outputs

    def _nest(self, node: Node, values: Mapping[str, Value | None]) -> None:
        assert node.component is not None
        at, label, scope = (*node.at, "component"), node.component.label, self.scope
        for key in _OF_COMMANDS:
            if node.written.get(key):
                raise InvalidSpec(
                    f"step `{node.path}` is a pipeline, and `{key}` is for steps of a command",
                    "write it at the steps of its component",
                    at=(*node.at, key),
                )
        if label and label in scope.around:
            raise InvalidSpec(
                f"pipeline component `{label}` holds itself",
                "register a version of it that does not",
                code="cyclic_reference",
                at=at,
            )
        if len(scope.around) >= _DEEPEST:
            raise InvalidSpec(
                f"pipelines are nested more than {_DEEPEST} deep", "let one hold the steps", at=at
            )
        compute, compute_at = self._compute(node)
        inner = Scope(
            at=(*at, "jobs"),
            inputs=values,
            outputs={name: node.said.get(name, {}) for name in node.output_ports},
            settings=replace(scope.settings, compute=compute, compute_at=compute_at),
            prefix=f"{node.path}.",
            around=(*scope.around, label),
            outputs_at=node.said_at,
        )
        made = _Expander(self.found, self.resolve, inner).expand(_nodes_of(node.component, at))
        self.found.same |= {Made(node.path, name): each for name, each in made.items()}
        if not any(each.is_broken for each in inner.nodes.values()):
            self.found.lost |= {Made(node.path, name) for name in inner.outputs if name not in made}

    def _compute(self, node: Node) -> tuple[str, At]:
        """The cluster of a step, and where it is written."""
        if not node.written.get("compute"):
            return self.scope.settings.compute, self.scope.settings.compute_at
        at = (*node.at, "compute")
        written = self._literal(node.written["compute"], "the compute", node, at)
        return str(written), at

    def _literal(self, written: Any, subject: str, node: Node, at: At) -> Any:
        subject = f"{subject} of step `{node.path}`"
        return input_bindings.literal_at(self.scope, written, subject, at, self.found.faults)
