"""The environment of a job that exports or scores a model.

Owns: which one it is, and what is added to it.
Leaves: resolving and building it to the server.
Always: an environment that lacks a package is never changed, another one is made of it; one that
was requested is never replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from torchyard.client.environments import Environments

Definition = str | dict[str, Any]

_SAME = {"onnxruntime-gpu": "onnxruntime", "onnxruntime-training": "onnxruntime"}


@dataclass(frozen=True)
class Needs:
    """What a job needs of its environment.

    `fallback` takes the place of one that can't have it, and `fallback_title` says what it is.
    `oldest_torch` is None where torch is not needed; else it is never added.
    """

    packages: tuple[str, ...]
    fallback: Definition
    fallback_title: str
    oldest_torch: tuple[int, int] | None = None


@dataclass(frozen=True)
class ChosenEnvironment:
    """What the job file says; `notice` says what was added, or why it is another one."""

    environment: Definition
    notice: str = ""


def choose(
    environments: Environments, model: Mapping[str, Any], needs: Needs, requested: str = ""
) -> ChosenEnvironment:
    """The requested environment or that of the model's job, where it has what the job needs.

    Where packages are missing and can be added, they are; else it is the fallback.

    Raises:
        NotFound: no environment has the requested name.
        InvalidInput: the requested environment lacks packages that can't be added.
    """
    written: Definition = requested or _with_lines(model.get("environment") or "")
    instead = f"so the job runs in {needs.fallback_title}"
    if not written:
        return ChosenEnvironment(needs.fallback, f"no job made the model, {instead}")
    title = f"the environment `{requested}`" if requested else "the environment of the model's job"
    try:
        packages = _packages(environments.resolve(written).packages)
    except (NotFound, InvalidInput) as error:
        if requested:
            raise
        notice = f"{title} can't be used ({error.message}), {instead}"
        return ChosenEnvironment(needs.fallback, notice)
    missing = [name for name in needs.packages if name not in packages]
    oldest = needs.oldest_torch
    too_old = oldest is not None and _is_older(packages.get("torch", ""), oldest)
    if not missing and not too_old:
        return ChosenEnvironment(written)
    extended = None
    if "torch" not in missing and not too_old:
        extended = _with_packages(environments, written, missing)
    if extended is not None:
        names = ", ".join(f"`{name}`" for name in missing)
        return ChosenEnvironment(extended, f"{title} lacks {names}: added for this job")
    reason = f"has torch {packages['torch']}" if too_old else f"lacks {', '.join(missing)}"
    if requested:
        listed = [name for name in needs.packages if name != "torch"]
        if oldest is not None:
            listed.insert(0, f"torch {'.'.join(map(str, oldest))} or later")
        raise InvalidInput(
            f"{title} {reason}",
            f"name one with {', '.join(listed)}, such as `acpt-pytorch-2.13-cpu`",
            at=("environment",),
        )
    return ChosenEnvironment(needs.fallback, f"{title} {reason}, {instead}")


def _with_lines(written: Definition) -> Definition:
    """The same with its requirements as a list: a job's file takes a single line for a path."""
    if isinstance(written, dict) and isinstance(written.get("pip_requirements"), str):
        return {**written, "pip_requirements": written["pip_requirements"].splitlines()}
    return written


def _packages(lines: Sequence[str]) -> dict[str, str]:
    """Versions by name; empty for one that is not pinned."""
    packages = {}
    for line in lines:
        match = re.match(r"\s*([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*(?:==\s*([^\s;,]+))?", line)
        if match:
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            packages[_SAME.get(name, name)] = match[2] or ""
    return packages


def _is_older(version: str, than: tuple[int, int]) -> bool:
    match = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    return match is not None and (int(match[1]), int(match[2])) < than


def _with_packages(
    environments: Environments, written: Definition, missing: Sequence[str]
) -> dict[str, Any] | None:
    """An inline definition with more packages; None where it can't be made."""
    definition: Mapping[str, Any] = {}
    if isinstance(written, str):
        name, _, version = written.removeprefix("azureml:").partition(":")
        raw = environments.get(name.partition("@")[0], version or "latest").raw
        if str(raw.get("status", "")).startswith("curated"):
            return {"pip_requirements": "\n".join([*raw["packages"], *missing])}
        definition = raw
    else:
        definition = written
    base = {key: definition[key] for key in ("image", "build") if definition.get(key)}
    if definition.get("conda_file"):
        return {**base, "conda_file": _conda_with(definition["conda_file"], missing)}
    if definition.get("pip_requirements"):
        lines = definition["pip_requirements"]
        text = lines if isinstance(lines, str) else "\n".join(map(str, lines))
        return {**base, "pip_requirements": "\n".join([text.rstrip(), *missing, ""])}
    return None


def _conda_with(file: Any, missing: Sequence[str]) -> dict[str, Any]:
    import yaml

    body = dict(yaml.safe_load(file) if isinstance(file, str) else file)
    dependencies = list(body.get("dependencies") or ())
    lists = [entry for entry in dependencies if isinstance(entry, Mapping)]
    others = [entry for entry in dependencies if not isinstance(entry, Mapping)]
    pip = [line for entry in lists for line in entry.get("pip") or ()]
    return {**body, "dependencies": [*others, {"pip": [*pip, *missing]}]}
