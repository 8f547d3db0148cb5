"""Print the page of curated environments in the docs: `python tools/curated_page.py`.

Owns: how environments, components and test results are displayed.
Leaves: what they are to the folders of environments/curated.
Always: the page is generated from those folders alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchyard.environments.names import components, curated_environments
from torchyard.environments.names.components import EnvironmentComponent, TestRun
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.packages import pythons

_HEAD = (
    "# Curated environments",
    "",
    "Generated from `src/torchyard/environments/curated` by `make docs`; edit the files there, not "
    "this page.",
    "",
    "Every environment that a workspace has, what a build of it holds, and what was tested where. "
    "*built* means that its label is read from a build; *locked* that it is what its requirements "
    "resolve to, and whether a build for its tests agreed with that. *deprecated from* is the "
    "month in which its Python gets its last security fix. `yard environment show -n NAME` prints "
    "the same with every package, `yard environment page NAME` adds your own validations and known "
    "vulnerabilities by their age. [Environments](../guides/environments.md) says how to use them, "
    "[decision 0100](../decisions/0100-test-each-component-of-a-curated-environment.md) how they "
    "are tested.",
    "",
)

_COLUMNS = (
    *("environment", "version", "Python", "torch", "CUDA", "packages", "size", "label"),
    *("deprecated from", "tested"),
)

_COMPONENTS = (
    "## Components of Azure Container for PyTorch",
    "",
    "Every component that Azure's documents name, and what Azure's own file adds to its image for "
    "scripts, in every environment `acpt-…`, with what its one-step test printed. *layer* is "
    "torchyard's own package in place of one that no longer works.",
    "",
)


def page() -> str:
    """The page of curated environments."""
    every = curated_environments.every()
    family = [curated for curated in every if components.promises(curated)]
    return "\n".join(
        [
            *_HEAD,
            *_environments(every),
            "",
            *_COMPONENTS,
            *(line for curated in reversed(family) for line in _family_member(curated)),
            "## Not in the catalogue",
            "",
            "| environment | reason | instead |",
            "|---|---|---|",
            *(
                f"| `{entry.name}` | {_cell(entry.reason)} | `{entry.instead}` |"
                for entry in components.unresolved()
            ),
            "",
        ]
    )


def _environments(every: Sequence[Curated]) -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---" * len(_COLUMNS) + "|"
    for curated in every:
        contents = curated.contents
        python = str(contents.get("python") or curated.python)
        size_bytes = contents.get("size_bytes")
        versions = dict(line.partition("==")[::2] for line in curated.packages)
        cells = [
            f"`{curated.name}`",
            curated.version,
            python or "the platform's",
            versions.get("torch", ""),
            _cuda(curated),
            str(len(versions)) if versions else "0",
            f"{size_bytes / 1e9:.1f} GB" if size_bytes else "",
            _label(curated),
            pythons.end_of_support(python),
            "<br>".join(_tested(run) for run in components.runs(curated.name)) or "no",
        ]
        yield f"| {' | '.join(cells)} |"


def _cuda(curated: Curated) -> str:
    """What its torch is for; where any accelerator will do, a machine may get a build without."""
    cuda = str(curated.contents.get("cuda", "")) or curated.name.partition("-cuda")[2]
    has_torch = bool(curated.contents.get("torch"))
    return f"{cuda} or none" if cuda and has_torch and not curated.accelerator else cuda


def _label(curated: Curated) -> str:
    if curated.contents or not curated.requirements:
        return "built"
    # A run without differences found the locked version of each package in a build.
    if any(not run.differences for run in components.runs(curated.name)):
        return "locked, a build agrees"
    return "locked, not tested"


def _tested(run: TestRun) -> str:
    label = f"{run.distributions} packages with {run.modules} modules"
    differ = len(run.differences)
    agrees = "as the label says" if not differ else f"{differ} differences from the label"
    failed = [name for name, step in run.steps.items() if step.error]
    steps = f"; {len(run.steps) - len(failed)} of {len(run.steps)} steps" if run.steps else ""
    outcome = "all found" if not run.faults else f"{len(run.faults)} not found"
    imports = f"; imports of {run.pairs} pairs of packages, {outcome}" if run.pairs else ""
    return f"{label}, {agrees}{imports}{steps} ({_cell(run.hardware)}, {run.date})"


def _family_member(curated: Curated) -> Iterator[str]:
    runs = components.runs(curated.name)
    yield f"### {curated.name}:{curated.version}"
    yield ""
    yield f"{curated.description}. {_where(curated, runs)}"
    yield ""
    yield "| component | here | one-step test | seconds |"
    yield "|---|---|---|---|"
    for component in components.components_of(curated):
        yield _component(component, runs)
    yield ""


def _where(curated: Curated, runs: Sequence[TestRun]) -> str:
    if not runs:
        return f"{_label(curated).capitalize()} yet."
    return f"Tested on {', '.join(f'{run.hardware} on {run.date}' for run in runs)}."


def _component(component: EnvironmentComponent, runs: Sequence[TestRun]) -> str:
    name = component.component.name
    if component.state == "unavailable":
        instead = f"; instead: {component.instead}" if component.instead else ""
        return f"| {name} | not available | {_cell(component.reason)}{_cell(instead)} | |"
    version = component.version.partition("+torchyard")[0]
    layer = " (layer)" if component.state == "layer" else ""
    package = (
        "" if component.package == component.component.packages[0] else f" `{component.package}`"
    )
    steps = [run.steps[name] for run in runs if name in run.steps]
    results = "<br>".join(
        _cell(f"failed: {step.error}" if step.error else step.result) for step in steps
    )
    seconds = "<br>".join(f"{step.seconds:.1f}" for step in steps)
    if component.needs_gpu:
        without = f"without a GPU: {component.reason}; instead: {component.instead}"
        results = "<br>".join(part for part in (results, _cell(without)) if part)
    return f"| {name} |{package} {version}{layer} | {results or 'not run'} | {seconds} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    print(page(), end="")
