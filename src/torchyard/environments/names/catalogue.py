"""Environments that exist by name.

Owns: finding one by its reference: a workspace's own, a curated one, or what takes the place of a
published one.
Leaves: the forms of references to base/refs, a workspace's own to environments/assets.py, inline
definitions to environments/definition.py.
Always: a curated name is found in any case, with or without `azureml:` and `AzureML-`, by its
registry's address or by an id of Azure's resources; what takes the place of a published environment
says so in a notice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.assets import versions
from torchyard.base import refs
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound, nearest
from torchyard.base.refs import Ref
from torchyard.environments.names import curated_environments, published, substitutes
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.names.substitutes import Judge, Substitute
from torchyard.environments.types import EnvironmentAsset, Platform

At = tuple[str | int, ...]

# A workspace's versions of a name, newest first; of every name for an empty one.
Owned = Callable[[str], Sequence[EnvironmentAsset]]

PLAIN = "python"
_PREFIX = "azureml-"
_REGISTRY = "azureml"
# An id of Azure's resources, and what its newer SDK makes of one, whose workspace is a number.
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
    """What a reference names: a curated environment, or the definition of a workspace's own.

    `ref` is the reference with its version; `notice` is empty when it is just what was named.
    """

    ref: str
    curated: Curated | None = None
    definition: dict[str, Any] | None = None
    notice: str = ""


def nobody(name: str) -> Sequence[EnvironmentAsset]:
    """No workspace, no environments of its own."""
    return ()


def bare(name: str) -> str:
    """A curated environment's name without its prefix."""
    return name[len(_PREFIX) :] if name.lower().startswith(_PREFIX) else name


def find(
    reference: str, platform: Platform, owned: Owned, at: At, judge: Judge = substitutes.taken
) -> Found:
    """The environment that `reference` names; `at` is its place in the document.

    Raises:
        InvalidSpec: it is no reference at all, or `judge` refuses what takes its place.
        NotFound: no environment has that name or version.
    """
    ref, workspace = _parsed(reference.strip(), at)
    if not ref.registry and (own := owned(ref.name)):
        if workspace and workspace.lower() != own[0].workspace.lower():
            raise NotFound(
                f"environment `{reference}` lies in workspace `{workspace}`, and this is "
                f"`{own[0].workspace}`",
                f"write `azureml:{ref}` for the one here, or name the workspace with `-w`",
                at=at,
            )
        return _own(ref, own, at)
    if ref.registry.lower() not in ("", _REGISTRY):
        raise NotFound(
            f"environment `{reference}` does not exist: the registry `{ref.registry}` is not "
            "reached from here",
            _near(bare(ref.name), owned),
            at=at,
        )
    known = curated_environments.named(bare(ref.name))
    if known is not None:
        return _curated(known, ref, reference, at, judge)
    is_azures = ref.registry != "" or ref.name != bare(ref.name)
    found = published.substitute(bare(ref.name), platform, is_azures=is_azures)
    if found is None:
        raise NotFound(
            f"environment `{reference}` does not exist", _near(bare(ref.name), owned), at=at
        )
    if found.ours is None:
        raise NotFound(f"environment `{reference}` can't be had here: {found.why}", _HINT, at=at)
    asked = f"environment `{reference}`"
    judge(in_place_of(asked, found.ours), at)
    return stands_for(asked, found.ours)


def _parsed(reference: str, at: At) -> tuple[Ref, str]:
    """The reference, and the workspace that an id of Azure's resources names."""
    by_id = _ID.fullmatch(reference)
    if by_id:
        which = {by_id["how"].lower(): by_id["which"]} if by_id["how"] else {}
        version, label = which.get("versions", ""), which.get("labels", "")
        return Ref(by_id["name"], version, label), by_id["workspace"] or ""
    plain = f"azureml:{reference[8:]}" if reference[:8].lower() == "azureml:" else reference
    try:
        return refs.parse(plain), ""
    except InvalidInput as error:
        raise InvalidSpec(error.message, error.hint, at=at) from error


def in_place_of(what: str, ours: Curated) -> Substitute:
    """Ours in the place of what was asked for, for a judge."""
    exact = f"{ours.name}:{ours.version}"
    return Substitute(what, f"`{exact}`", f"environment: azureml:{exact}")


def stands_for(what: str, ours: Curated) -> Found:
    """Ours in the place of what was asked for, with the words that say so."""
    python = f"Python {ours.python}" if ours.python else "the platform's own Python"
    told = ", ".join([python, *ours.requirements[:2]])
    more = f" and {len(ours.requirements) - 2} more" if len(ours.requirements) > 2 else ""
    return Found(
        f"{ours.name}:{ours.version}",
        curated=ours,
        notice=f"{what} is not run here; `{ours.name}` takes its place: {told}{more}",
    )


def _own(ref: Ref, own: Sequence[EnvironmentAsset], at: At) -> Found:
    if ref.label.lower() not in ("", versions.LATEST):
        raise NotFound(
            f"environment `{ref.name}` has no label `{ref.label}`",
            f"write `{ref.name}@{versions.LATEST}`",
            at=at,
        )
    try:
        asset = versions.pick("environment", ref.name, ref.version or versions.LATEST, own)
    except NotFound as error:
        error.at = at
        raise
    return Found(f"{asset.name}:{asset.version}", definition=asset.definition)


def _curated(known: Curated, ref: Ref, reference: str, at: At, judge: Judge) -> Found:
    exact = f"{known.name}:{known.version}"
    azures = known.name != PLAIN and (ref.registry != "" or ref.name != bare(ref.name))
    by_label = ref.label.lower() in ("", versions.LATEST)
    if by_label and ref.version in ("", known.version) and not azures:
        return Found(exact, curated=known)
    if by_label and (not ref.version or (azures and ref.version.isdecimal())):
        if ref.version not in ("", known.version):
            # Azure's third version is not our first.
            judge(in_place_of(f"environment `{reference}`", known), at)
        return Found(exact, curated=known, notice=_told(reference, known, exact))
    if by_label and ref.version == known.version:
        return Found(exact, curated=known)
    raise NotFound(
        f"environment `{reference}` does not exist: `{known.name}` has version "
        f"{known.version} and label `latest`",
        f"write `{known.name}@latest`",
        at=at,
    )


def _told(reference: str, known: Curated, exact: str) -> str:
    few = ", ".join(known.requirements[:2])
    return (
        f"environment `{reference}` is Azure's; torchyard's own of that name is used, `{exact}`: "
        f"{few} and {max(0, len(known.requirements) - 2)} more"
    )


def _near(name: str, owned: Owned) -> str:
    known = [one.name for one in curated_environments.every()] + [one.name for one in owned("")]
    guess = nearest(name, known)
    return f"did you mean `{guess}`? Otherwise {_HINT}" if guess else _HINT
