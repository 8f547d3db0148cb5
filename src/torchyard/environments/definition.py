"""A job file's environment, turned into a spec.

Owns: what the keys of an environment mean together.
Leaves: the keys to documents.py, images to names/image_names.py, conda files to
conda/conda_file.py, names to names/catalogue.py.
Always: nothing is read from disk: the client sends conda files and requirements inline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.environments.conda import conda_file
from torchyard.environments.documents import HINT, EnvironmentKeys
from torchyard.environments.images import definition as image_definition
from torchyard.environments.images.definition import Sources
from torchyard.environments.names import catalogue, image_names, substitutes
from torchyard.environments.names.substitutes import SubstitutePolicy
from torchyard.environments.packages import layers, requirements
from torchyard.environments.types import EnvironmentSpec, Platform, platform_python

At = tuple[str | int, ...]

# Each has a folder of its own while it is built.
_MOST_NESTED = 10


def resolve(
    definition: Any,
    platform: Platform,
    at: At = (),
    owned: catalogue.Owned = catalogue.no_assets,
    policy: SubstitutePolicy = substitutes.allow,
    sources: Sources = image_definition.NOTHING,
    inside: tuple[str, ...] = (),
) -> EnvironmentSpec:
    """The spec of a reference (`azureml:name:version`) or of an inline environment.

    Args:
        owned: the workspace's own environments.
        policy: called with each substitute.
        sources: how a Dockerfile is read.
        inside: the environments whose Dockerfiles have led here.

    Raises:
        InvalidSpec: a key, image or package that can't be honoured; `at` says where in it.
        NotFound: no environment has the name.
    """
    if isinstance(definition, str):
        entry = catalogue.find(definition, platform, owned, at, policy)
        if entry.ref in inside or len(inside) == _MOST_NESTED:
            chain = " > ".join((*inside, entry.ref))
            fault = "itself" if entry.ref in inside else f"more than {_MOST_NESTED} others in a row"
            raise InvalidSpec(
                f"environment `{inside[0]}` is built from {fault}: {chain}",
                "name another environment, or an older version, in the FROM line",
                at=at,
            )
        return _spec_of_entry(entry, platform, at, owned, policy, sources, inside)
    if not isinstance(definition, Mapping):
        raise InvalidSpec("`environment` is neither a name nor a mapping", HINT, at=at)
    file = EnvironmentKeys.read(definition, at)
    if file.build is not None:

        def resolve_name(name: str, line: At) -> EnvironmentSpec:
            return resolve(name, platform, line, owned, policy, sources, inside)

        empty = EnvironmentSpec("", (), str(platform))
        built = image_definition.of_build(file.build, empty, resolve_name, sources, at)
        if file.conda_file is None:
            return built
        inner = _of_conda(file.conda_file, "", [], platform, at)
        return replace(inner, image=built.image, notices=(*built.notices, *inner.notices))
    return _over_image(file, platform, at, policy)


def _over_image(
    file: EnvironmentKeys, platform: Platform, at: At, policy: SubstitutePolicy
) -> EnvironmentSpec:
    """The spec of packages without an image, in the place of one, or inside one."""
    image, foreign = image_names.Image("", (), ""), ""
    if file.image:
        substitute = image_names.read(file.image, platform, (*at, "image"))
        if substitute is None:
            foreign = file.image.strip()
        else:
            image = substitute
        if image.substitute is not None:
            policy(image.substitute, (*at, "image"))
    lines, notices = list(image.requirements), [image.notice] if image.notice else []
    if file.pip_requirements is not None:
        written = requirements.read(file.pip_requirements, (*at, "pip_requirements"))
        lines = requirements.over(lines, written)
    if file.conda_file is not None:
        # As in Azure, it becomes a separate environment inside the image.
        spec = _of_conda(file.conda_file, image.python, notices, platform, at)
        return image_definition.put_into(foreign, spec, at) if foreign else spec
    if foreign and not lines:
        return image_definition.put_into(foreign, EnvironmentSpec("", (), str(platform)), at)
    spec = _spec(file.python or image.python, lines, notices, platform, image.requirements)
    spec = replace(spec, variables=image.variables, job_variables=image.job_variables)
    return image_definition.put_into(foreign, spec, at) if foreign else spec


def _of_conda(
    file: Any, python: str, notices: list[str], platform: Platform, at: At
) -> EnvironmentSpec:
    """The spec of a conda file; `python` is for files that name none."""
    contents = conda_file.read(file, (*at, "conda_file"))
    all_notices = [*notices, *contents.notices]
    spec = _spec(contents.python or python, list(contents.requirements), all_notices, platform)
    return replace(spec, conda=contents.packages, channels=contents.channels)


def _spec_of_entry(
    entry: catalogue.Found,
    platform: Platform,
    at: At,
    owned: catalogue.Owned,
    policy: SubstitutePolicy,
    sources: Sources,
    inside: tuple[str, ...],
) -> EnvironmentSpec:
    notices = [entry.notice] if entry.notice else []
    if entry.curated is not None:
        lines = list(entry.curated.pinned)
        spec = _spec(entry.curated.python, lines, [], platform)
        if spec.layers:
            # Its label names them: one notice, not one for each.
            names = ", ".join(spec.layers)
            notices.append(f"packages of `{entry.ref}` that are torchyard's own layers: {names}")
        return replace(
            spec,
            notices=tuple(notices),
            ref=entry.ref,
            requested=entry.requested,
            is_any_python=False,
            variables=entry.curated.variables,
            job_variables=entry.variables,
        )
    # A registered version is valid; what is wrong with it now has no place in this document.
    inside = (*inside, entry.ref)
    spec = resolve(entry.definition, platform, at, owned, policy, sources, inside)
    return replace(spec, ref=entry.ref)


def _spec(
    python: str,
    lines: list[str],
    notices: list[str],
    platform: Platform,
    unnamed: Collection[str] = (),
) -> EnvironmentSpec:
    installed, layered, layer_notices = layers.split(lines, unnamed)
    return EnvironmentSpec(
        python=python or platform_python(),
        requirements=requirements.canonical(installed),
        platform=str(platform),
        notices=(*notices, *layer_notices),
        layers=layered,
        layers_mark=layers.fingerprint(layered),
        is_any_python=not python,
    )
