"""Image names that stand for plain Python or a published environment.

Owns: the table of plain Python images, what an image's name becomes.
Leaves: published environments to published.py, all other images to images/definition.py.
Always: a name that is in no table names an image; nothing is guessed.
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

    `python` is the source of its version: `tag`, `name` (a `py38` in it) or `platform`.
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
# The last part of a version is ignored: any Python 3.11 takes the place of 3.11.6.
_TAG_VERSION = re.compile(r"(?:^|-)(3\.\d+)(?:\.\d+)?(?:$|[-.a-z])")
_NAME_VERSION = re.compile(r"-py(3)(\d+)(?:-|$)")


@dataclass(frozen=True)
class Image:
    """What an image becomes: a Python (empty: the platform's), packages, and a notice."""

    python: str
    requirements: tuple[str, ...]
    notice: str
    substitute: Substitute | None = None
    variables: tuple[tuple[str, str], ...] = ()
    job_variables: tuple[tuple[str, str], ...] = ()


def read(image: str, platform: Platform, at: tuple[str | int, ...]) -> Image | None:
    """What takes the place of an image; None for an image that has to be run itself.

    Raises:
        NotFound: it is a published environment without a substitute; `at` is its place in the
            document.
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
    carried = published.name_in(bare, tag[1] if tag else "")
    if carried:
        entry = catalogue.find(carried, platform, catalogue.no_assets, at)
        assert entry.curated is not None
        subject = f"image `{image}`"
        curated = entry.curated
        notice, policy = (
            catalogue.found_substitute(subject, curated, entry.variables).notice,
            catalogue.substitute_for(subject, curated),
        )
        variables = curated.variables, entry.variables
        return Image(curated.python, curated.pinned, notice, policy, *variables)
    return None


def published_in(line: str) -> str:
    """The environment that a Dockerfile's FROM line names, or an empty text for an image.

    Azure's images and names of environments count as environments; other images are pulled.
    """
    name = _DIGEST.sub("", _REGISTRY.sub("", line.strip()))
    tag = _TAG.search(name)
    bare = name[: tag.start()] if tag else name
    if re.match(r"azureml:|azureml-", name, re.IGNORECASE):
        return line.strip()
    if "/" in bare:
        is_azures = re.match(r"mcr\.microsoft\.com/|[\w.]+\.azurecr\.io/", bare, re.IGNORECASE)
        return published.name_in(bare) if is_azures else ""
    curated = curated_environments.find_by_name(bare)
    is_curated = curated is not None and curated.name != catalogue.PLAIN
    if is_curated or re.match(r"acpt-", bare, re.IGNORECASE):
        exact = tag[1] if tag and tag[1] != versions.LATEST else ""
        return f"{bare}:{exact}" if exact else bare
    return ""


def _version(row: Row, name: str, tag: str) -> str:
    if row.python == "tag":
        match = _TAG_VERSION.search(tag)
        return match[1] if match else ""
    if row.python == "name":
        match = _NAME_VERSION.search(name)
        return f"{match[1]}.{match[2]}" if match else ""
    return ""
