"""Conda packages in a build: resolved once, then installed from the lock.

Owns: requests to resolver.py, conda's lines in a lock, an environment whose Python is conda's.
Leaves: what a conda file means to conda_file.py, URLs of channels to packages/conda_channels.py.
Always: a lock's line holds a package's name, version and hash, and its channel as the file names
it; a channel from the machine's configuration by its number.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import BuildFailed
from torchyard.environments.packages.uv import Uv, is_full, is_unreachable, no_space
from torchyard.environments.types import EnvironmentSpec

_MARK = "# conda "
_MACHINES = "machine:"
_FALLBACK = "conda-forge"
_BLAMED = re.compile(
    r"No candidates were found for (?P<name>[\w.-]+)|conda package `(?P<other>[\w.-]+)`"
)
_LONGEST = 400
# As uv writes it: finds Python beside the script.
_SHEBANG = """#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python' "$0" "$@"
' '''
"""


@dataclass(frozen=True)
class CondaPackages:
    """The conda packages of an environment, as in its lock."""

    records: tuple[Mapping[str, Any], ...]

    @property
    def has_python(self) -> bool:
        return any(record["name"] == "python" for record in self.records)

    @property
    def lock(self) -> str:
        """Lines that are comments to pip."""
        return "".join(f"{_MARK}{json.dumps(record)}\n" for record in self.records)


def in_lock(lock: str) -> CondaPackages:
    """The conda packages of a lock."""
    lines = (line for line in lock.splitlines() if line.startswith(_MARK))
    return CondaPackages(tuple(json.loads(line.removeprefix(_MARK)) for line in lines))


def without(lock: str) -> str:
    """The part of a lock that is pip's."""
    return "".join(line for line in lock.splitlines(True) if not line.startswith(_MARK))


def versions(lock: str) -> dict[str, str]:
    """Names and versions of a lock's conda packages."""
    return {record["name"]: record["version"] for record in in_lock(lock).records}


def resolve(
    spec: EnvironmentSpec, known_lock: str, uv: Uv, working: Path, final: Path
) -> CondaPackages:
    """The packages of the lock, else what the channels have now.

    Raises:
        BuildFailed: no set of packages fits; names the package or channel at fault.
    """
    if not spec.conda:
        return CondaPackages(())
    locked = in_lock(known_lock)
    if locked.records:
        return locked
    request = {**_request(spec, uv, working, final), "specs": spec.conda, "python": _python(spec)}
    _run("resolve", request, uv, working, f"conda packages: {', '.join(spec.conda)}")
    response = json.loads((working / "conda-response.json").read_text(encoding="utf-8"))
    return CondaPackages(tuple(response["records"]))


def install(
    spec: EnvironmentSpec, packages: CondaPackages, uv: Uv, working: Path, final: Path
) -> None:
    """Install into `working`/venv, with the paths of `final` in the files.

    Raises:
        BuildFailed: names the package or channel at fault.
    """
    request = {**_request(spec, uv, working, final), "records": packages.records}
    _run("install", request, uv, working, f"install {len(packages.records)} conda packages")
    prefix = working / "venv"
    _free_scripts(prefix, final)
    # It excludes the folder from backups, and could be mistaken for torchyard's own.
    (prefix / "CACHEDIR.TAG").unlink(missing_ok=True)
    if packages.has_python:
        _configure(prefix, prefix, packages)


def set_final_path(working: Path, final: Path, packages: CondaPackages) -> None:
    """Write the final path into an environment whose Python is conda's."""
    if packages.has_python:
        _configure(working / "venv", final, packages)


def _configure(prefix: Path, home: Path, packages: CondaPackages) -> None:
    """Write the file by which thin environments find Python, relocatable as uv understands it."""
    version = next(record["version"] for record in packages.records if record["name"] == "python")
    (prefix / "pyvenv.cfg").write_text(
        f"home = {home / 'bin'}\nimplementation = CPython\nversion_info = {version}\n"
        "include-system-site-packages = false\nrelocatable = true\n",
        encoding="utf-8",
    )


def _request(spec: EnvironmentSpec, uv: Uv, working: Path, final: Path) -> dict[str, Any]:
    config = uv.config.conda
    channels = [{"label": name, "places": config.urls_of(name)} for name in spec.channels]
    for number, name in enumerate(config.channels if not channels else ()):
        channels.append({"label": f"{_MACHINES}{number}", "places": config.urls_of(name)})
    if not channels:
        uv.say(f"no conda channel is named: using {_FALLBACK}")
        channels.append({"label": _FALLBACK, "places": config.urls_of(_FALLBACK)})
    return {
        "channels": channels,
        "cache": str(uv.conda_cache),
        "prefix": str(working / "venv"),
        "final": str(final),
        "may_link": uv.may_link,
    }


def _python(spec: EnvironmentSpec) -> str:
    """`3.11` as `python 3.11.*`; a range stays a range."""
    is_version = re.fullmatch(r"[\d.]+", spec.python)
    return f"python {spec.python}{'.*' if is_version else ''}"


def _run(verb: str, request: Mapping[str, Any], uv: Uv, working: Path, shown: str) -> None:
    (working / "conda-request.json").write_text(json.dumps(request), encoding="utf-8")
    program = [sys.executable, "-m", "torchyard.environments.conda.resolver"]
    arguments = [verb, "conda-request.json", "conda-response.json"][: 3 if verb == "resolve" else 2]
    outcome = uv.run_program([*program, *arguments], working, shown, uv.config.conda.variables)
    if outcome.code != 0:
        raise _failure(outcome.words)


def _failure(words: str) -> BuildFailed:
    if is_full(words):
        return no_space()
    flat = " ".join(words.partition("error: ")[2].split()) or "py-rattler failed without a message"
    flat = flat.removeprefix("Cannot solve the request because of: ")
    reason = flat if len(flat) <= _LONGEST else flat[:_LONGEST].rstrip() + "…"
    match = _BLAMED.search(flat)
    name = (match["name"] or match["other"]) if match else ""
    hint = (
        "check this machine's network and conda configuration"
        if "channel" in flat or is_unreachable(flat)
        else f"check the name and version of `{name}` and its channel"
        if name
        else "the build log has the resolver's output"
    )
    if not name or flat.startswith("conda package"):
        return BuildFailed(reason, hint)
    return BuildFailed(f"conda package `{name}` can't be installed: {reason}", hint)


def _shebang(program: bytes) -> bytes:
    """The pattern of a script's first line, or of the shell's workaround for a long one."""
    python = re.escape(program) + rb"[\d.]*"
    return (
        rb"#!" + python + rb"\n|#!/bin/sh\n'\'\'exec' \"?" + python + rb"\"? \"\$0\" \"\$@\""
        rb"(?: #'\'\'\n|\n' '\'\'\n)"
    )


def _free_scripts(prefix: Path, final: Path) -> None:
    """Let scripts find Python beside them, so that scripts of a copy run the copy's Python."""
    start = re.compile(_shebang(str(final / "bin" / "python").encode()))
    for script in _files(prefix / "bin"):
        content = script.read_bytes()
        match = start.match(content)
        if match:
            mode = script.stat().st_mode
            script.unlink()
            script.write_bytes(_SHEBANG.encode() + content[match.end() :])
            script.chmod(mode)


def _files(folder: Path) -> Sequence[Path]:
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return [file for file in entries if file.is_file() and not file.is_symlink()]
