"""The wheels of a lock, kept where no index can take them away.

Owns: getting them by pip, keeping them as blobs by their sha256, laying them out for a build,
installing them.
Leaves: which versions keep theirs to releases/, removing what no record names to `yard gc`.
Always: nothing of a package is run to get its wheel; of a package without a wheel, or whose hash
the lock does not have, nothing is kept; pip compares the hashes as they are kept, uv as they are
installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchyard.base import files
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.errors import BuildFailed, NotFound
from torchyard.environments.packages import lock, machine_config
from torchyard.environments.packages.requirements import normal
from torchyard.environments.packages.uv import Outcome, Uv, failure, find_uv

FOLDER = "wheels"
"""Below the folder of a build: the wheels that were kept for it."""
_NAME = re.compile(r"(?P<name>[\w.-]+)(?:==| @ )", re.ASCII)
_NO_WHEEL = re.compile(r"No matching distribution found for (?P<name>[\w.-]+)", re.ASCII)
# PyTorch's own index, which uv knows by the name of an accelerator.
_TORCH_CPU = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class KeptWheels:
    """`snapshot` names the blobs; `without` are packages of which no wheel is kept."""

    snapshot: str
    count: int
    size_bytes: int
    without: tuple[str, ...]


def get(text: str, pip: Path, python: Path, working: Path, blobs: Blobs, uv: Uv) -> KeptWheels:
    """Get the wheels of a lock and keep them.

    Args:
        pip: the wheel of pip that comes with Python.
        python: the interpreter that they are for, not one of an environment: that runs code of its
            packages as it starts.
        working: an empty folder on the disk of the blobs.

    Raises:
        BuildFailed: pip can't get one that has a wheel.
        BuildCanceled: the build was canceled.
    """
    options, lines = parts(text)
    chosen = {name: line for name, line in lines.items() if "--hash=" in line}
    version = python.name.removeprefix("python")
    variables = _variables(uv, lock.torch_source(text, version, uv, working))
    while chosen:
        (working / "lock.txt").write_text(options + "".join(chosen.values()), encoding="utf-8")
        arguments = ["download", "--no-deps", "--only-binary", ":all:", "--no-input"]
        arguments += ["--disable-pip-version-check", "--dest", FOLDER, "--requirement", "lock.txt"]
        outcome = uv.run_program(
            [str(python), "-I", str(pip / "pip"), *arguments],
            working,
            "pip download (the wheels of the lock, to keep them)",
            variables,
        )
        if outcome.code == 0:
            break
        missing = _NO_WHEEL.search(outcome.words)
        name = normal(missing["name"]) if missing else ""
        if name not in chosen:
            raise failure(outcome, "the wheels can't be kept")
        uv.say(f"`{name}` has no wheel to keep")
        del chosen[name]
    rows = [_keep(file, blobs) for file in sorted((working / FOLDER).glob("*.whl"))]
    snapshot = blobs.put_snapshot({"files": rows})
    without = tuple(name for name in lines if name not in chosen)
    return KeptWheels(snapshot.id, len(rows), snapshot.size_bytes, without)


def _variables(uv: Uv, torch_source: Sequence[str]) -> dict[str, str]:
    """pip's settings in variables: a command line can be read by others.

    Args:
        torch_source: uv's arguments for the build of torch.
    """
    settings = machine_config.pip_settings(uv.config)
    if "cpu" in torch_source:
        settings["extra-index-url"] = f"{settings['extra-index-url']} {_TORCH_CPU}".strip()
    settings["cert"] = uv.config.certificates
    return {
        "PIP_CONFIG_FILE": os.devnull,
        **{
            f"PIP_{key.upper().replace('-', '_')}": value
            for key, value in settings.items()
            if value
        },
    }


def _keep(file: Path, blobs: Blobs) -> dict[str, object]:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    sha256 = digest.hexdigest()
    if blobs.missing([sha256]):
        with open(file, "rb") as opened, blobs.writing(sha256) as writing:
            shutil.copyfileobj(opened, writing, 1 << 20)
    return {"path": file.name, "sha256": sha256, "size": file.stat().st_size}


def write_note(note: Path, wheels: KeptWheels) -> None:
    """Say beside the lock of an environment what is kept for it."""
    with files.write_atomically(note) as writing:
        writing.write(f"{SNAPSHOT_PREFIX}{wheels.snapshot}\n".encode())


def lay_out(note: Path, blobs: Blobs, working: Path) -> None:
    """Put the kept wheels of an environment into `working`/wheels; nothing where none are kept."""
    try:
        snapshot = blobs.snapshot(note.read_text(encoding="utf-8").strip()[len(SNAPSHOT_PREFIX) :])
    except (FileNotFoundError, NotFound):
        return
    folder = working / FOLDER
    folder.mkdir()
    folder.chmod(0o755)  # the build user reads them
    for file in snapshot.files:
        source, target = blobs.path(file.sha256), folder / file.path
        if not source.exists():
            continue  # its version has given them up
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
            target.chmod(0o444)


def install(text: str, uv: Uv, working: Path) -> str:
    """Install what is kept of a lock; the lock of the rest, for an index.

    Raises:
        BuildFailed: a wheel is not the one of the lock.
    """
    names = {
        normal(parse_wheel_filename(file.name)[0]) for file in (working / FOLDER).glob("*.whl")
    }
    options, lines = parts(text)
    wheels = [line for name, line in lines.items() if name in names and "--hash=" in line]
    if not wheels:
        return text
    (working / "kept.txt").write_text("".join(wheels), encoding="utf-8")
    # Without the cache: it would have a second copy of each wheel at each build.
    arguments = ["--no-cache", "--require-hashes", "--requirements", "kept.txt"]
    shown = f"uv pip install --no-index (kept wheels: {len(wheels)})"
    outcome = install_files(arguments, Path(FOLDER), uv, working, shown)
    if outcome.code != 0:
        raise failure(outcome, "the wheels that were kept can't be installed")
    return options + "".join(line for name, line in lines.items() if line not in wheels)


def install_files(
    arguments: Sequence[str], folder: Path, uv: Uv, working: Path, shown: str
) -> Outcome:
    """Install into `working`/venv from a folder of wheels, whatever the machine's indexes are."""
    words = [find_uv(), "pip", "install", "--python", "venv/bin/python", "--break-system-packages"]
    words += ["--no-deps", "--no-config", "--no-index", *arguments]
    return uv.run_program(words, working, shown, {"UV_FIND_LINKS": str(folder)})


def parts(text: str) -> tuple[str, dict[str, str]]:
    """The lines of a lock before its packages, and by package its lines with hashes."""
    options, lines, name = "", dict[str, str](), ""
    for line in text.splitlines(keepends=True):
        match = _NAME.match(line)
        if match is not None:
            name = normal(match["name"])
            lines[name] = line
        elif line.startswith((" ", "\t")) and name:
            lines[name] += line
        else:
            options += line
    return options, lines


def interpreter(configuration: Mapping[str, str]) -> Path:
    """The interpreter that a venv was made of.

    Raises:
        BuildFailed: it is gone.
    """
    version = ".".join(configuration["version_info"].split(".")[:2])
    home = Path(configuration["home"])
    if not (home / f"python{version}").exists():
        raise BuildFailed(f"Python {version} is not at `{home}` any more", "build it again")
    return home / f"python{version}"
