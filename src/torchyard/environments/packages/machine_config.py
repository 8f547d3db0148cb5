"""The machine's own package configuration, as uv understands it.

Owns: pip's configuration files and PIP_* variables, read without running pip; uv's variables.
Leaves: uv's own configuration (UV_* and uv.toml) as it is: it wins over pip's.
Always: what is read here stays in memory: no spec, lock or log holds an index, path or host.

Sources: https://pip.pypa.io/en/stable/topics/configuration/ (files, their order, PIP_* names),
https://docs.astral.sh/uv/reference/environment/ (the variables of uv).
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from torchyard.environments.packages import conda_channels
from torchyard.environments.packages.conda_channels import CondaConfig

# pip's keys that decide where packages come from; the first two hold one value, the rest lists.
_KEYS = (
    "index-url",
    "cert",
    "extra-index-url",
    "find-links",
    "trusted-host",
    "no-index",
    "timeout",
    "default-timeout",
    "proxy",
)
_INDEX_SETTING = re.compile(
    r"^[ \t]*(?:\[\[(?:pip\.)?index\]\]|(?:index-url|extra-index-url|find-links|no-index)[ \t]*=)",
    re.M,
)
# Variables that would make uv use another Python than the one it is given.
_MISLEADING = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONDONTWRITEBYTECODE",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_PROJECT_ENVIRONMENT",
)


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
    pip = _pip_settings(environ, home or Path.home())
    variables = {key: value for key, value in environ.items() if key not in _MISLEADING}
    theirs = {} if _uv_is_configured(environ, home or Path.home()) else _index_variables(pip)
    for name, value in {**theirs, **_other_variables(pip)}.items():
        variables.setdefault(name, value)
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
        conda=conda_channels.read(environ, home or Path.home()),
        is_known_to_pip=not _has_uv_file(environ, home or Path.home()),
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


def _index_variables(pip: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    if pip.get("index-url"):
        variables["UV_DEFAULT_INDEX"] = pip["index-url"]
    if pip.get("extra-index-url"):
        variables["UV_EXTRA_INDEX_URL"] = " ".join(pip["extra-index-url"].split())
        # pip takes the best version of all its indexes; uv alone would stop at the first.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if pip.get("find-links"):
        variables["UV_FIND_LINKS"] = ",".join(pip["find-links"].split())
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        variables["UV_NO_INDEX"] = "1"
    return variables


def _other_variables(pip: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    if pip.get("cert"):
        variables["SSL_CERT_FILE"] = pip["cert"]
    if pip.get("trusted-host"):
        variables["UV_INSECURE_HOST"] = " ".join(pip["trusted-host"].split())
    timeout = pip.get("timeout") or pip.get("default-timeout")
    if timeout:
        variables["UV_HTTP_TIMEOUT"] = str(int(float(timeout)))
    if pip.get("proxy"):
        variables["HTTPS_PROXY"] = variables["HTTP_PROXY"] = pip["proxy"]
    return variables


def _pip_settings(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """pip's settings by key: later files win over earlier ones, PIP_* variables over all."""
    settings: dict[str, str] = {}
    for file in _pip_files(environ, home):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue
        # A command's own section wins over [global], as in pip.
        for section in ("global", "install"):
            if parser.has_section(section):
                for key, value in parser.items(section):
                    settings[key.replace("_", "-")] = value.strip()
    for key in _KEYS:
        variable = environ.get("PIP_" + key.upper().replace("-", "_"))
        if variable:
            settings[key] = variable
    return {key: settings[key] for key in _KEYS if key in settings}


def _pip_files(environ: Mapping[str, str], home: Path) -> list[Path]:
    override = environ.get("PIP_CONFIG_FILE", "")
    if override == "/dev/null":
        return []
    shared = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [Path(folder) / "pip" / "pip.conf" for folder in shared.split(":") if folder]
    files.append(Path("/etc/pip.conf"))
    files.append(home / ".pip" / "pip.conf")
    files.append(Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf")
    files.append(Path(sys.prefix) / "pip.conf")
    if override:
        files.append(Path(override))
    return files


def _uv_is_configured(environ: Mapping[str, str], home: Path) -> bool:
    """Whether uv's own configuration names package sources."""
    names = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
    return any(environ.get(name) for name in names) or _has_uv_file(environ, home)


def _has_uv_file(environ: Mapping[str, str], home: Path) -> bool:
    """Whether a file of uv's names package sources."""
    user_file = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "uv" / "uv.toml"
    files = [user_file, Path("/etc/uv/uv.toml")]
    if environ.get("UV_CONFIG_FILE"):
        files.append(Path(environ["UV_CONFIG_FILE"]))
    return any(_INDEX_SETTING.search(_text(file)) for file in files)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
