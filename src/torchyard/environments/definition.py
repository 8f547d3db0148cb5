"""A job file's environment, turned into a spec.

Owns: the keys of an inline environment, which of them can be combined.
Leaves: images to names/image_names.py, conda files to conda/conda_file.py, names to
names/catalogue.py.
Always: nothing is read from disk: the client sends conda files and requirements inline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from torchyard.base import fields
from torchyard.base.errors import InvalidSpec
from torchyard.environments.conda import conda_file
from torchyard.environments.images import definition as image_definition
from torchyard.environments.images.definition import Sources
from torchyard.environments.names import catalogue, image_names, substitutes
from torchyard.environments.names.substitutes import SubstitutePolicy
from torchyard.environments.packages import layers, requirements
from torchyard.environments.types import EnvironmentSpec, Platform, platform_python

At = tuple[str | int, ...]

_DESCRIPTIVE = (
    "$schema", "name", "version", "description", "tags", "properties", "os_type",
    "inference_config", "datastore",
)  # fmt: skip
_CONTENT = ("image", "conda_file", "pip_requirements", "build")
_PYTHON = "python"
# Each has a folder of its own while it is built.
_MOST_NESTED = 10
_HINT = (
    "give one of `image`, `image` with `conda_file`, `conda_file`, `pip_requirements` or `build`"
)
_CONDA_HINT = "that is a conda file's key: name the file, or write its content, under `conda_file`"


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
        raise InvalidSpec("`environment` is neither a name nor a mapping", _HINT, at=at)
    _check_keys(definition, at)
    if "build" in definition:

        def resolve_name(name: str, line: At) -> EnvironmentSpec:
            return resolve(name, platform, line, owned, policy, sources, inside)

        empty = EnvironmentSpec("", (), str(platform))
        built = image_definition.of_build(definition["build"], empty, resolve_name, sources, at)
        if "conda_file" not in definition:
            return built
        inner = _of_conda(definition["conda_file"], "", [], platform, at)
        return replace(inner, image=built.image, notices=(*built.notices, *inner.notices))
    return _over_image(definition, platform, at, policy)


def _over_image(
    definition: Mapping[str, Any], platform: Platform, at: At, policy: SubstitutePolicy
) -> EnvironmentSpec:
    """The spec of packages without an image, in the place of one, or inside one."""
    image, foreign = image_names.Image("", (), ""), ""
    if "image" in definition:
        name = _text(definition["image"], "image", at)
        substitute = image_names.read(name, platform, (*at, "image"))
        if substitute is None:
            foreign = name.strip()
        else:
            image = substitute
        if image.substitute is not None:
            policy(image.substitute, (*at, "image"))
    python = image.python
    if _PYTHON in definition:
        version = definition[_PYTHON] if isinstance(definition[_PYTHON], str) else ""
        if not version.strip():
            raise InvalidSpec(
                f"`{_PYTHON}` is not a version", 'write `python: "3.12"`', at=(*at, _PYTHON)
            )
        python = conda_file.python_version(version.strip(), (*at, _PYTHON))
    lines, notices = list(image.requirements), [image.notice] if image.notice else []
    if "pip_requirements" in definition:
        written = requirements.read(definition["pip_requirements"], (*at, "pip_requirements"))
        lines = requirements.over(lines, written)
    if "conda_file" in definition:
        # As in Azure, it becomes a separate environment inside the image.
        spec = _of_conda(definition["conda_file"], image.python, notices, platform, at)
        return image_definition.put_into(foreign, spec, at) if foreign else spec
    if foreign and not lines:
        return image_definition.put_into(foreign, EnvironmentSpec("", (), str(platform)), at)
    spec = _spec(python, lines, notices, platform, image.requirements)
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


def _check_keys(definition: Mapping[str, Any], at: At) -> None:
    known_keys = (*_DESCRIPTIVE, *_CONTENT, _PYTHON)
    for key in definition:
        if key not in known_keys:
            hint = _CONDA_HINT if key in ("dependencies", "channels", "prefix") else _HINT
            raise fields.unknown_key(str(key), known_keys, at, inside="environment", otherwise=hint)
    # As in Azure, a conda file goes into the image that is built, as into one that is named.
    beside = [key for key in ("image", "pip_requirements") if key in definition]
    if "build" in definition and beside:
        raise InvalidSpec(
            f"`build` and `{beside[0]}` can't be combined",
            f"write the content of `{beside[0]}` in the Dockerfile",
            at=(*at, beside[0]),
        )
    if not any(key in definition for key in _CONTENT):
        raise InvalidSpec("`environment` names no content", _HINT, at=at)
    if _PYTHON in definition and "pip_requirements" not in definition:
        raise InvalidSpec(
            f"`{_PYTHON}` goes with `pip_requirements` alone",
            "write `- python=3.12` among the `dependencies` of the conda file, or name an image "
            "with that Python",
            at=(*at, _PYTHON),
        )
    if "conda_file" in definition and "pip_requirements" in definition:
        raise InvalidSpec(
            "`conda_file` and `pip_requirements` can't be combined",
            "move the requirements under `pip:` in the conda file",
            at=(*at, "pip_requirements"),
        )
    if str(definition.get("os_type") or "linux").lower() != "linux":
        raise InvalidSpec("only `os_type: linux` is supported", "remove it", at=(*at, "os_type"))


def _text(value: Any, key: str, at: At) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidSpec(f"`{key}` is not a string", _HINT, at=(*at, key))
    return value
