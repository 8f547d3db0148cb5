"""The machine's own package configuration, for environments.

Owns: what of it builds need by itself, what of it nobody else may see.
Leaves: reading it to base/package_sources.py and conda_channels.py.
Always: what is read here stays in memory: no spec, lock or log holds an index, path or host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from torchyard.base import package_sources
from torchyard.environments.packages import conda_channels
from torchyard.environments.packages.conda_channels import CondaConfig


@dataclass(frozen=True)
class MachineConfig:
    """Where this machine takes packages from.

    `indexes` are the simple indexes that the machine itself names (not PyPI by default);
    `find_links` folders and pages; `variables` the whole environment for uv's process.
    `is_known_to_pip` is False where a file of uv's names them, which pip does not read.
    """

    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    certificates: str
    variables: Mapping[str, str]
    conda: CondaConfig = field(default_factory=CondaConfig)
    is_known_to_pip: bool = True

    def scrub(self, line: str) -> str:
        """The line without this machine's indexes, folders, hosts and passwords."""
        line = re.sub(r"(?<=://)[^/\s@]+@", "", line)
        # Conda's channels carry their tokens in the path.
        line = re.sub(r"(?<=/t/)[^/\s]+(?=/)", "<token>", line)
        for secret, label in self._private():
            if len(secret) > 3:
                line = line.replace(secret, label)
        return line

    def _private(self) -> Iterable[tuple[str, str]]:
        urls = {*self.indexes, *self.find_links, *self.conda.private()}
        paths = sorted(urls, key=len, reverse=True)
        for url in paths:
            parts = urlsplit(url)
            bare = url.replace(f"{parts.username}:{parts.password}@", "").rstrip("/")
            yield url.rstrip("/"), "<index>"
            yield bare, "<index>"
            if parts.scheme == "file" and parts.path not in ("", "/"):
                yield parts.path.rstrip("/"), "<index>"
        for url in paths:
            host = urlsplit(url).hostname
            if host:
                yield host, "<index>"
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            value = self.variables.get(name) or self.variables.get(name.upper()) or ""
            host = urlsplit(value).hostname
            if host:
                yield host, "<proxy>"


def read(environ: Mapping[str, str], home: Path | None = None) -> MachineConfig:
    """Read the configuration that `pip` would use with these variables."""
    home = home or Path.home()
    variables = package_sources.uv_variables(environ, home)
    return MachineConfig(
        indexes=tuple(
            (variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL", "")).split()
            + (
                variables.get("UV_INDEX", "") + " " + variables.get("UV_EXTRA_INDEX_URL", "")
            ).split()
        ),
        find_links=tuple(part for part in variables.get("UV_FIND_LINKS", "").split(",") if part),
        certificates=variables.get("SSL_CERT_FILE", ""),
        variables=variables,
        conda=conda_channels.read(environ, home),
        is_known_to_pip=not package_sources.has_uv_file(environ, home),
    )


def pip_settings(config: MachineConfig) -> dict[str, str]:
    """Where packages come from, by pip's keys; empty values are pip's own."""
    variables = config.variables
    extra = f"{variables.get('UV_INDEX', '')} {variables.get('UV_EXTRA_INDEX_URL', '')}".split()
    return {
        "index-url": variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL", ""),
        "extra-index-url": " ".join(extra),
        "find-links": " ".join(config.find_links),
        "trusted-host": variables.get("UV_INSECURE_HOST", ""),
        "no-index": "true" if variables.get("UV_NO_INDEX") else "",
        "timeout": variables.get("UV_HTTP_TIMEOUT", ""),
    }
