"""torchyard's own packages in place of third-party ones that no longer work, and `torchyard-train`.

Owns: which names have a layer, taking them out of a list of packages, putting them into a build.
Leaves: what the layers do to `compat/` and torchyard.train.
Always: a layer replaces a name that was listed without a URL; a notice says so, and the version
that `pip list` shows.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard import __version__
from torchyard.base.errors import BuildFailed, Internal
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.types import EnvironmentSpec

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")
_TORCH = re.compile(r"torch *={2,3} *(\d{1,4})\.")
_PACKAGE = Path(__file__).parents[1] / "layers"
_TORCHYARD = Path(__file__).parents[2]
_TRAIN = "torchyard-train"
_CHECKOUT = Path(__file__).parents[4] / "compat"


@dataclass(frozen=True)
class Layer:
    """`name` is the distribution's on PyPI and the folder's in `compat/`; `reason` the notice.

    `aliases` are distributions that it takes the place of, too; `needs` other layers that it is
    made of. Beside a torch that is pinned to a version before `oldest_torch`, the original stays.
    """

    name: str
    version: str
    reason: str
    oldest_python: tuple[int, int] = (3, 8)
    aliases: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    is_published: bool = True
    oldest_torch: int = 1


LAYERS = (
    Layer(
        "horovod",
        "0.28.1+torchyard",
        "does not build here (its last release is from 2023): torchyard's layer over "
        "torch.distributed takes its place",
        (3, 7),
    ),
    Layer(
        "torch-ort",
        "1.19.2+torchyard",
        "does not import with torch 2.3 and later (its last release is from 2024): torchyard's "
        "layer takes its place, and runs modules with ONNX Runtime, torch.compile or torch itself",
    ),
    Layer(
        "fairscale",
        "0.4.13+torchyard",
        "is of 2022, and its ShardedDataParallel trains wrongly with torch 2: torchyard's layer "
        "over torch's own takes its place",
        oldest_torch=2,
    ),
    Layer(
        "ort-moe",
        "0.2.0+torchyard",
        "is on no package index (it came with Azure's images): torchyard's layer over "
        "torch.distributed takes its place",
        is_published=False,
    ),
    Layer(
        "msccl",
        "2.3.0+torchyard",
        "is on no package index (it was a fork of NCCL, which torch brings itself): torchyard's "
        "layer takes its place, and translates its settings into NCCL's own",
        is_published=False,
    ),
    Layer(
        "nebulaml",
        "0.16.13+torchyard",
        "is on no package index (it came with Azure's images, and its service has ended): "
        "torchyard's layer takes its place, and saves with torchyard.train",
        (3, 10),
        aliases=("torch-nebula",),
        needs=(_TRAIN,),
        is_published=False,
    ),
    Layer(_TRAIN, __version__, "is of the version of this server", (3, 10), is_published=False),
)


def is_published(name: str) -> bool:
    """Whether a package index has the package that a layer takes the place of."""
    return any(layer.name == name and layer.is_published for layer in LAYERS)


def split(
    lines: Sequence[str], unnamed: Collection[str] = ()
) -> tuple[list[str], tuple[str, ...], list[str]]:
    """Packages without those that have a layer, the names of the layers, and notices.

    Args:
        unnamed: lines that the user did not write: a notice leaves their versions out.
    """
    by_name = {name: layer for layer in LAYERS for name in (layer.name, *layer.aliases)}
    torch = _torch(lines)
    requirements, names, notices = [], [], []
    for line in lines:
        layer = None if "@" in line else by_name.get(package_name(line))
        if layer is None or torch < layer.oldest_torch:
            requirements.append(line)
            continue
        names += [layer.name, *layer.needs]
        shown = package_name(line) if line in unnamed else line
        notices.append(f"package `{shown}` {layer.reason}")
    return requirements, tuple(sorted(set(names))), notices


def _torch(lines: Sequence[str]) -> int:
    """The first number of the version that torch is pinned to; 2, today's, where it isn't."""
    pins = [match for line in lines if (match := _TORCH.match(line.strip()))]
    return int(pins[-1][1]) if pins else 2


def versions(names: Sequence[str]) -> dict[str, str]:
    """The distributions that these layers are installed as, with their versions."""
    return {
        package: layer.version
        for layer in LAYERS
        if layer.name in names
        for package in (layer.name, *layer.aliases)
    }


def oldest_python(names: Sequence[str]) -> str:
    """The oldest Python that all of these layers run on, such as "3.8"."""
    major, minor = max(layer.oldest_python for layer in LAYERS if layer.name in names)
    return f"{major}.{minor}"


def is_python_too_old(spec: EnvironmentSpec) -> bool:
    """Whether it has a layer that does not run on its Python."""
    match = _VERSION.match(spec.python)
    if not spec.layers or match is None:
        return False
    oldest = tuple(map(int, oldest_python(spec.layers).split(".")))
    return (int(match[1]), int(match[2])) < oldest


def refuse(spec: EnvironmentSpec) -> None:
    """
    Raises:
        BuildFailed: one of its layers does not run on its Python.
    """
    if is_python_too_old(spec):
        raise BuildFailed(
            f"package `{spec.layers[0]}` is not available for Python {spec.python}: torchyard's "
            f"layer, which takes its place, runs on {oldest_python(spec.layers)} and later",
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
        for package in (name, *layer.aliases):
            _describe(package, layer.version, files, site_packages)


def _describe(package: str, version: str, files: Sequence[Path], site_packages: Path) -> None:
    """What `pip list` shows."""
    about = site_packages / f"{package.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", encoding="utf-8"
    )
    (about / "INSTALLER").write_text("torchyard\n", encoding="utf-8")
    (about / "RECORD").write_text("".join(f"{file},,\n" for file in files), encoding="utf-8")


def _source(name: str) -> Path:
    """The layer's folder: in the package where torchyard is installed, else in the checkout."""
    if name == _TRAIN:
        return _TORCHYARD.parent
    for folder in (_PACKAGE / name, _CHECKOUT / name / "src"):
        if folder.is_dir():
            return folder
    raise Internal(f"torchyard's layer for `{name}` is not installed", "install torchyard again")


def _files(name: str) -> list[Path]:
    folder = _TORCHYARD / "train" if name == _TRAIN else _source(name)
    return sorted([*folder.rglob("*.py"), *folder.rglob("*.pth")])
