"""Where this machine takes packages from, as uv understands it.

Owns: pip's configuration files and PIP_* variables, read without running pip; uv's variables.
Leaves: uv's own configuration (UV_* and uv.toml) as it is: it wins over pip's.
Always: what is read here stays in memory; standard library only.

Sources: https://pip.pypa.io/en/stable/topics/configuration/ (files, their order, PIP_* names),
https://docs.astral.sh/uv/reference/environment/ (the variables of uv).
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Mapping
from pathlib import Path

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


def uv_variables(environ: Mapping[str, str], home: Path | None = None) -> dict[str, str]:
    """The whole environment for uv's process: it takes packages from where pip would, by the
    proxy and the certificates that pip has.

    Args:
        home: of the user; this process's own when None.
    """
    home = home or Path.home()
    pip = _pip_settings(environ, home)
    variables = {key: value for key, value in environ.items() if key not in _MISLEADING}
    theirs = {} if _uv_is_configured(environ, home) else _index_variables(pip)
    for name, value in {**theirs, **_other_variables(pip)}.items():
        variables.setdefault(name, value)
    return variables


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
    return any(environ.get(name) for name in names) or has_uv_file(environ, home)


def has_uv_file(environ: Mapping[str, str], home: Path) -> bool:
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
