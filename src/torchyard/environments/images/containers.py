"""The container engine of this machine, and what it starts from.

Owns: the file `containers.yml` in the home folder; finding an engine that works, telling why none
does; the machine's package configuration as programs in a build see it.
Leaves: an engine's verbs to engine.py.
Always: a program that is only a client is none; nothing is started to find out.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from torchyard.base.errors import BuildFailed, InvalidInput, nearest
from torchyard.environments.images.engine import Command, Engine, MachineFiles
from torchyard.environments.packages.machine_config import MachineConfig

FILE = "containers.yml"
DEFAULT_OS_IMAGE = "docker.io/library/debian:12-slim"
_PODMAN, _DOCKER = "podman", "docker"
_KEYS = ("engine", "os_image")
_ASK_S = 30.0
# Where programs in a build find them: where pip looks, and a name that no image has.
_PIP_FILE, _CERTIFICATES = "/etc/pip.conf", "/etc/torchyard-ca.crt"


@dataclass(frozen=True)
class ContainerSettings:
    """`engine` is podman, docker, the path of either, or empty for the first that works.

    `os_image` is what an environment stands on where a Dockerfile's FROM line names it.
    """

    engine: str = ""
    os_image: str = DEFAULT_OS_IMAGE


@dataclass(frozen=True)
class Found:
    """`engine` is None where none works; `told` has a line on each that was looked at."""

    engine: Engine | None
    told: tuple[str, ...]


def read(home: Path) -> ContainerSettings:
    """What the server's owner has set; defaults without the file.

    Raises:
        InvalidInput: the file can't be understood.
    """
    file = home / FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ContainerSettings()
    import yaml  # Most homes have no such file.

    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InvalidInput(f"`{file}` is no YAML: {error}", "write `engine: podman`") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"`{file}` is no mapping", "write `engine: podman`")
    for key, value in document.items():
        _check(file, key, value)
    return ContainerSettings(**document)


def find(settings: ContainerSettings, variables: Mapping[str, str]) -> Found:
    """Look for an engine that works, podman first."""
    wanted = [settings.engine] if settings.engine else [_PODMAN, _DOCKER]
    told = []
    for name in wanted:
        program = shutil.which(name, path=variables.get("PATH"))
        if program is None:
            told.append(f"{name} is not installed")
            continue
        is_podman = _PODMAN in Path(name).name
        why_not, version = _answer(program, is_podman, variables)
        if not why_not:
            told.append(f"{'podman' if is_podman else 'docker'} {version} at {program}")
            return Found(Command(program, is_podman, variables), tuple(told))
        told.append(f"{program} does not work: {why_not}")
    return Found(None, tuple(told))


def missing(what: str, found: Found) -> BuildFailed:
    """
    Args:
        what: needs an engine, in words.
    """
    return BuildFailed(
        f"{what} needs podman or docker, and none works on the server's machine: "
        f"{'; '.join(found.told)}",
        "install podman there (`apt-get install podman`), or write the environment as "
        "`conda_file` or `pip_requirements`, which need no engine",
        code="no_container_engine",
    )


def machine_files(config: MachineConfig, folder: Path) -> MachineFiles:
    """This machine's package sources and certificates for a build; written below `folder`."""
    lines = ["[global]"]
    variables = config.variables
    extra = f"{variables.get('UV_INDEX', '')} {variables.get('UV_EXTRA_INDEX_URL', '')}".split()
    by_target: dict[str, Path] = {}
    settings = {
        "index-url": variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL", ""),
        "extra-index-url": " ".join(extra),
        "find-links": " ".join(config.find_links),
        "trusted-host": variables.get("UV_INSECURE_HOST", ""),
        "no-index": "true" if variables.get("UV_NO_INDEX") else "",
        "timeout": variables.get("UV_HTTP_TIMEOUT", ""),
    }
    if config.certificates and Path(config.certificates).is_file():
        settings["cert"] = _CERTIFICATES
        by_target[_CERTIFICATES] = Path(config.certificates).resolve()
    lines += [f"{key} = {value}" for key, value in settings.items() if value]
    if len(lines) > 1:
        # It may hold an index's password.
        file = folder / "pip.conf"
        file.touch(mode=0o600)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        by_target[_PIP_FILE] = file
    by_target |= {str(place): place for place in package_folders(config)}
    return MachineFiles(by_target)


def package_folders(config: MachineConfig) -> list[Path]:
    """Folders of this machine that packages are taken from."""
    found = [_folder(place) for place in config.find_links]
    # An index's pages lead to files beside its own folder.
    found += [folder and folder.parent for folder in map(_folder, config.indexes)]
    kept = [folder for folder in found if folder and folder.exists() and folder != Path("/")]
    return list(dict.fromkeys(kept))


def _folder(place: str) -> Path | None:
    parts = urlsplit(place)
    if parts.scheme not in ("", "file"):
        return None
    folder = Path(unquote(parts.path) if parts.scheme else place)
    return folder if folder.is_absolute() else None


def _answer(program: str, is_podman: bool, variables: Mapping[str, str]) -> tuple[str, str]:
    """(why it does not work, its version)."""
    words = ["info", "--format", "{{.Version.Version}}"]
    if not is_podman:
        # A client without an engine has a version, too: that of the server is asked.
        words = ["version", "--format", "{{.Server.Version}}"]
    try:
        said = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(variables),
            timeout=_ASK_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), ""
    lines = [line.strip() for line in said.stderr.splitlines() if line.strip()]
    if said.returncode:
        return (lines[-1][:300] if lines else f"it ends with code {said.returncode}"), ""
    return "", said.stdout.strip()


def _check(file: Path, key: Any, value: Any) -> None:
    if key not in _KEYS:
        near = nearest(str(key), _KEYS)
        raise InvalidInput(
            f"`{file}` has the unknown key `{key}`",
            f"did you mean `{near}`?" if near else f"known keys: {', '.join(_KEYS)}",
        )
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"`{key}` in `{file}` is not a text", "for example `engine: podman`")
