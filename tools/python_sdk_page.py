"""The reference of the Python SDK in the docs; `python tools/python_sdk_page.py` prints it.

Owns: which classes stand on the page in which order, docstrings as Markdown.
Leaves: the words to the docstrings in src/torchyard/client/.
Always: made from the code alone; every public name of `torchyard` is on it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, get_args

import torchyard
from torchyard.client import (
    components,
    computes,
    data,
    datastores,
    environments,
    experiments,
    jobs,
    lineage,
    models,
    pipeline_steps,
    quotas,
    users,
    workspaces,
)
from torchyard.client.batch_endpoints import deployments as batch_deployments
from torchyard.client.batch_endpoints import endpoints as batch_endpoints
from torchyard.client.endpoints import online_deployments, online_endpoints, scoring
from torchyard.client.images import exported_image
from torchyard.client.interactive import instances
from torchyard.client.pipelines import pipelines
from torchyard.client.releases import verbs
from torchyard.client.sweeps import sweeps
from torchyard.client.trials import trials

_HEAD = """# Python SDK

Made from the docstrings in `src/torchyard/client/` by `python tools/python_sdk_page.py`; edit those, not this. A walk through it: [the guide](../guides/python-sdk.md).

Every name here that is not a method can be imported from `torchyard`, unless its module is named. Objects are frozen; `raw` is the JSON that each was made of. Times are aware, in UTC. Lists are `Listing`s: lists that a notebook shows as tables, with `raw`.
"""  # noqa: E501
_NOUNS = (
    ("jobs", jobs.Jobs, (jobs.Deletion, jobs.CodeFile, jobs.NodeReport)),
    ("sweeps", sweeps.Sweeps, (trials.SweepTrials, trials.Trial, trials.Rung)),
    ("pipelines", pipelines.Pipelines, (pipelines.Step, pipelines.Explanation)),
    (
        "lineage",
        lineage.Lineages,
        (lineage.Lineage, lineage.LineageNode, lineage.LineageEdge),
    ),
    ("models", models.Models, (models.Model,)),
    (
        "online_endpoints",
        online_endpoints.OnlineEndpoints,
        (
            online_endpoints.OnlineEndpoint,
            online_endpoints.Keys,
            online_endpoints.Token,
            scoring.Answer,
        ),
    ),
    (
        "online_deployments",
        online_deployments.OnlineDeployments,
        (online_deployments.OnlineDeployment,),
    ),
    ("batch_endpoints", batch_endpoints.BatchEndpoints, (batch_endpoints.BatchEndpoint,)),
    (
        "batch_deployments",
        batch_deployments.BatchDeployments,
        (batch_deployments.BatchDeployment,),
    ),
    ("data", data.Data, (data.DataAsset,)),
    ("components", components.Components, (components.Component,)),
    ("datastores", datastores.Datastores, (datastores.Datastore,)),
    (
        "environments",
        environments.Environments,
        (
            environments.Environment,
            environments.ResolvedEnvironment,
            environments.ExportedEnvironment,
            environments.EnvironmentDefinition,
            environments.BuiltEnvironment,
            exported_image.ExportedImage,
            verbs.EnvironmentRelease,
            verbs.Gate,
            verbs.WorkloadResult,
            verbs.EnvironmentAudit,
            verbs.Finding,
            verbs.ReleaseSchedule,
        ),
    ),
    (
        "computes",
        computes.Computes,
        (
            computes.Compute,
            computes.ComputeNodes,
            computes.ComputeNode,
            computes.WaitingJob,
            computes.ComputeHistory,
            computes.NodeCount,
            computes.DayOfUse,
            computes.NodeSize,
        ),
    ),
    ("instances", instances.Instances, (instances.Instance,)),
    ("experiments", experiments.Experiments, (experiments.Experiment,)),
    ("workspaces", workspaces.Workspaces, (workspaces.Workspace, workspaces.UrlMap)),
    (
        "users",
        users.Users,
        (users.User, users.Identity, users.Token, users.NewToken, users.AuditLine),
    ),
    ("quotas", quotas.Quotas, (quotas.Quota, quotas.QuotaRequest)),
)
_JOB_TYPES = (
    "Job", "JobSummary", "JobError", "Stage", "RemoteFile", "MetricPoint", "MetricSummary",
    "ChartLine",
)  # fmt: skip
_SECTION = re.compile(r"(Args|Returns|Raises|Example):(:?)\Z")


def page() -> str:
    """The whole page, in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _class("Client", torchyard.Client, constructor=True)
    yield "## Jobs to submit\n"
    yield from _function("command", torchyard.command)
    for name in ("Input", "Output", "CommandJob"):
        yield from _class(name, getattr(torchyard, name), level=3)
    yield from _function("pipeline", torchyard.pipeline)
    yield from _function("load_component", torchyard.load_component)
    yield from _class("PipelineJob", torchyard.PipelineJob, level=3)
    yield from _class("torchyard.client.pipeline_steps.NewStep", pipeline_steps.NewStep, level=3)
    yield "## A job\n"
    statuses = ", ".join(f"`{status}`" for status in get_args(torchyard.JobStatus))
    yield f"`JobStatus` is one of {statuses}.\n"
    for name in _JOB_TYPES:
        yield from _class(name, getattr(torchyard, name), level=3)
    for attribute, noun, types in _NOUNS:
        yield f"## client.{attribute}\n"
        yield from _markdown(inspect.getdoc(noun) or "")
        yield from _methods(noun, f"client.{attribute}")
        for kind in types:
            public = kind.__name__ in torchyard.__all__
            name = kind.__name__ if public else f"{kind.__module__}.{kind.__name__}"
            yield from _class(name, kind, level=3)
    yield from _class("Listing", torchyard.Listing)
    yield "## Errors\n"
    yield "| error | code | when |\n|---|---|---|"
    yield from _errors()


def _errors() -> Iterator[str]:
    """Off the tree that is drawn in base/errors.py, in its order."""
    from torchyard.base import errors

    drawn = re.findall(r"^[ │├└─]*[├└]── (\w+) +(.+)$", errors.__doc__ or "", re.MULTILINE)
    for name, words in [("TorchyardError", "all of these"), *drawn]:
        if name in torchyard.__all__:
            sentence = re.sub(r" \((\d+|client/job\.py)\)", "", words)
            parent = getattr(torchyard, name).__mro__[1].__name__
            kind = f", a kind of `{parent}`" if parent not in _ROOTS else ""
            yield f"| `{name}` | `{getattr(torchyard, name).code}` | {sentence}{kind} |"


_ROOTS = ("TorchyardError", "Exception")


def _class(name: str, kind: type[Any], level: int = 2, constructor: bool = False) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    if constructor:
        yield f"```python\n{_shown(name, kind.__init__)}\n```\n"
    yield from _markdown(inspect.getdoc(kind) or "")
    names = _fields(kind)
    if names:
        yield "| field | type |\n|---|---|"
        for field, annotation in names:
            yield f"| `{field}` | `{annotation}` |".replace(" | ", " \\| ").replace(
                "` \\| `", "` | `"
            )
        yield ""
    yield from _methods(kind, "client" if constructor else kind.__name__.lower())


def _fields(kind: type[Any]) -> list[tuple[str, str]]:
    """Its own fields: those that it has from another class of the page stand there."""
    if issubclass(kind, tuple):
        return [(name, str(kind.__annotations__[name])) for name in kind._fields]  # type: ignore[attr-defined]
    if not is_dataclass(kind):
        return []
    inherited = {field.name for field in fields(torchyard.JobSummary)} | {"raw"}
    left_out = inherited if kind is torchyard.Job else {"raw"}
    return [
        (field.name, str(field.type))
        for field in fields(kind)
        if field.name not in left_out and not field.name.startswith("_")
    ]


def _methods(kind: type[Any], prefix: str) -> Iterator[str]:
    inherited = set(dir(torchyard.JobSummary)) if kind is torchyard.Job else set()
    for name, member in _members(kind):
        if name in inherited:
            continue
        if isinstance(member, (property, cached_property)):
            function = member.fget if isinstance(member, property) else member.func
            words = inspect.getdoc(function) or ""
            yield (
                f"- `{prefix}.{name}`: {' '.join(words.split())}"
                if words
                else f"- `{prefix}.{name}`"
            )
            continue
        yield f"\n#### {prefix}.{name}\n"
        yield f"```python\n{_shown(name, member)}\n```\n"
        yield from _markdown(inspect.getdoc(member) or "")
    yield ""


def _members(kind: type[Any]) -> list[tuple[str, Any]]:
    """Public properties, then public methods, in the order in which they are written."""
    members: dict[str, Any] = {}
    for base in kind.__mro__:
        if not base.__module__.startswith("torchyard."):
            continue
        for name, member in vars(base).items():
            documented = inspect.isfunction(member) or isinstance(
                member, (property, cached_property)
            )
            if documented and not name.startswith("_"):
                members.setdefault(name, member)
    return sorted(members.items(), key=lambda pair: inspect.isfunction(pair[1]))


def _function(name: str, function: Any) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"```python\n{_shown(name, function)}\n```\n"
    yield from _markdown(inspect.getdoc(function) or "")


def _shown(name: str, function: Any) -> str:
    """A signature as it is written, without `self`."""
    signature = inspect.signature(function)
    parts, is_keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            parts.append("*")
            is_keyword_only = True
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else stars
        text = f"{stars}{parameter.name}: {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = "…" if callable(parameter.default) else repr(parameter.default)
            text += f" = {default}"
        parts.append(text)
    returns = "" if name[:1].isupper() else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= 90:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _markdown(words: str) -> Iterator[str]:
    """A docstring: prose as it is, its sections as lists and code."""
    section = ""
    code: list[str] = []
    for line in words.split("\n"):
        heading = _SECTION.match(line)
        if heading:
            section = heading[1]
            yield f"**{section}**\n" if section != "Example" else "```python"
        elif section == "Example":
            code.append(line)
        elif section and line.strip():
            yield _item(line)
        else:
            yield line
    if code:
        yield inspect.cleandoc("\n".join(code))
        yield "```"
    yield ""


def _item(line: str) -> str:
    """`    name: words` begins an item; deeper lines go on with the one before."""
    match = re.match(r" {4}([\w, ]+): (.*)", line)
    if match:
        return f"- `{match[1]}`: {match[2]}"
    return f"  {line.strip()}" if line.startswith(" " * 8) else line.strip()


if __name__ == "__main__":
    print(page(), end="")
