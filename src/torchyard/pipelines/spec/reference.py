"""docs/reference/pipeline-file.md, from the models of the file.

`python -m torchyard.pipelines.spec.reference` prints it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torchyard.base.documents import pages
from torchyard.base.documents.models import Document, keys
from torchyard.components.documents import (
    CommandComponentFile,
    InputFile,
    OutputFile,
    PipelineComponentFile,
)
from torchyard.pipelines.spec.pipeline_file import NodeFile, PipelineFile, SettingsFile

_INTRODUCTION = (
    "Made from the models in `src/torchyard/pipelines/spec/` and `src/torchyard/components/` by "
    "`python -m torchyard.pipelines.spec.reference`; edit those, not this. A file of Azure's "
    "`type: pipeline` is read as it is.",
    "*honoured*: it does what it says. *satisfied*: what it asks for holds anyway. *refused*: the "
    "pipeline is not accepted, and the message says what to do instead.",
)
_BINDINGS = """
An input of a step is a value, data as of a job, or a binding, and nothing stands beside a binding:

| binding | is |
|---|---|
| `${{parent.inputs.<name>}}` | an input of the pipeline |
| `${{parent.jobs.<step>.outputs.<name>}}` | what another step makes; the step waits for it |
| `${{parent.jobs.<step>.inputs.<name>}}` | what another step takes |
| `${{parent.outputs.<name>}}` | of a step's output: it is this output of the pipeline |
"""


def page() -> str:
    of_command = keys(CommandComponentFile)
    lines = ["# The pipeline file, key by key"]
    for paragraph in _INTRODUCTION:
        lines += ["", paragraph]
    lines += [
        *_section("The pipeline", PipelineFile),
        *_section("A step", NodeFile),
        *("", "## Bindings", "", _BINDINGS.strip()),
        *_section("`settings`", SettingsFile),
        *_section("A component", CommandComponentFile),
        *_section("An input of a component", InputFile),
        *_section("An output of a component", OutputFile),
        *_section("A pipeline component, beside those", PipelineComponentFile, of_command),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, model: type[Document], without: Collection[str] = ()) -> Iterator[str]:
    """A line for each key of the model itself; one for each value of a fixed set."""
    yield from ("", f"## {title}", "", "| key | support | |", "|---|---|---|")
    own = [key for key in keys(model) if key not in without]
    for row in pages.walk(model):
        key = row.path.removesuffix(".*")
        if key in own:
            shown = f"{key}: {row.value}" if row.value else key
            yield f"| `{shown}` | {row.support} | {row.note.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    print(page(), end="")
