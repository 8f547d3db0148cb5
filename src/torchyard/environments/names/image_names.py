"""Image names that mean plain Python or a published environment.

Owns: the table of plain Python images, what an image's name becomes.
Leaves: published environments to published.py, all other images to images/definition.py.
Always: a name that is not in a table is an image's own, never guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchyard.assets import versions
from torchyard.environments.names import catalogue, curated_environments, published
from torchyard.environments.names.substitutes import Substitute
from torchyard.environments.types import Platform, platform_python


@dataclass(frozen=True)
class Row:
    """`pattern` is matched against the whole name without registry, tag and digest.

    `python` says where the version comes from: `tag`, `name` (a `py38` in it) or `platform`.
    """

    pattern: str
    python: str
    what: str


# Names are written without `docker.io/` and `library/`. First match wins.
TABLE = (
    Row(r"python", "tag", "Docker's Python image"),
    Row(
        r"mcr\.microsoft\.com/(devcontainers|vscode/devcontainers)/python", "tag", "a Python image"
    ),
    Row(
        r"mcr\.microsoft\.com/azureml/(openmpi|intelmpi)[\w.-]*", "platform", "an Azure base image"
    ),
    Row(r"mcr\.microsoft\.com/azureml/base(-gpu)?", "platform", "an Azure base image"),
    Row(r"mcr\.microsoft\.com/azureml/minimal-[\w.-]*", "name", "an Azure base image"),
)

_REGISTRY = re.compile(r"^(?:(?:index\.)?docker\.io/)?(?:library/)?")
_DIGEST = re.compile(r"@sha256:[0-9a-f]+\Z")
_TAG = re.compile(r":([\w.-]+)\Z")
# The last part of a version is left out: whatever of 3.11 is here takes the place of 3.11.6.
_TAG_VERSION = re.compile(r"(?:^|-)(3\.\d+)(?:\.\d+)?(?:$|[-.a-z])")
_NAME_VERSION = re.compile(r"-py(3)(\d+)(?:-|$)")


@dataclass(frozen=True)
class Image:
    """What an image becomes: a Python (empty: the platform's), packages, and what to tell."""

    python: str
    requirements: tuple[str, ...]
    notice: str
    substitute: Substitute | None = None
    variables: tuple[tuple[str, str], ...] = ()


def read(image: str, platform: Platform, at: tuple[str | int, ...]) -> Image | None:
    """None for an image that means nothing of the kind: that has to be run as it is.

    Raises:
        NotFound: it is a published environment that nothing can take the place of; `at` is its
            place in the document.
    """
    name = _DIGEST.sub("", _REGISTRY.sub("", image.strip()))
    tag = _TAG.search(name)
    bare = name[: tag.start()] if tag else name
    for row in TABLE:
        if re.fullmatch(row.pattern, bare, re.IGNORECASE):
            version = _version(row, bare, tag[1] if tag else "")
            python = f"Python {version}" if version else "the platform's own Python"
            notice = f"image `{image}` is {row.what}: {python} takes its place, no image is run"
            plain = f"image: python:{version or platform_python()}"
            azures = Substitute(f"image `{image}`", python, plain)
            return Image(version, (), notice, None if row.python == "tag" else azures)
    carried = published.name_in(bare)
    if carried:
        found = catalogue.find(carried, platform, catalogue.nobody, at)
        assert found.curated is not None
        what = f"image `{image}`"
        ours = found.curated
        notice, place = catalogue.stands_for(what, ours).notice, catalogue.in_place_of(what, ours)
        return Image(ours.python, ours.pinned, notice, place, ours.variables)
    return None


def published_in(line: str) -> str:
    """The environment that a Dockerfile's FROM line names, or nothing.

    Azure's own images, and names of environments as jobs write them; other images are pulled.
    """
    name = _DIGEST.sub("", _REGISTRY.sub("", line.strip()))
    tag = _TAG.search(name)
    bare = name[: tag.start()] if tag else name
    if re.match(r"azureml:|azureml-", name, re.IGNORECASE):
        return line.strip()
    if "/" in bare:
        is_azures = re.match(r"mcr\.microsoft\.com/|[\w.]+\.azurecr\.io/", bare, re.IGNORECASE)
        return published.name_in(bare) if is_azures else ""
    known = curated_environments.named(bare)
    is_known = known is not None and known.name != catalogue.PLAIN
    if is_known or re.match(r"acpt-", bare, re.IGNORECASE):
        exact = tag[1] if tag and tag[1] != versions.LATEST else ""
        return f"{bare}:{exact}" if exact else bare
    return ""


def _version(row: Row, name: str, tag: str) -> str:
    if row.python == "tag":
        found = _TAG_VERSION.search(tag)
        return found[1] if found else ""
    if row.python == "name":
        found = _NAME_VERSION.search(name)
        return f"{found[1]}.{found[2]}" if found else ""
    return ""
