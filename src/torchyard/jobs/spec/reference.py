"""docs/reference/job-file.md, from the models of the file.

`python -m torchyard.jobs.spec.reference` prints it.
"""

from __future__ import annotations

from torchyard.base.documents import models
from torchyard.base.documents.models import Declared
from torchyard.jobs.spec import own_properties
from torchyard.jobs.spec.job_spec import JobFile

_INTRODUCTION = (
    "Made from the models in `src/torchyard/jobs/spec/` by `python -m "
    "torchyard.jobs.spec.reference`; edit those, not this.",
    "*honoured*: it does what it says. *satisfied*: what it asks for holds anyway. *refused*: the "
    "job is not accepted, and the message says what to do instead. Any other key is refused as "
    "unknown, with the nearest one that there is. Values of a fixed set are read in any case, with "
    "`_`, `-` or in camelCase.",
    "`${{inputs.<name>}}` and `${{outputs.<name>}}` are resolved in `command` and in the values of "
    "`environment_variables`; what `outputs.<name>.path` can use stands there. In `description`, "
    "`display_name`, `tags` and `properties`, which no process gets, an expression is text, and "
    "anywhere else it is refused with its line.",
)


def page() -> str:
    lines = ["# The job file, key by key"]
    for paragraph in _INTRODUCTION:
        lines += ["", paragraph]
    sections: dict[str, list[str]] = {"The job": []}
    for row in models.walk(JobFile):
        top, dot, _ = row.path.partition(".")
        sections.setdefault(f"`{top}`" if dot else "The job", []).append(_line(row))
    for title, rows in sections.items():
        lines += ["", f"## {title}", "", "| key | support | |", "|---|---|---|", *rows]
    lines += [
        *("", "## Properties that torchyard reads", ""),
        "Any other below `torchyard.` is refused; the rest of `properties` is yours.",
        *("", "| property | says |", "|---|---|"),
        *(f"| `{name}` | {says} |" for name, says in own_properties.TABLE.items()),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Declared) -> str:
    shown = row.path.replace("*", "<name>") + (f": {row.value}" if row.value else "")
    return f"| `{shown}` | {row.support} | {row.note.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    print(page(), end="")
