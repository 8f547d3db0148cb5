"""The container engine of this machine, and its settings.

Owns: the file `containers.yml` in the home folder; finding an engine that works, saying why none
does; the machine's package configuration for programs in a build.
Leaves: an engine's commands to engine.py.
Always: a client without an engine does not count; searching starts nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from torchyard.base import leash
from torchyard.base.errors import BuildFailed, InvalidInput, did_you_mean
from torchyard.environments.images.engine import Command, Engine, MachineFiles
from torchyard.environments.packages import machine_config
from torchyard.environments.packages.machine_config import MachineConfig

FILE = "containers.yml"
DEFAULT_OS_IMAGE = "docker.io/library/debian:12-slim"
_PODMAN, _DOCKER = "podman", "docker"
_AS_SERVER_USER = "builds_as_server_user"
_KEYS = ("engine", "os_image", _AS_SERVER_USER)
_ASK_S = 30.0
# Their paths in a build: pip's configuration file, and a name that no image has.
_PIP_FILE, _CERTIFICATES = "/etc/pip.conf", "/etc/torchyard-ca.crt"


@dataclass(frozen=True)
class ContainerSettings:
    """`engine` is podman, docker, the path of either, or empty for the first that works.

    `os_image` is the base of environments that a Dockerfile's FROM line names.
    `builds_as_server_user`: on a server with a runner, its owner lets the engine run the steps of
    Dockerfiles as the server's own user.
    """

    engine: str = ""
    os_image: str = DEFAULT_OS_IMAGE
    builds_as_server_user: bool = False


@dataclass(frozen=True)
class EngineSearch:
    """`engine` is None where none works; `messages` has a line for each that was tried."""

    engine: Engine | None
    messages: tuple[str, ...]


def read(home: Path) -> ContainerSettings:
    """The settings of the server's owner; defaults without the file.

    Raises:
        InvalidInput: the file is not valid.
    """
    file = home / FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ContainerSettings()
    import yaml  # Only here, for most homes have no such file.

    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InvalidInput(f"`{file}` is not YAML: {error}", "write `engine: podman`") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"`{file}` is not a mapping", "write `engine: podman`")
    for key, value in document.items():
        _check(file, key, value)
    return ContainerSettings(**document)


def find(settings: ContainerSettings, variables: Mapping[str, str]) -> EngineSearch:
    """Find an engine that works, podman first."""
    names = [settings.engine] if settings.engine else [_PODMAN, _DOCKER]
    messages = []
    for name in names:
        program = shutil.which(name, path=variables.get("PATH"))
        if program is None:
            messages.append(f"{name} is not installed")
            continue
        is_podman = _PODMAN in Path(name).name
        why_not, version = _answer(program, is_podman, variables)
        if not why_not:
            messages.append(f"{'podman' if is_podman else 'docker'} {version} at {program}")
            return EngineSearch(Command(program, is_podman, variables), tuple(messages))
        messages.append(f"{program} does not work: {why_not}")
    return EngineSearch(None, tuple(messages))


def only_as_server_user(subject: str) -> BuildFailed:
    """
    Args:
        subject: as `missing` has it.
    """
    return BuildFailed(
        f"{subject} is not built on this server: the engine would run its steps as the server's "
        "own user, and jobs and builds run as others here",
        "name packages of pip or conda instead; the server's owner can allow it with "
        f"`{_AS_SERVER_USER}: true` in `{FILE}`, for people whom they trust with the server",
        code="image_refused",
    )


def missing(subject: str, search: EngineSearch) -> BuildFailed:
    """
    Args:
        subject: the subject of the message, which needs an engine.
    """
    return BuildFailed(
        f"{subject} needs podman or docker, and neither works on the server's machine: "
        f"{'; '.join(search.messages)}",
        "install podman there (`apt-get install podman`), or write the environment as "
        "`conda_file` or `pip_requirements`, which need no engine",
        code="no_container_engine",
    )


def machine_files(config: MachineConfig, folder: Path) -> MachineFiles:
    """This machine's package sources and certificates for a build; written below `folder`."""
    lines = ["[global]"]
    by_target: dict[str, Path] = {}
    settings = machine_config.pip_settings(config)
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
    by_target |= {str(package_folder): package_folder for package_folder in package_folders(config)}
    return MachineFiles(by_target)


def package_folders(config: MachineConfig) -> list[Path]:
    """Folders of this machine that hold packages."""
    folders = [_folder(link) for link in config.find_links]
    # An index's pages link to files beside its own folder.
    folders += [folder and folder.parent for folder in map(_folder, config.indexes)]
    existing = [folder for folder in folders if folder and folder.exists() and folder != Path("/")]
    return list(dict.fromkeys(existing))


def _folder(link: str) -> Path | None:
    parts = urlsplit(link)
    if parts.scheme not in ("", "file"):
        return None
    folder = Path(unquote(parts.path) if parts.scheme else link)
    return folder if folder.is_absolute() else None


def _answer(program: str, is_podman: bool, variables: Mapping[str, str]) -> tuple[str, str]:
    """(the reason why it does not work, its version)."""
    words = ["info", "--format", "{{.Version.Version}}"]
    if not is_podman:
        # A client without an engine has a version, too: this asks the server's.
        words = ["version", "--format", "{{.Server.Version}}"]
    try:
        outcome = leash.run([program, *words], _ASK_S, variables)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), ""
    lines = [line.strip() for line in outcome.stderr.splitlines() if line.strip()]
    if outcome.returncode:
        return (lines[-1][:300] if lines else f"it exits with code {outcome.returncode}"), ""
    return "", outcome.stdout.strip()


def _check(file: Path, key: Any, value: Any) -> None:
    if key not in _KEYS:
        raise InvalidInput(
            f"`{file}` has the unknown key `{key}`",
            did_you_mean(str(key), _KEYS),
        )
    if key == _AS_SERVER_USER:
        if not isinstance(value, bool):
            raise InvalidInput(f"`{key}` in `{file}` is not `true` or `false`", "write `true`")
        return
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"`{key}` in `{file}` is not a string", "for example `engine: podman`")
