"""`yard self update`: upgrade torchyard by the program that installed it.

Owns: finding out who installed it, the command that upgrades it, what to do where it fails.
Leaves: the upgrade to that program, a server's to docs/guides/upgrade.md.
Always: nothing but printed commands runs. An installation that this user may not change, or whose
disk is nearly full, is refused beforehand. "The newest" is printed only if an index was reached.

Sources: https://docs.astral.sh/uv/concepts/tools/ (uv-receipt.toml in a tool's environment);
https://packaging.python.org/en/latest/specifications/recording-installed-packages/ (INSTALLER,
direct_url.json); https://bford.info/cachedir/; pipx writes pipx_metadata.json.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

import torchyard
from torchyard.base.errors import DiskFull, Forbidden, InvalidInput, TorchyardError, Unreachable
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import accepts

group = noun("self")
_NAME = "torchyard"
_CACHE_MARK = "CACHEDIR.TAG"
# The largest dependency is uv, with 60 MB; it is fetched, unpacked and copied.
_ROOM_BYTES = 200 << 20


@group.command("update")
@click.option("--dry-run", is_flag=True, help="Print the command, and don't run it.")
@accepts("--resource-group", "--subscription", "--debug", "--verbose", "--only-show-errors")
def update(dry_run: bool) -> int:
    """Upgrade torchyard, where uv, pipx or pip installed it.

    Running jobs go on. A running server stays what it is until it is started again: `yard server
    stop`, then `yard server start`.

    Example: yard self update --dry-run
    """
    command = upgrade_command(Path(sys.prefix), _record("INSTALLER"), _record("direct_url.json"))
    click.echo(f"$ {shlex.join(command)}")
    if dry_run:
        return 0
    import subprocess
    import tempfile

    check_room(Path(sys.prefix), Path(tempfile.gettempdir()))
    code = subprocess.run(command).returncode
    if code:
        raise TorchyardError(
            f"torchyard was not updated: the command above ended with {code}",
            "mend what it says, and run it again; if `yard` no longer starts: "
            f"`{shlex.join(repair_command(command))}`",
        )
    asked = [sys.executable, "-c", "import torchyard; print(torchyard.__version__)"]
    version = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if version != torchyard.__version__:
        click.echo(f"torchyard {torchyard.__version__} -> {version}")
        return 0
    if command[1:3] == ["-m", "pip"]:
        _reach_an_index(version)
    click.echo(f"torchyard {version} is the newest that it found")
    return 0


def _reach_an_index(version: str) -> None:
    """pip ends well where it reaches no index, and has nothing to change then."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", _NAME]
        click.echo(f"$ {shlex.join(command)}")
        if subprocess.run(command, cwd=folder).returncode:
            raise Unreachable(
                f"pip reached no index that has torchyard; {version} stays, newest or not",
                "check the network, and `pip config list` for the index",
            )


def check_room(*folders: Path) -> None:
    """Refuse where an upgrade would run out of space in one of them, half done.

    Raises:
        DiskFull: too little is free.
    """
    for folder in folders:
        free = shutil.disk_usage(folder).free
        if free < _ROOM_BYTES:
            raise DiskFull(
                f"only {free >> 20} MB are free in `{folder}`, too few to be safe",
                f"free {_ROOM_BYTES >> 20} MB: an update that runs out of space may leave a `yard` "
                "that does not start",
            )


def repair_command(upgrade: Sequence[str]) -> Sequence[str]:
    """What installs torchyard again where that upgrade broke it."""
    program, *words = upgrade
    if words[:2] == ["tool", "upgrade"]:
        return [program, *words[:2], "--reinstall", _NAME]
    if words[0] == "upgrade":
        return [program, "reinstall", _NAME]
    option = "--force-reinstall" if words[:2] == ["-m", "pip"] else "--reinstall"
    return [program, *words[:-2], option, _NAME]


def upgrade_command(prefix: Path, installer: str, direct_url: str) -> Sequence[str]:
    """What upgrades the torchyard of an environment.

    Args:
        prefix: the environment's folder.
        installer, direct_url: the files of these names that its installation left; empty where
            there is none.

    Raises:
        InvalidInput: it was not installed from an index, or by a program that is not there.
        Forbidden: the environment is somebody else's.
    """
    if direct_url:
        source = json.loads(direct_url).get("url", "")
        raise InvalidInput(
            f"this torchyard was installed from `{source}`, not from an index",
            "update it as it was installed; from a clone that is `git pull`",
        )
    if (prefix / "uv-receipt.toml").exists():
        return [_program("uv"), "tool", "upgrade", _NAME]
    if (prefix / "pipx_metadata.json").exists():
        return [_program("pipx"), "upgrade", _NAME]
    if any((folder / _CACHE_MARK).exists() for folder in prefix.parents):
        raise InvalidInput(
            f"this torchyard is in a cache, `{prefix}`, where `uvx` keeps it",
            "`uvx torchyard@latest` runs the newest one",
        )
    if not installer:
        raise InvalidInput(
            f"nobody noted what installed this torchyard into `{prefix}`",
            "update it as it was installed, or install your own: `uv tool install torchyard`",
        )
    if not os.access(prefix, os.W_OK):
        raise Forbidden(
            f"torchyard is installed in `{prefix}`, which you may not change",
            "ask who installed it, or install your own: `uv tool install torchyard`",
        )
    if installer.strip() == "uv":
        python = ["--python", sys.executable]
        return [_program("uv"), "pip", "install", *python, "--upgrade", _NAME]
    return [sys.executable, "-m", "pip", "install", "--upgrade", _NAME]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise InvalidInput(
            f"`{name}` installed torchyard, and is not on PATH", f"add the folder of `{name}`"
        )
    return found


def _record(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution(_NAME).read_text(name) or ""
    except PackageNotFoundError:
        return ""
