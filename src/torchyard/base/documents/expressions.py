"""Expressions such as `${{inputs.x}}` in a document: where they are resolved, and where only text.

Owns: finding them in every string of a document, refusing those that nothing resolves, and that
the document has the inputs and outputs that they name.
Leaves: filling them in to the worker, those of an output's path to jobs/files/outputs.py, those of
a search space to sweeps/.
Always: an expression is resolved, a text for people, or refused with its place: none reaches a
process as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from torchyard.base.errors import InvalidSpec, nearest
from torchyard.shared import brackets

EXPRESSION = ("${{", "}}")
OPTIONAL = ("$[[", "]]")
At = tuple[str | int, ...]

# A dot is in no name of a shell's variable.
_SINGLE = re.compile(
    r"\$\{ ?((?:(?P<kind>input|output)s?|parent|search_space)\.(?P<name>[A-Za-z0-9_.]+)) ?\}"
)
# As other programs mark what they fill in: `{{inputs.x}}`, `$(inputs.x)`, `$inputs.x` and so on.
_OTHER_MARKS = re.compile(
    r"(?:\$\(?|[{%<])[ {]{0,3}(input|output)s?\.([A-Za-z0-9_]+)(?: {0,3}[})]{1,2}|[%>])?"
)
_TITLES = ("description", "display_name")
_LABELS = ("tags", "properties")
# Mappings that have texts for people of their own, and those whose entries have.
_DESCRIBED = ("trial", "environment", "model")
_DESCRIBED_ENTRIES = ("inputs", "outputs")
_OWN = "torchyard."
_NAME = re.compile(r"[A-Za-z0-9_]+")
_NAMED = re.compile(r"(inputs|outputs)\.([A-Za-z0-9_]+)(?:\.path)?\Z")
# Of documents that are read from YAML, and then some.
_LIMIT_DEPTH = 200


def refuse(document: Any, resolved: Sequence[str] = (), at: At = ()) -> None:
    """Refuse every expression that is neither resolved nor in a text for people.

    Raises:
        InvalidSpec: the first of `unresolved`.
    """
    for error in unresolved(document, resolved, at):
        raise error


def unresolved(document: Any, resolved: Sequence[str] = (), at: At = ()) -> Iterator[InvalidSpec]:
    """An error for each string with an expression that is neither resolved nor for people.

    Args:
        resolved: where they are resolved, with dots between keys and `*` for any name. Only in a
            `command` there is `$[[ … ]]`.
        at: where the document stands.
    """
    for path, written in _strings(document, at):
        if is_for_people(path):
            continue
        subject = f"`{'.'.join(map(str, path))}`"
        if any(_matches(path, pattern) for pattern in resolved):
            try:
                _check_form(written, subject, path)
            except InvalidSpec as error:
                yield error
        elif expression := _first(written):
            yield InvalidSpec(
                f"{subject} holds `{expression[:80]}`, and expressions are not resolved there",
                _hint(expression, resolved),
                at=path,
            )


def is_for_people(at: At) -> bool:
    """Whether what stands there is a text that is only shown: no process gets it."""
    if at[-1:] == ("$schema",):
        return True
    if len(at) > 1 and at[-2] in _LABELS:
        return set(at[:-2]) <= set(_DESCRIBED) and not str(at[-1]).startswith(_OWN)
    if not at or at[-1] not in _TITLES:
        return False
    return set(at[:-1]) <= set(_DESCRIBED) or (len(at) > 2 and at[-3] in _DESCRIBED_ENTRIES)


def check_command(command: str, inputs: Collection[str], outputs: Collection[str]) -> None:
    """Check what a command names; in `$[[ … ]]` that may be what there is not.

    Raises:
        InvalidSpec: at `command`.
    """
    at = ("command",)
    for content in brackets.contents(command, *EXPRESSION):
        form_of(content, "a job's command", at, inputs)
    # What is left may have become an expression only by leaving out what stood in it.
    always = brackets.replaced(command, *OPTIONAL, lambda part: "")
    _check_names(always, "the command", "a job's command", at, inputs, outputs)


def check_variables(
    variables: Mapping[str, str], inputs: Collection[str], outputs: Collection[str]
) -> None:
    """Check what the values of environment variables name.

    Raises:
        InvalidSpec: at the variable.
    """
    for variable, value in variables.items():
        at = ("environment_variables", variable)
        _check_names(value, f"`{variable}`", "an environment variable", at, inputs, outputs)


def mistaken(
    written: str, subject: str, inputs: Collection[str], outputs: Collection[str]
) -> Iterator[str]:
    """Notices about what another program would fill in, for inputs and outputs that there are."""
    names = {"input": inputs, "output": outputs}
    rest = brackets.replaced(written, *EXPRESSION, lambda content: "")
    for match in _OTHER_MARKS.finditer(rest):
        kind, name = match.groups()
        if name in names[kind]:
            yield (
                f"`{match[0].strip()}` in {subject} is not an expression and is passed on as it "
                f"is; write `${{{{{kind}s.{name}}}}}`"
            )


def form_of(content: str, user: str, at: At, inputs: Collection[str] = ()) -> tuple[str, str]:
    """(`inputs` or `outputs`, the name) of what stands between the brackets.

    Args:
        user: what uses it, for the message.
        inputs: those that there are, one of which may be meant.

    Raises:
        InvalidSpec: it is another expression.
    """
    expression = content.strip()
    if match := _NAMED.match(expression):
        return match[1], match[2]
    head, _, rest = expression.partition(".")
    hint = "use `${{inputs.<name>}}` or `${{outputs.<name>}}`"
    guess = nearest(head, ("inputs", "outputs"))
    if head == "parent":
        hint = f"`parent` is for steps of a pipeline; {hint}"
    elif head == "search_space":
        hint = (
            "`search_space` is for the commands of sweeps; a trial finds the value in the variable "
            f"`AZUREML_SWEEP_{rest or '<name>'}`"
        )
    elif not rest and (near_input := nearest(head, inputs)):
        hint = f"did you mean `${{{{inputs.{near_input}}}}}`?"
    elif guess and (name := _NAME.match(rest)):
        hint = f"did you mean `${{{{{guess}.{name[0]}}}}}`?"
    raise InvalidSpec(
        f"`${{{{{expression[:80]}}}}}` is not an expression that {user} can use", hint, at=at
    )


def _check_names(
    written: str,
    subject: str,
    user: str,
    at: At,
    inputs: Collection[str],
    outputs: Collection[str],
) -> None:
    faults: dict[str, InvalidSpec] = {}
    for content in brackets.contents(written, *EXPRESSION):
        try:
            _check_name(content, subject, user, at, {"inputs": inputs, "outputs": outputs})
        except InvalidSpec as error:
            faults.setdefault(error.message, error)
    if faults:
        first, *others = faults.values()
        first.add_others([*first.others, *others])
        raise first


def _check_name(
    content: str, subject: str, user: str, at: At, names: Mapping[str, Collection[str]]
) -> None:
    kind, name = form_of(content, user, at, names["inputs"])
    if name not in names[kind]:
        guess = nearest(name, list(names[kind]))
        raise InvalidSpec(
            f"{subject} uses `${{{{{kind}.{name}}}}}`, and that {kind[:-1]} is not defined",
            f"did you mean `{kind}.{guess}`?" if guess else f"add `{name}` under `{kind}`",
            at=at,
        )


def _strings(value: Any, at: At) -> Iterator[tuple[At, str]]:
    """Every string of a document with its place, names that the user chose included."""
    if len(at) > _LIMIT_DEPTH:
        raise InvalidSpec(
            "the document is nested too deeply", f"use fewer than {_LIMIT_DEPTH} levels", at=at[:1]
        )
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str) and "$" in key:
                yield (*at, key), key
            yield from _strings(inner, (*at, str(key)))
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from _strings(inner, (*at, position))


def _matches(path: At, pattern: str) -> bool:
    steps = pattern.split(".")
    return len(path) == len(steps) and all(
        step in ("*", part) for step, part in zip(steps, path, strict=True)
    )


def _check_form(written: str, subject: str, at: At) -> None:
    """An expression where they are resolved is whole."""
    pairs = [EXPRESSION]
    if at[-1] == "command":
        pairs.append(OPTIONAL)
    elif optional := next(brackets.contents(written, *OPTIONAL), None):
        raise InvalidSpec(
            f"{subject} holds `$[[{optional[:80]}]]`, which only a command can have",
            "write it without `$[[` and `]]`",
            at=at,
        )
    for opening, closing in pairs:
        if not brackets.is_closed(written, opening, closing):
            raise InvalidSpec(
                f"{subject} opens `{opening}` and does not close it",
                f"end it with `{closing}`",
                at=at,
            )
    if single := _SINGLE.search(written):
        meant = f"{single['kind']}s.{single['name']}" if single["kind"] else single[1]
        raise InvalidSpec(
            f"{subject} holds `{single[0]}`, which nothing expands",
            f"write `${{{{{meant}}}}}`",
            at=at,
        )


def _first(written: str) -> str:
    """The first expression, or what was meant as one; empty for none."""
    for opening, closing in (EXPRESSION, OPTIONAL):
        for content in brackets.contents(written, opening, closing):
            return f"{opening}{content}{closing}"
    if EXPRESSION[0] in written:
        return EXPRESSION[0]
    single = _SINGLE.search(written)
    return single[0] if single else ""


def _hint(expression: str, resolved: Sequence[str]) -> str:
    if expression.strip("${ ").startswith("parent."):
        return "`parent` is for steps of a pipeline: write the value itself"
    if not resolved:
        return "write the value itself: expressions are for the commands of jobs"
    names = [f"`{pattern.removesuffix('.*')}`".replace("*", "<name>") for pattern in resolved]
    last = names.pop()
    listed = f"{', '.join(names)} and {last}" if names else last
    return f"write the value itself: expressions are resolved in {listed}"
