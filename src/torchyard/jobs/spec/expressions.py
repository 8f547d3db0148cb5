"""The expressions `${{inputs.x}}` and `${{outputs.x}}` of a job file.

Owns: their form, where they may stand, and that the job has what they name.
Leaves: filling them in to the node, which knows the paths; those of outputs' paths to
files/outputs.py.
Always: one that stands elsewhere, or names nothing, is refused with its place: none reaches a
process as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torchyard.base.errors import InvalidSpec, nearest
from torchyard.jobs.spec.inputs import Input, Output
from torchyard.jobs.spec.values import At
from torchyard.shared import brackets

EXPRESSION = ("${{", "}}")
OPTIONAL = ("$[[", "]]")
_OURS = re.compile(r"^(inputs|outputs)\.([A-Za-z0-9_]+)(?:\.path)?\Z")
# A dot is in no name of a shell's variable.
_SINGLE = re.compile(r"\$\{((?:inputs|outputs)\.[A-Za-z0-9_.]+)\}")


def check_command(command: str, inputs: Mapping[str, Input], outputs: Mapping[str, Output]) -> None:
    """Check a command; what stands in `$[[ … ]]` may name what the job does not have.

    Raises:
        InvalidSpec: at `command`.
    """
    at = ("command",)
    if not brackets.is_closed(command, *OPTIONAL):
        raise InvalidSpec(
            "the command opens `$[[` and does not close it", "end it with `]]`", at=at
        )
    if not brackets.is_closed(command, *EXPRESSION):
        raise InvalidSpec(
            "the command opens `${{` and does not close it", "end it with `}}`", at=at
        )
    if single := _SINGLE.search(command):
        raise InvalidSpec(
            f"the command uses `{single[0]}`, which no shell can expand",
            f"write `${{{{{single[1]}}}}}`",
            at=at,
        )
    for content in brackets.contents(command, *EXPRESSION):
        form_of(content, "a job's command", at)
    # What is left may have become an expression only by leaving out what stood in it.
    always = brackets.replaced(command, *OPTIONAL, lambda part: "")
    _check_names(always, "the command", "a job's command", at, inputs, outputs)


def check_variables(
    variables: Mapping[str, str], inputs: Mapping[str, Input], outputs: Mapping[str, Output]
) -> None:
    """Check the values of environment variables.

    Raises:
        InvalidSpec: at the variable.
    """
    for variable, value in variables.items():
        at = ("environment_variables", variable)
        if not brackets.is_closed(value, *EXPRESSION):
            raise InvalidSpec(
                f"`{variable}` opens `${{{{` and does not close it", "end it with `}}`", at=at
            )
        _check_names(value, f"`{variable}`", "an environment variable", at, inputs, outputs)


def refuse_in_inputs(inputs: Mapping[str, Input]) -> None:
    """Inputs name nothing else of the job, as in Azure ML.

    Raises:
        InvalidSpec: at the input.
    """
    for name, entry in inputs.items():
        for written in (entry.value, entry.path):
            if EXPRESSION[0] in written:
                raise InvalidSpec(
                    f"input `{name}` holds `{written[:80]}`, and an input cannot use expressions",
                    "write the value itself; expressions of steps are for pipelines",
                    at=("inputs", name),
                )


def form_of(content: str, user: str, at: At) -> tuple[str, str]:
    """(`inputs` or `outputs`, the name) of what stands between the brackets.

    Args:
        user: what uses it, for the message.

    Raises:
        InvalidSpec: it is another expression.
    """
    expression = content.strip()
    if match := _OURS.match(expression):
        return match[1], match[2]
    head, _, rest = expression.partition(".")
    hint = "use `${{inputs.<name>}}` or `${{outputs.<name>}}`"
    near = nearest(head, ("inputs", "outputs"))
    if head == "parent":
        hint = f"`parent` is for steps of a pipeline; {hint}"
    elif head == "search_space":
        hint = f"`search_space` is for sweeps; {hint}"
    elif near and rest:
        hint = f"did you mean `${{{{{near}.{rest}}}}}`?"
    raise InvalidSpec(
        f"`${{{{{expression[:80]}}}}}` is not an expression that {user} can use", hint, at=at
    )


def _check_names(
    written: str,
    subject: str,
    user: str,
    at: At,
    inputs: Mapping[str, Input],
    outputs: Mapping[str, Output],
) -> None:
    names = {"inputs": list(inputs), "outputs": list(outputs)}
    for content in brackets.contents(written, *EXPRESSION):
        kind, name = form_of(content, user, at)
        if name not in names[kind]:
            near = nearest(name, names[kind])
            raise InvalidSpec(
                f"{subject} uses `${{{{{kind}.{name}}}}}`, and the job has no such {kind[:-1]}",
                f"did you mean `{near}`?" if near else f"add `{name}` under `{kind}`",
                at=at,
            )
