"""What a lock holds, package by package, and its bill of materials.

Owns: the packages and hashes of a lock, the CycloneDX document.
Leaves: making locks to environments/packages/lock.py.
Always: the same lock gives the same document, but for its time; every hash of the lock is in it,
those of all files of a version that may be installed from the index.

Source: https://cyclonedx.org/docs/1.5/json/
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from torchyard import __version__
from torchyard.base.clock import to_text
from torchyard.environments.conda import conda_packages
from torchyard.environments.packages import layers, lock
from torchyard.environments.packages.requirements import normal

_HASH = re.compile(r"--hash=(?P<algorithm>sha\d+):(?P<content>[0-9a-f]+)")
_NAME = re.compile(r"^(?P<name>[\w.-]+)(?:==| @ )", re.ASCII)
_ALGORITHMS = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/torchyard/torchyard/sbom")


@dataclass(frozen=True)
class Package:
    """`source` is `pypi`, `conda` or `torchyard`; `hashes` are (algorithm, hexadecimal)."""

    name: str
    version: str
    source: str = "pypi"
    hashes: tuple[tuple[str, str], ...] = ()

    @property
    def purl(self) -> str:
        """As https://github.com/package-url/purl-spec has it."""
        kind = "generic" if self.source == "torchyard" else self.source
        return f"pkg:{kind}/{quote(self.name)}@{quote(self.version, safe='')}"


def digest(text: str) -> str:
    """The sha256 by which reports name a lock."""
    return hashlib.sha256(text.encode()).hexdigest()


def packages(text: str, layer_names: Sequence[str] = ()) -> list[Package]:
    """All that a lock holds and, beside it, the environment's layers."""
    pins = lock.pins(text)
    hashes = _hashes(text)
    found_packages = [
        Package(name, version, "pypi", hashes.get(name, ())) for name, version in pins.items()
    ]
    for record in conda_packages.in_lock(text).records:
        digests = (("sha256", str(record["sha256"])),) if record.get("sha256") else ()
        found_packages.append(Package(record["name"], str(record["version"]), "conda", digests))
    found_packages += [
        Package(name, version, "torchyard")
        for name, version in layers.versions(layer_names).items()
    ]
    return sorted(found_packages, key=lambda package: (package.name, package.source))


def without_hash(text: str) -> list[str]:
    """The packages of a lock that it can't verify."""
    hashes = _hashes(text)
    return [name for name in lock.pins(text) if name not in hashes]


def bill_of_materials(
    name: str,
    version: str,
    platform: str,
    found_packages: Sequence[Package],
    text: str,
    made_at: datetime,
) -> dict[str, Any]:
    """The environment in CycloneDX 1.5.

    Args:
        text: the lock.
        made_at: when the environment was resolved.
    """
    root = f"{name}:{version}"
    serial = uuid.uuid5(_NAMESPACE, f"{root} {platform} {digest(text)}")
    tool = {"type": "application", "name": "torchyard", "version": __version__}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": to_text(made_at),
            "tools": {"components": [tool]},
            "component": {
                "type": "platform",
                "bom-ref": root,
                "name": name,
                "version": version,
                "properties": [
                    {"name": "torchyard:platform", "value": platform},
                    {"name": "torchyard:lock:sha256", "value": digest(text)},
                ],
            },
        },
        "components": [_component(package) for package in found_packages],
        "dependencies": [{"ref": root, "dependsOn": [package.purl for package in found_packages]}],
    }


def _component(package: Package) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
    }
    if package.hashes:
        component["hashes"] = [
            {"alg": _ALGORITHMS[algorithm], "content": content}
            for algorithm, content in package.hashes
            if algorithm in _ALGORITHMS
        ]
    return component


def _hashes(text: str) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """By package, each of its hashes in the lock."""
    hashes: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in text.splitlines():
        match = _NAME.match(line)
        if match is not None:
            name = normal(match["name"])
        for found_packages in _HASH.finditer(line):
            if name:
                hashes.setdefault(name, []).append(
                    (found_packages["algorithm"], found_packages["content"])
                )
    return {package: tuple(dict.fromkeys(each)) for package, each in hashes.items()}
