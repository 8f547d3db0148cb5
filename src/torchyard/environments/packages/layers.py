"""torchyard's own packages in place of third-party ones that no longer work.

Owns: which names have a layer, taking them out of a list of packages, putting them into a build.
Leaves: what the layers do to `compat/`.
Always: a layer replaces a name that was listed without a URL; a notice says so, and the version
that `pip list` shows.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard.base.errors import BuildFailed, Internal
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.types import EnvironmentSpec

_OLDEST = (3, 8)
OLDEST_PYTHON = "3.8"
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")
_PACKAGE = Path(__file__).parents[1] / "layers"
_CHECKOUT = Path(__file__).parents[4] / "compat"


@dataclass(frozen=True)
class Layer:
    """`name` is the distribution's on PyPI and the folder's in `compat/`; `reason` the notice."""

    name: str
    version: str
    reason: str


LAYERS = (
    Layer(
        "horovod",
        "0.28.1+torchyard",
        "does not build with today's torch (its last release is from 2023): torchyard's "
        "layer over torch.distributed takes its place",
    ),
    Layer(
        "torch-ort",
        "1.19.2+torchyard",
        "does not import with today's torch (its last release is from 2024): torchyard's "
        "layer takes its place, and runs modules with torch itself",
    ),
)


def split(lines: Sequence[str]) -> tuple[list[str], tuple[str, ...], list[str]]:
    """Packages without those that have a layer, the names of the layers, and notices."""
    by_name = {layer.name: layer for layer in LAYERS}
    kept, names, notices = [], [], []
    for line in lines:
        layer = None if "@" in line else by_name.get(package_name(line))
        if layer is None:
            kept.append(line)
            continue
        names.append(layer.name)
        notices.append(f"package `{line}` {layer.reason}")
    return kept, tuple(sorted(set(names))), notices


def is_python_too_old(spec: EnvironmentSpec) -> bool:
    """Whether it has a layer that does not run on its Python."""
    match = _VERSION.match(spec.python)
    return bool(spec.layers) and match is not None and (int(match[1]), int(match[2])) < _OLDEST


def refuse(spec: EnvironmentSpec) -> None:
    """
    Raises:
        BuildFailed: one of its layers does not run on its Python.
    """
    if is_python_too_old(spec):
        raise BuildFailed(
            f"package `{spec.layers[0]}` is not available for Python {spec.python}: torchyard's "
            f"layer, which takes its place, runs on {_OLDEST[0]}.{_OLDEST[1]} and later",
            "use a newer Python and torch, or a curated environment that holds it "
            "(`acpt-pytorch-2.13-cpu`)",
        )


def fingerprint(names: Sequence[str]) -> str:
    """A hash over the files of the layers, which is part of an environment's content."""
    content = hashlib.sha256()
    for name in names:
        for file in _files(name):
            content.update(f"{name}/{file.name}\0".encode() + file.read_bytes())
    return content.hexdigest()[:16] if names else ""


def put(names: Sequence[str], site_packages: Path) -> None:
    """Copy layers into an environment, as pip would install them."""
    for name in names:
        layer = next(layer for layer in LAYERS if layer.name == name)
        files = [file.relative_to(_source(name)) for file in _files(name)]
        for file in files:
            target = site_packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_source(name) / file, target)
        about = site_packages / f"{name.replace('-', '_')}-{layer.version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {layer.version}\n", encoding="utf-8"
        )
        (about / "INSTALLER").write_text("torchyard\n", encoding="utf-8")
        (about / "RECORD").write_text("".join(f"{file},,\n" for file in files), encoding="utf-8")


def _source(name: str) -> Path:
    """The layer's folder: in the package where torchyard is installed, else in the checkout."""
    for folder in (_PACKAGE / name, _CHECKOUT / name / "src"):
        if folder.is_dir():
            return folder
    raise Internal(f"torchyard's layer for `{name}` is not installed", "install torchyard again")


def _files(name: str) -> list[Path]:
    return sorted(_source(name).rglob("*.py"))
