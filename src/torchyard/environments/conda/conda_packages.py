"""Conda packages in a build: resolved once, then what the lock says.

Owns: orders to resolver.py, conda's lines in a lock, a conda Python as an environment's own.
Leaves: what a conda file means to conda_file.py, where channels lie to packages/conda_channels.py.
Always: a lock's line holds a package's name, version and hash, and its channel as the file names
it; a channel of the machine's own by its number.
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
_CULPRIT = re.compile(
    r"No candidates were found for (?P<name>[\w.-]+)|conda package `(?P<other>[\w.-]+)`"
)
_LONGEST = 400
# What uv writes, too: finds Python beside the place where the script lies.
_SHEBANG = """#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python' "$0" "$@"
' '''
"""


@dataclass(frozen=True)
class Chosen:
    """The packages of an environment, as the lock has them."""

    records: tuple[Mapping[str, Any], ...]

    @property
    def has_python(self) -> bool:
        return any(record["name"] == "python" for record in self.records)

    @property
    def lock(self) -> str:
        """Lines that are comments to pip."""
        return "".join(f"{_MARK}{json.dumps(record)}\n" for record in self.records)


def chosen(lock: str) -> Chosen:
    """Those of a lock."""
    lines = (line for line in lock.splitlines() if line.startswith(_MARK))
    return Chosen(tuple(json.loads(line.removeprefix(_MARK)) for line in lines))


def without(lock: str) -> str:
    """The part of a lock that is pip's."""
    return "".join(line for line in lock.splitlines(True) if not line.startswith(_MARK))


def versions(lock: str) -> dict[str, str]:
    """Names and versions of a lock's conda packages."""
    return {record["name"]: record["version"] for record in chosen(lock).records}


def resolve(spec: EnvironmentSpec, known_lock: str, uv: Uv, working: Path, final: Path) -> Chosen:
    """What the lock says, else what the channels have now.

    Raises:
        BuildFailed: no set of packages fits; names the package or channel at fault.
    """
    if not spec.conda:
        return Chosen(())
    known = chosen(known_lock)
    if known.records:
        return known
    order = {**_order(spec, uv, working, final), "specs": spec.conda, "python": _python(spec)}
    _run("resolve", order, uv, working, f"conda packages: {', '.join(spec.conda)}")
    answer = json.loads((working / "conda-answer.json").read_text(encoding="utf-8"))
    return Chosen(tuple(answer["records"]))


def install(spec: EnvironmentSpec, known: Chosen, uv: Uv, working: Path, final: Path) -> None:
    """Into `working`/venv, with the paths of `final` in their files.

    Raises:
        BuildFailed: names the package or channel at fault.
    """
    order = {**_order(spec, uv, working, final), "records": known.records}
    _run("install", order, uv, working, f"install {len(known.records)} conda packages")
    prefix = working / "venv"
    _free_scripts(prefix, final)
    # Says "no backup of this", and could be taken for ours.
    (prefix / "CACHEDIR.TAG").unlink(missing_ok=True)
    if known.has_python:
        _configure(prefix, prefix, known)


def settle(working: Path, final: Path, known: Chosen) -> None:
    """Tell an environment with a Python of its own where it will lie."""
    if known.has_python:
        _configure(working / "venv", final, known)


def _configure(prefix: Path, home: Path, known: Chosen) -> None:
    """The file by which attempts' thin environments find Python; uv takes it as relocatable."""
    version = next(record["version"] for record in known.records if record["name"] == "python")
    (prefix / "pyvenv.cfg").write_text(
        f"home = {home / 'bin'}\nimplementation = CPython\nversion_info = {version}\n"
        "include-system-site-packages = false\nrelocatable = true\n",
        encoding="utf-8",
    )


def _order(spec: EnvironmentSpec, uv: Uv, working: Path, final: Path) -> dict[str, Any]:
    config = uv.config.conda
    named = [{"label": name, "places": config.places(name)} for name in spec.channels]
    for number, name in enumerate(config.channels if not named else ()):
        named.append({"label": f"{_MACHINES}{number}", "places": config.places(name)})
    if not named:
        uv.say(f"no conda channel is named: {_FALLBACK} is asked")
        named.append({"label": _FALLBACK, "places": config.places(_FALLBACK)})
    return {
        "channels": named,
        "cache": str(uv.conda_cache),
        "prefix": str(working / "venv"),
        "final": str(final),
        "may_link": uv.may_link,
    }


def _python(spec: EnvironmentSpec) -> str:
    """`3.11` as `python 3.11.*`; a range stays one."""
    is_version = re.fullmatch(r"[\d.]+", spec.python)
    return f"python {spec.python}{'.*' if is_version else ''}"


def _run(verb: str, order: Mapping[str, Any], uv: Uv, working: Path, shown: str) -> None:
    (working / "conda-order.json").write_text(json.dumps(order), encoding="utf-8")
    program = [sys.executable, "-m", "torchyard.environments.conda.resolver"]
    arguments = [verb, "conda-order.json", "conda-answer.json"][: 3 if verb == "resolve" else 2]
    outcome = uv.run_program([*program, *arguments], working, shown, uv.config.conda.variables)
    if outcome.code != 0:
        raise _failure(outcome.words)


def _failure(words: str) -> BuildFailed:
    if is_full(words):
        return no_space()
    flat = " ".join(words.partition("error: ")[2].split()) or "py-rattler ended without a word"
    flat = flat.removeprefix("Cannot solve the request because of: ")
    reason = flat if len(flat) <= _LONGEST else flat[:_LONGEST].rstrip() + "…"
    found = _CULPRIT.search(flat)
    name = (found["name"] or found["other"]) if found else ""
    hint = (
        "check this machine's network and conda configuration"
        if "channel" in flat or is_unreachable(flat)
        else f"check the name and version of `{name}` and its channel"
        if name
        else "the resolver's words are in the build log"
    )
    if not name or flat.startswith("conda package"):
        return BuildFailed(reason, hint)
    return BuildFailed(f"conda package `{name}` can't be installed: {reason}", hint)


def _free_scripts(prefix: Path, final: Path) -> None:
    """Let scripts find Python beside themselves, so that copies of them run a copy's Python."""
    python = re.escape(str(final / "bin" / "python")).encode() + rb"[\d.]*"
    # A line of its own, or, where that would be too long for a kernel, the shell's detour.
    start = re.compile(
        rb"#!" + python + rb"\n|#!/bin/sh\n'\'\'exec' \"?" + python + rb"\"? \"\$0\" \"\$@\""
        rb"(?: #'\'\'\n|\n' '\'\'\n)"
    )
    for script in _files(prefix / "bin"):
        content = script.read_bytes()
        found = start.match(content)
        if found:
            mode = script.stat().st_mode
            script.unlink()
            script.write_bytes(_SHEBANG.encode() + content[found.end() :])
            script.chmod(mode)


def _files(folder: Path) -> Sequence[Path]:
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [file for file in found if file.is_file() and not file.is_symlink()]
