"""Environments that exist by name.

Owns: finding one by its reference: a workspace's own, a curated one, or the substitute for a
published one.
Leaves: the forms of references to base/refs, a workspace's own to environments/assets.py, inline
definitions to environments/definition.py.
Always: a curated name is found in any case, with or without `azureml:` and `AzureML-`, by its
registry's address or by a resource id of Azure's; a notice names each substitute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchyard.assets import versions
from torchyard.base import refs
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound, nearest
from torchyard.base.refs import Ref
from torchyard.environments.names import (
    components,
    curated_environments,
    published,
    substitutes,
)
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.names.substitutes import Substitute, SubstitutePolicy
from torchyard.environments.types import EnvironmentAsset, Platform

At = tuple[str | int, ...]

# A workspace's versions of a name, newest first; of every name for an empty one.
Owned = Callable[[str], Sequence[EnvironmentAsset]]

PLAIN = "python"
_PREFIX = "azureml-"
_REGISTRY = "azureml"
# A resource id of Azure's, and the form of its newer SDK, whose workspace is a number.
_ID = re.compile(
    r"(?:azureml:)?/{0,3}(?:subscriptions/[^/\s]+/resourcegroups/[^/\s]+/providers/"
    r"microsoft\.machinelearningservices/workspaces/(?P<workspace>[^/\s]+)"
    r"|locations/[^/\s]+/workspaces/[^/\s]+)"
    r"/environments/(?P<name>[^/\s]+)(?:/(?P<how>versions|labels)/(?P<which>[^/\s]+))?",
    re.IGNORECASE,
)
_HINT = (
    "name one of `yard environment list`, as `python@latest`, or give `conda_file` or "
    "`pip_requirements`"
)


@dataclass(frozen=True)
class Found:
    """What a reference names: a curated environment, or the definition of a workspace's own, which
    may be its release of a curated one.

    `ref` is the reference with its version; `notice` is empty when it is exactly what was named,
    and so is `requested`, the name that was written. `variables` are for the jobs that request it
    by this reference.
    """

    ref: str
    curated: Curated | None = None
    definition: dict[str, Any] | None = None
    notice: str = ""
    requested: str = ""
    variables: tuple[tuple[str, str], ...] = ()


def no_assets(name: str) -> Sequence[EnvironmentAsset]:
    """No environments of a workspace's own."""
    return ()


def bare(name: str) -> str:
    """A curated environment's name without its prefix."""
    return name[len(_PREFIX) :] if name.lower().startswith(_PREFIX) else name


def find(
    reference: str,
    platform: Platform,
    owned: Owned,
    at: At,
    policy: SubstitutePolicy = substitutes.allow,
) -> Found:
    """The environment that `reference` names; `at` is its place in the document.

    Raises:
        InvalidSpec: it is not a reference, or `policy` refuses the substitute.
        NotFound: no environment has that name or version.
    """
    ref, workspace = _parsed(reference.strip(), at)
    curated = curated_environments.find_by_name(bare(ref.name))
    if curated is not None and ref.registry.lower() in ("", _REGISTRY):
        release = _release(curated, ref, owned(curated.name))
        if release is not None:
            return release
    # A workspace may have had the name before it was a curated one's.
    assets = [asset for asset in owned(ref.name) if curated is None or not asset.is_release]
    if not ref.registry and assets:
        if workspace and workspace.lower() != assets[0].workspace.lower():
            raise NotFound(
                f"environment `{reference}` is in workspace `{workspace}`, and this is "
                f"workspace `{assets[0].workspace}`",
                f"write `azureml:{ref}` for the one here, or name the workspace with `-w`",
                at=at,
            )
        return _find_own(ref, assets, at)
    if ref.registry.lower() not in ("", _REGISTRY):
        raise NotFound(
            f"environment `{reference}` does not exist: the registry `{ref.registry}` is not "
            "supported",
            _suggest_name(bare(ref.name), owned),
            at=at,
        )
    if curated is not None and not _is_replaced(curated, platform):
        return _find_curated(curated, ref, reference, at, policy)
    is_azures = ref.registry != "" or ref.name != bare(ref.name)
    successor = published.substitute(bare(ref.name), platform, is_azures=is_azures)
    if successor is None:
        _refuse_unresolved(bare(ref.name), reference, at)
        raise NotFound(
            f"environment `{reference}` does not exist",
            _file_hint(reference) or _suggest_name(ref.name, owned),
            at=at,
        )
    if successor.curated is None:
        raise NotFound(
            f"environment `{reference}` is not available: {successor.reason}", _HINT, at=at
        )
    subject = f"environment `{reference}`"
    policy(substitute_for(subject, successor.curated), at)
    found = found_substitute(subject, successor.curated, successor.variables)
    return replace(found, requested=ref.name)


def _is_replaced(curated: Curated, platform: Platform) -> bool:
    """Whether a substitute takes the place of a name that Azure published, too.

    It is for GPUs, and the machine has none: gigabytes of CUDA that nothing would use.
    """
    is_for_another = curated.accelerator not in ("", platform.accelerator)
    return is_for_another and published.is_published(curated.name)


def _refuse_unresolved(name: str, reference: str, at: At) -> None:
    """
    Raises:
        NotFound: the catalogue would have it, but its packages can't be had.
    """
    for entry in components.unresolved():
        if entry.name.lower() == name.lower():
            raise NotFound(
                f"environment `{reference}` is not available: {entry.reason}",
                f"name `{entry.instead}`, or list the packages in `pip_requirements`",
                at=at,
            )


def _parsed(reference: str, at: At) -> tuple[Ref, str]:
    """The reference, and the workspace that a resource id of Azure's names."""
    by_id = _ID.fullmatch(reference)
    if by_id:
        which = {by_id["how"].lower(): by_id["which"]} if by_id["how"] else {}
        version, label = which.get("versions", ""), which.get("labels", "")
        return Ref(by_id["name"], version, label), by_id["workspace"] or ""
    plain = f"azureml:{reference[8:]}" if reference[:8].lower() == "azureml:" else reference
    try:
        return refs.parse(plain), ""
    except InvalidInput as error:
        raise InvalidSpec(error.message, _file_hint(reference) or error.hint, at=at) from error


def _file_hint(reference: str) -> str:
    """What to write for a file; empty for what does not look like one."""
    if reference.endswith(".txt"):
        return f"a list of packages is `environment: {{pip_requirements: {reference}}}`"
    if reference.endswith((".yml", ".yaml")):
        return (
            f"a conda file is `environment: {{conda_file: {reference}}}`, an environment's own "
            f"file `environment: file:{reference}`"
        )
    return ""


def substitute_for(subject: str, curated: Curated) -> Substitute:
    """A curated environment in place of what was requested, for a policy."""
    exact = f"{curated.name}:{curated.version}"
    return Substitute(subject, f"`{exact}`", f"environment: azureml:{exact}")


def found_substitute(
    subject: str, curated: Curated, variables: tuple[tuple[str, str], ...] = ()
) -> Found:
    """A curated environment in place of what was requested, with a notice that says so."""
    python = f"Python {curated.python}" if curated.python else "the platform's own Python"
    contents = ", ".join([python, *curated.requirements[:2]])
    more = f" and {len(curated.requirements) - 2} more" if len(curated.requirements) > 2 else ""
    loading = ""
    if published.WHOLE_MODELS in variables:
        loading = "; `torch.load` reads whole models unless told otherwise, as before torch 2.6"
    return Found(
        f"{curated.name}:{curated.version}",
        curated=curated,
        notice=f"{subject} is not run here; `{curated.name}` takes its place: "
        f"{contents}{more}{loading}",
        variables=variables,
    )


def _find_own(ref: Ref, assets: Sequence[EnvironmentAsset], at: At) -> Found:
    if ref.label.lower() not in ("", versions.LATEST):
        raise NotFound(
            f"environment `{ref.name}` has no label `{ref.label}`",
            f"write `{ref.name}@{versions.LATEST}`",
            at=at,
        )
    try:
        asset = versions.pick("environment", ref.name, ref.version or versions.LATEST, assets)
    except NotFound as error:
        error.at = at
        raise
    return Found(f"{asset.name}:{asset.version}", definition=asset.definition)


def release_of(curated: Curated, assets: Sequence[EnvironmentAsset]) -> EnvironmentAsset | None:
    """The workspace's newest release of this version of a curated environment that is not archived.

    Once the package has a newer version, that one is the latest until the workspace releases it.

    Args:
        assets: the workspace's versions of its name, newest first.
    """
    released = (asset for asset in assets if asset.version.startswith(f"{curated.version}."))
    return next((asset for asset in released if asset.is_release and not asset.archived), None)


def _release(curated: Curated, ref: Ref, assets: Sequence[EnvironmentAsset]) -> Found | None:
    """The workspace's release that a reference to a curated environment names, if it names one."""
    releases = (asset for asset in assets if asset.is_release)
    asset = next((each for each in releases if ref.version and each.version == ref.version), None)
    if asset is None and not ref.version and ref.label.lower() in ("", versions.LATEST):
        asset = release_of(curated, assets)
    if asset is None:
        return None
    return Found(f"{asset.name}:{asset.version}", definition=asset.definition)


def _find_curated(
    curated: Curated, ref: Ref, reference: str, at: At, policy: SubstitutePolicy
) -> Found:
    exact = f"{curated.name}:{curated.version}"
    is_azures = curated.name != PLAIN and (ref.registry != "" or ref.name != bare(ref.name))
    by_label = ref.label.lower() in ("", versions.LATEST)
    if by_label and ref.version in ("", curated.version) and not is_azures:
        return Found(exact, curated=curated)
    if by_label and (not ref.version or (is_azures and ref.version.isdecimal())):
        if ref.version not in ("", curated.version):
            # Azure's versions are not those of the curated environment.
            policy(substitute_for(f"environment `{reference}`", curated), at)
        notice = _notice(reference, curated, exact)
        return Found(exact, curated=curated, notice=notice, requested=ref.name)
    if by_label and ref.version == curated.version:
        return Found(exact, curated=curated)
    raise NotFound(
        f"environment `{reference}` does not exist: `{curated.name}` has version "
        f"{curated.version} and label `latest`",
        f"write `{curated.name}@latest`",
        at=at,
    )


def _notice(reference: str, curated: Curated, exact: str) -> str:
    few = ", ".join(curated.requirements[:2])
    return (
        f"environment `{reference}` is Azure's; torchyard's own of that name is used, `{exact}`: "
        f"{few} and {max(0, len(curated.requirements) - 2)} more"
    )


def _suggest_name(name: str, owned: Owned) -> str:
    """A hint with the name that is most like this one: it is never used in its place."""
    prefix = name[: len(name) - len(bare(name))]
    names = [
        *(
            prefix + environment.name
            for environment in curated_environments.every()
            if environment.name != PLAIN
        ),
        *(prefix + published_name for published_name in published.names()),
        *(environment.name for environment in owned("")),
        PLAIN,
    ]
    guess = nearest(name, names)
    return f"did you mean `{guess}`? Otherwise {_HINT}" if guess else _HINT
