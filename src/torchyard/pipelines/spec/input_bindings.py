"""What the inputs of the steps of one pipeline are, through whatever they are bound to.

Owns: following the bindings of inputs; defaults, and inputs that are left out.
Leaves: which types fit each other to values.py.
Always: each input is followed once; an error names both ends of a binding; what is bound to
something that is wrong adds no error of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.jobs.spec.inputs import read_inputs
from torchyard.pipelines.spec import bindings
from torchyard.pipelines.spec.bindings import Binding
from torchyard.pipelines.spec.nodes import Faults, Node, Scope, meant
from torchyard.pipelines.spec.values import (
    LITERALS,
    UNKNOWN,
    Data,
    Literal,
    Output,
    Port,
    Unknown,
    Value,
    check_fits,
    is_optional,
    output_type,
)

_Key = tuple[str, str]


def of_node(scope: Scope, step: str, faults: Faults) -> dict[str, Value | None]:
    """The inputs of a step: those that it sets, and the defaults of its component."""
    node = scope.nodes[step]
    written, ports = node.written["inputs"], node.ports or {}
    values: dict[str, Value | None] = {}
    for name in dict.fromkeys([*ports, *written]):
        if faults.is_full:
            break
        values[name] = _value(scope, (step, name), faults)
    return values


def literal_at(scope: Scope, written: Any, subject: str, at: At, faults: Faults) -> Any:
    """The text or number that a value of a step is, be it bound to an input.

    Raises:
        InvalidSpec: it is bound to something else.
    """
    bound = bindings.read(written, at)
    if bound is None:
        return written
    if of_step := _key_of(scope, bound):
        _value(scope, of_step, faults)
    value = _bound(scope, bound, subject, at)
    if isinstance(value, Unknown):
        return None
    if not isinstance(value, Literal):
        raise InvalidSpec(
            f"{subject} is bound to `{bound}`, which is not a string or a number",
            "bind it to an input of the pipeline that has a value",
            at=at,
        )
    text = value.value
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 20 else text


def _value(scope: Scope, key: _Key, faults: Faults) -> Value | None:
    """One input. Those that it is bound to come first: a long chain needs no deep stack."""
    chain: dict[_Key, None] = {}
    following: _Key | None = key
    while following is not None and following not in scope.values:
        if following in chain:
            faults.found.append(_circle(scope, following, list(chain)))
            scope.values[following] = UNKNOWN
            break
        chain[following] = None
        following = _followed(scope, following)
    for each in reversed(chain):
        if each not in scope.values:
            scope.values[each] = faults.of(partial(_input, scope, each), UNKNOWN)
    return scope.values[key]


def _followed(scope: Scope, key: _Key) -> _Key | None:
    """The input of another step that an input is bound to."""
    written = scope.nodes[key[0]].written["inputs"].get(key[1])
    if isinstance(written, Mapping):
        written = written.get("path", written.get("value"))
    try:
        bound = bindings.read(written, ())
    except InvalidSpec:
        return None
    return _key_of(scope, bound) if bound else None


def _key_of(scope: Scope, bound: Binding) -> _Key | None:
    """The input of a step that a binding names, if there is one."""
    node = scope.nodes.get(bound.step)
    is_there = node is not None and bound.kind == "inputs" and bound.name in node.input_names
    return (bound.step, bound.name) if is_there else None


def _circle(scope: Scope, key: _Key, chain: list[_Key]) -> InvalidSpec:
    circle = chain[chain.index(key) + 1 :][:8]
    through = f" through {', '.join(f'`{step}.inputs.{name}`' for step, name in circle)}"
    return InvalidSpec(
        f"{_subject(scope, key)} is bound to itself{through if circle else ''}",
        "bind it to an input of the pipeline, or to an output of a step",
        code="cyclic_reference",
        at=(*scope.nodes[key[0]].at, "inputs", key[1]),
    )


def _owner(scope: Scope, key: _Key) -> str:
    return f"step `{scope.nodes[key[0]].path}`" if key[0] else "the pipeline"


def _subject(scope: Scope, key: _Key) -> str:
    return f"input `{key[1][:80]}` of {_owner(scope, key)}"


def _input(scope: Scope, key: _Key) -> Value | None:
    node, name = scope.nodes[key[0]], key[1]
    if node.is_broken:
        return UNKNOWN
    at = (*node.at, "inputs", name)
    ports, written = node.ports, node.written["inputs"].get(name)
    port = (ports or {}).get(name)
    if ports is not None and port is None:
        raise InvalidSpec(
            f"the component of {_owner(scope, key)} has no input `{name[:80]}`",
            meant(name, ports, "see its component" if ports else "it declares none"),
            at=at,
        )
    if written is None:
        return _unset(node, name, port or {}, _subject(scope, key))
    return _written(scope, written, port or {}, _subject(scope, key), at)


def _unset(node: Node, name: str, port: Port, subject: str) -> Value | None:
    if port.get("default") is not None:
        default = Literal(port["default"])
        at = (*node.at, "component", "inputs", name, "default")
        check_fits(default, port, f"the default of {subject}", "", at)
        return default
    if node.ports is None or is_optional(port):
        return None
    raise InvalidSpec(
        f"{subject} has no value",
        f"write `{name}:` under `inputs`, or give it a `default` in the component",
        at=(*node.at, "inputs"),
    )


def _written(scope: Scope, written: Any, port: Port, subject: str, at: At) -> Value | None:
    source, mode, kind = "", "", ""
    text, place = written, at
    if isinstance(written, Mapping):
        read_inputs({at[-1]: written}, at[:-1])
        key = "path" if "path" in written else "value"
        text, place = written.get(key), (*at, key)
        mode, kind = str(written.get("mode") or ""), str(written.get("type") or "")
    elif not isinstance(written, str | int | float | bool):
        raise InvalidSpec(
            f"{subject} must be a value, data or a binding, not {described(written)}",
            "for example `0.1`, `{path: azureml:data@latest}` or `${{parent.inputs.<name>}}`",
            at=at,
        )
    bound = bindings.read(text, place)
    declared = str(port.get("type") or "")
    value: Value | None
    if bound is not None:
        source = f"`{bound}`"
        value = _bound(scope, bound, subject, place)
        if mode and isinstance(value, Data | Output):
            value = replace(value, mode=mode)
    elif place[-1:] == ("path",) and isinstance(written, Mapping):
        value = Data(str(text), kind, mode, at)
    elif isinstance(written, str) and declared not in ("", "path", *LITERALS):
        value = Data(written, at=at)
    else:
        value = Literal(text)
    if value is not None:
        check_fits(value, port, subject, source, at)
        return value
    if port.get("default") is not None:
        return Literal(port["default"])
    if port and not is_optional(port):
        raise InvalidSpec(
            f"{subject} is bound to {source}, which has no value",
            "give it one, or make the input of the component optional",
            at=at,
        )
    return None


def _bound(scope: Scope, bound: Binding, subject: str, at: At) -> Value | None:
    """What a binding leads to."""
    if bound.step:
        return _of_step(scope, bound, subject, at)
    if bound.kind == "outputs":
        raise InvalidSpec(
            f"{subject} is bound to `{bound}`, an output of the pipeline",
            "name the step that makes it: `${{parent.jobs.<step>.outputs.<name>}}`",
            at=at,
        )
    if bound.name not in scope.inputs:
        raise InvalidSpec(
            f"{subject} is bound to `{bound}`, and the pipeline has no input `{bound.name}`",
            meant(bound.name, scope.inputs, "declare it under `inputs`"),
            at=at,
        )
    return scope.inputs[bound.name]


def _of_step(scope: Scope, bound: Binding, subject: str, at: At) -> Value | None:
    node = scope.nodes.get(bound.step)
    if node is None:
        raise InvalidSpec(
            f"{subject} is bound to `{bound}`, and there is no step `{bound.step}`",
            meant(bound.step, scope.nodes, "name one of the steps under `jobs`"),
            at=at,
        )
    if node.is_broken:
        return UNKNOWN
    if bound.kind == "inputs":
        if bound.name not in node.input_names:
            raise _no_such(bound, subject, node.input_names, at)
        return scope.values[(bound.step, bound.name)]
    ports = node.output_ports
    if bound.name not in ports:
        raise _no_such(bound, subject, ports, at)
    kind = output_type(ports[bound.name], node.said.get(bound.name, {}))
    return Output(node.path, bound.name, kind)


def _no_such(bound: Binding, subject: str, known: Collection[str], at: At) -> InvalidSpec:
    return InvalidSpec(
        f"{subject} is bound to `{bound}`, and step `{bound.step}` has no {bound.kind[:-1]} "
        f"`{bound.name}`",
        meant(bound.name, known, f"declare it under its `{bound.kind}`"),
        at=at,
    )
