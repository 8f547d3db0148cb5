"""What is said of the outputs of a step, at the step and at the pipeline's output that each is.

Owns: which output of the pipeline an output of a step is.
Leaves: the output in the words of a job's file to step_documents.py.
Always: an output of the pipeline is made by one step; an error names both ends of a binding.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec.inputs import read_outputs
from torchyard.pipelines.spec import bindings
from torchyard.pipelines.spec.bindings import Binding
from torchyard.pipelines.spec.nodes import Faults, Node, Scope, meant
from torchyard.pipelines.spec.plan import Made


def bind(scope: Scope, node: Node, faults: Faults) -> None:
    """Fill in what is said of each output."""
    for name in node.written["outputs"]:
        if faults.is_full:
            return
        node.said_at[name] = (*node.at, "outputs", name)
        node.said[name] = faults.of(partial(_said, scope, node, name), {})


def _said(scope: Scope, node: Node, name: str) -> dict[str, Any]:
    at, value = node.said_at[name], node.written["outputs"][name]
    ports = node.output_ports
    if name not in ports:
        raise InvalidSpec(
            f"step `{node.path}` has no output `{name[:80]}`",
            meant(name, ports, "its component declares none" if not ports else "see its component"),
            at=at,
        )
    written = dict(value) if isinstance(value, Mapping) else {}
    path, place = (written.get("path"), (*at, "path")) if written else (value, at)
    # Paths have expressions of their own, such as `${{name}}`.
    is_bound = isinstance(path, str) and "${{" in path and "parent." in path
    bound = bindings.read(path, place) if is_bound else None
    if bound is None:
        read_outputs({name: value}, at[:-1])
        return written
    written.pop("path", None)
    read_outputs({name: written}, at[:-1])
    outer = _pipelines(scope, node, name, bound, place)
    if not written:
        node.said_at[name] = scope.outputs_at.get(bound.name, at)
    if outer.get("type") and written.get("type") == "uri_folder":
        del written["type"]  # what clients send where only a mode was written
    return {**outer, **written}


def _pipelines(scope: Scope, node: Node, name: str, bound: Binding, at: At) -> Mapping[str, Any]:
    """What the pipeline says of its output."""
    subject = f"output `{name}` of step `{node.path}` is bound to `{bound}`"
    if bound.step or bound.kind != "outputs":
        raise InvalidSpec(
            f"{subject}, which is not an output of the pipeline",
            "use `${{parent.outputs.<name>}}`",
            at=at,
        )
    if bound.name not in scope.outputs:
        raise InvalidSpec(
            f"{subject}, and the pipeline has no output `{bound.name}`",
            meant(bound.name, scope.outputs, "declare it under `outputs`"),
            at=at,
        )
    other = scope.bound.get(bound.name)
    if other is not None:
        raise InvalidSpec(
            f"{subject}, as is output `{other.output}` of step `{other.step}`",
            "declare another output of the pipeline for one of them",
            at=at,
        )
    scope.bound[bound.name] = Made(node.path, name)
    return scope.outputs[bound.name]
