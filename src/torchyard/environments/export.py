"""An environment as a file for use elsewhere: Dockerfile, requirements.txt, conda.yml.

Owns: the text of each, from the lock of a build, or from the definition where there is none.
Leaves: finding environment and lock to copying.py.
Always: a file from a lock names every package with its version, and packages that only torchyard
has in a comment; built again here it gives the same packages; it names no index of the machine's
configuration.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from torchyard.base.errors import InvalidInput, did_you_mean
from torchyard.environments.conda import conda_packages
from torchyard.environments.packages import layers, pythons
from torchyard.environments.packages.requirements import normal
from torchyard.environments.types import EnvironmentSpec, platform_python

FILES = {"dockerfile": "Dockerfile", "requirements": "requirements.txt", "conda": "conda.yml"}
_TORCH_INDEX = "https://download.pytorch.org/whl"
_WRAPPED = re.compile(r"(?<!\s)\s*\\\n\s*")
_HASH = re.compile(r"(?<!\s)\s+--hash=\S+")


@dataclass(frozen=True)
class Exported:
    """`source` is `lock`, or `definition` where nothing was built; `notices` name differences."""

    file: str
    text: str
    source: str
    notices: tuple[str, ...]


@dataclass(frozen=True)
class _Content:
    """`lines` are pip's, options first; `conda` are packages from the `channels`."""

    python: str
    lines: tuple[str, ...]
    conda: tuple[str, ...]
    channels: tuple[str, ...]
    is_locked: bool

    @property
    def options(self) -> list[str]:
        return [line for line in self.lines if line.startswith("-")]

    @property
    def packages(self) -> list[str]:
        return [line for line in self.lines if not line.startswith("-")]


def export(spec: EnvironmentSpec, text: str, python: str, form: str, name: str) -> Exported:
    """The environment as a file of the form `dockerfile`, `requirements` or `conda`.

    Args:
        text: the lock; empty where it was never built.
        python: the version of the Python in it, as `3.11.7`; empty where it was never built.
        name: its name in the file.

    Raises:
        InvalidInput: the form does not exist, or can't describe the environment.
    """
    if form not in FILES:
        hint = did_you_mean(form, FILES)
        raise InvalidInput(f"environments are not exported as `{form}`", hint)
    if spec.image is not None and spec.image.dockerfile:
        raise InvalidInput(
            f"environment `{name}` is built from a Dockerfile, which describes it completely",
            "copy that Dockerfile with its folder",
        )
    if spec.image is not None:
        _refuse_image(spec, form, name)
        # The packages of the image itself are left out: only those added to it count.
        text = python = ""
    content = _content(spec, text, python)
    notices = _notices(spec, content, name)
    head = [f"# {line}" for line in (_title(spec, content, name), *notices)]
    body = {"dockerfile": _dockerfile, "requirements": _requirements, "conda": _conda}[form]
    lines = body(spec, content, name)
    return Exported(
        FILES[form],
        "\n".join([*head, *lines]) + "\n",
        "lock" if content.is_locked else "definition",
        tuple(notices),
    )


def _content(spec: EnvironmentSpec, text: str, python: str) -> _Content:
    if not text and not python:
        packages = tuple(spec.requirements)
        return _Content(_requested_python(spec), packages, spec.conda, spec.channels, False)
    flat = _WRAPPED.sub(" ", conda_packages.without(text))
    lines = [line.strip() for line in flat.splitlines() if line.strip() and line[0] != "#"]
    pins = [line for line in lines if not line.startswith("-")]
    # pip accepts hashes for all packages or for none.
    if not all(_HASH.search(line) for line in pins):
        lines = [_HASH.sub("", line) for line in lines]
    records = conda_packages.in_lock(text).records
    packages = tuple(f"{record['name']}={record['version']}" for record in records)
    python = python or _requested_python(spec)
    return _Content(python, tuple(lines), packages, spec.channels, True)


def _requested_python(spec: EnvironmentSpec) -> str:
    """A version: for a range the platform's own where it fits, else the first that it names."""
    if not spec.python or re.fullmatch(r"[\d.]+", spec.python):
        return spec.python or platform_python()
    here = tuple(int(part) for part in platform_python().split("."))
    if pythons.fits(spec.python, here):
        return platform_python()
    match = re.search(r"\d+(?:\.\d+)*", spec.python)
    return match[0] if match else platform_python()


def _title(spec: EnvironmentSpec, content: _Content, name: str) -> str:
    how = "as built by torchyard" if content.is_locked else "as defined in torchyard"
    python = f", Python {content.python}" if spec.python else ""
    return f"Environment {name} {how} for {spec.platform}{python}."


def _notices(spec: EnvironmentSpec, content: _Content, name: str) -> list[str]:
    notices = []
    if spec.image is not None and spec.packages:
        notices.append("The packages added to the image are those of the definition, not locked.")
    elif spec.image is None and not content.is_locked:
        notices.append(
            f"Never built here: its packages are those of the definition; "
            f"`yard environment build {name}` locks them."
        )
    for layer in spec.layers:
        elsewhere = (
            f"install {layer} itself"
            if layers.is_published(layer)
            else "copy its files from an environment that torchyard built"
        )
        notices.append(f"{layer} is torchyard's own and in no index: elsewhere, {elsewhere}.")
    index = _torch_index(content)
    if index:
        notices.append(f"This build of torch comes from {index}.")
    return notices


def _torch_index(content: _Content) -> str:
    """PyTorch's own index, where the build of torch is not PyPI's."""
    for line in content.packages:
        match = re.match(r"torch==[\w.]+\+([\w.]+)", line)
        if match:
            return f"{_TORCH_INDEX}/{match[1]}"
    return ""


def _dockerfile(spec: EnvironmentSpec, content: _Content, name: str) -> list[str]:
    _refuse_conda(content, name, "dockerfile")
    image = spec.image.name if spec.image is not None else ""
    lines = [f"FROM {image or f'python:{content.python}-slim'}"]
    if not content.packages:
        return lines
    options = ["--no-cache-dir", *(["--no-deps"] if content.is_locked else ())]
    index = _torch_index(content)
    options += [f"--extra-index-url {index}"] if index else []
    words = [*options, *content.options]
    words += [shlex.quote(_HASH.sub("", line)) for line in content.packages]
    return [*lines, "RUN pip install " + " \\\n    ".join(words)]


def _requirements(spec: EnvironmentSpec, content: _Content, name: str) -> list[str]:
    _refuse_conda(content, name, "requirements")
    lines = [*content.lines, *spec.layers]
    if spec.layers:
        lines = [_HASH.sub("", line) for line in lines]
    return [line.replace(" --hash=", " \\\n    --hash=") for line in lines]


def _conda(spec: EnvironmentSpec, content: _Content, name: str) -> list[str]:
    file_name = re.sub(r"[^\w.-]+", "-", name)
    listed = list(content.conda)
    if not any(line.startswith("python=") for line in listed):
        listed.insert(0, f"python={content.python}")
    if not any(re.match(r"pip(?:=|\Z)", line) for line in listed):
        listed.insert(1, "pip")
    lines = [f"name: {file_name}", "channels:"]
    lines += [f"- {channel}" for channel in content.channels or ("conda-forge",)]
    lines += ["dependencies:", *(f"- {_quoted(line)}" for line in listed)]
    conda_has = {normal(line.partition("=")[0]) for line in content.conda}
    pip = [_HASH.sub("", line) for line in content.lines]
    pip = [line for line in pip if normal(line.partition("==")[0]) not in conda_has]
    pip += spec.layers
    if pip:
        lines += ["- pip:", *(f"  - {_quoted(line)}" for line in pip)]
    return lines


def _refuse_image(spec: EnvironmentSpec, form: str, name: str) -> None:
    if form != "dockerfile" and not spec.python:
        assert spec.image is not None
        raise InvalidInput(
            f"environment `{name}` is the image `{spec.image.name}`, which no {FILES[form]} can "
            "name",
            "export it with `--format dockerfile`",
        )


def _refuse_conda(content: _Content, name: str, form: str) -> None:
    if content.conda:
        few = ", ".join(line.partition("=")[0] for line in content.conda[:3])
        raise InvalidInput(
            f"environment `{name}` holds conda packages ({few}), which no {FILES[form]} can name",
            "export it with `--format conda`",
        )


def _quoted(text: str) -> str:
    """A text, quoted for YAML where needed."""
    plain = re.fullmatch(r"\w[\w.=<>,!~+*/-]*", text)
    return text if plain else "'" + text.replace("'", "''") + "'"


def python_of(folder_configuration: Sequence[str]) -> str:
    """The version of an environment's Python, by the lines of its `pyvenv.cfg`."""
    pairs = (line.partition("=") for line in folder_configuration)
    configuration = {key.strip(): value.strip() for key, _, value in pairs}
    return ".".join(configuration.get("version_info", "").split(".")[:3])
