"""Bindings: the expressions by which a step's inputs and outputs name those of others.

Owns: their forms.
Leaves: whether what they name is there to expansion.py.
Always: a text is a binding as a whole, or holds none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec

_NAME = r"([A-Za-z_][\w]*(?:\.(?!path\b)[A-Za-z_]\w*)?)"
_OF_PIPELINE = re.compile(rf"parent\.(inputs|outputs)\.{_NAME}(?:\.path)?\Z", re.ASCII)
_OF_STEP = re.compile(rf"parent\.jobs\.(\w+)\.(inputs|outputs)\.{_NAME}(?:\.path)?\Z", re.ASCII)
_LONGEST = 500
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_HINT = "use `${{parent.inputs.<name>}}` or `${{parent.jobs.<step>.outputs.<name>}}`"


@dataclass(frozen=True)
class Binding:
    """What is bound to: `kind` is `inputs` or `outputs`, of the pipeline where `step` is empty."""

    kind: str
    name: str
    step: str = ""

    def __str__(self) -> str:
        of_step = f"jobs.{self.step}." if self.step else ""
        return f"${{{{parent.{of_step}{self.kind}.{self.name}}}}}"


def read(value: Any, at: At) -> Binding | None:
    """The binding that a text is; None for any other value.

    Raises:
        InvalidSpec: it holds an expression that is none, or something beside one.
    """
    if not isinstance(value, str) or "${{" not in value:
        return None
    match = _EXPRESSION.fullmatch(value.strip())
    if match is not None and len(match[1].strip()) > _LONGEST:
        raise InvalidSpec(f"`{value.strip()[:80]}…` is too long for a binding", _HINT, at=at)
    if match is None:
        raise InvalidSpec(
            f"`{value[:80]}` holds an expression beside other text",
            "bind the whole value, and put the text into the command of the step",
            at=at,
        )
    content = match[1].strip()
    if found := _OF_PIPELINE.match(content):
        return Binding(found[1], found[2])
    if found := _OF_STEP.match(content):
        return Binding(found[2], found[3], found[1])
    meant = f"parent.{content}"
    is_meant = _OF_PIPELINE.match(meant) or _OF_STEP.match(meant)
    hint = f"did you mean `${{{{{meant[:80]}}}}}`?" if is_meant else _HINT
    raise InvalidSpec(f"`{value[:80]}` is not a binding", hint, at=at)
