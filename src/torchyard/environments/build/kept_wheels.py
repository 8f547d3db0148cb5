"""The wheels of a lock, kept where no index can take them away.

Owns: getting them by pip, keeping them as blobs by their sha256, laying them out for a build,
installing them.
Leaves: as which user they are got to builder.py and runner_builds.py, a folder that keeps them in
place of the blobs to wheel_folder.py, which versions keep theirs to releases/ and builds.py,
removing what no record names to `yard gc`.
Always: nothing of a package or an environment is run to get a wheel; of a package without a wheel,
or whose hash the lock does not have, nothing is kept; the hashes are compared as they are kept, and
by uv as they are installed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchyard.base import files
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.errors import BuildFailed, NotFound
from torchyard.environments.build import wheel_folder
from torchyard.environments.packages import lock, machine_config
from torchyard.environments.packages.requirements import normal
from torchyard.environments.packages.uv import Outcome, Uv, failure, find_uv

FOLDER, FETCHED = "wheels", "fetched"
"""Below the folder of a build: the wheels that were kept for it, those that it got itself."""
_NAME = re.compile(r"(?P<name>[\w.-]+)(?:==| @ )", re.ASCII)
_NO_WHEEL = re.compile(r"No matching distribution found for (?P<name>[\w.-]+)", re.ASCII)
_INDEX_OPTION = re.compile(
    r"(?P<option>--index-url|-i|--extra-index-url|--find-links|-f|--trusted-host)"
    r"[ =](?P<value>[^\s-]\S*)",
    re.ASCII,
)
# PyTorch's own index, which uv knows by the name of an accelerator.
_TORCH_CPU = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class KeptWheels:
    """`snapshot` names the blobs, unless they are in `folder`; `without` are packages of which no
    wheel is kept.
    """

    snapshot: str
    count: int
    size_bytes: int
    without: tuple[str, ...]
    folder: str = ""


def lacking(text: str, store: Path | None) -> str:
    """A lock of what is to be fetched: packages with a hash whose wheel the store lacks.

    Nothing of it can name another file or have a package built: of the options those that name
    indexes are left, of the packages from URLs those that are wheels.
    """
    options, lines = parts(text)
    with_hash = {name: line for name, line in lines.items() if "--hash=" in line}
    stored = wheel_folder.find(store, with_hash, lock.pins(text)) if store is not None else {}
    chosen = [line for name, line in with_hash.items() if name not in stored and _is_plain(line)]
    return "".join(_index_options(options)) + "".join(chosen) if chosen else ""


def fetch(text: str, python: str, working: Path, uv: Uv) -> None:
    """Put the wheels of a lock into `working`/fetched; packages without one are left out.

    Args:
        text: of `lacking`.
        python: the version that they are for, as `3.11`.

    Raises:
        BuildFailed: pip can't get one that has a wheel.
        BuildCanceled: the build was canceled.
    """
    options, chosen = parts(text)
    pip = next(pip_wheels(Path(_own_python()).parent), None)
    if pip is None:
        raise BuildFailed(
            "the Python of torchyard brings no pip, which gets wheels to keep",
            "install Python's ensurepip (`apt-get install python3-pip-whl`)",
        )
    variables = _variables(uv, lock.torch_source(text, python, uv, working))
    (working / FETCHED).mkdir(exist_ok=True)
    while chosen:
        (working / "fetched.txt").write_text(options + "".join(chosen.values()), encoding="utf-8")
        arguments = ["download", "--no-deps", "--only-binary", ":all:", "--python-version", python]
        arguments += ["--no-input", "--disable-pip-version-check", "--require-hashes"]
        arguments += ["--dest", FETCHED, "--requirement", "fetched.txt"]
        outcome = uv.run_program(
            # Nothing of an environment: its Python runs code of its packages as it starts.
            [_own_python(), "-I", "-S", str(pip / "pip"), *arguments],
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


def keep(text: str, fetched: Path, blobs: Blobs, store: Path | None = None) -> KeptWheels:
    """Keep those wheels of a lock whose hash is in it.

    Args:
        fetched: the folder of them; whoever filled it is not believed.
        store: a folder that keeps them in place of the blobs.

    Raises:
        BuildFailed: the folder can't be written.
    """
    _, lines = parts(text)
    wheels = wheel_folder.find(fetched, lines, lock.pins(text))
    if store is not None:
        for file in wheels.values():
            wheel_folder.put(store, file)
        wheels = wheel_folder.find(store, lines, lock.pins(text))
        size_bytes = sum(file.stat().st_size for file in wheels.values())
        without = tuple(name for name in lines if name not in wheels)
        return KeptWheels("", len(wheels), size_bytes, without, str(store))
    without = tuple(name for name in lines if name not in wheels)
    rows = [_keep(file, blobs) for file in sorted(wheels.values())]
    snapshot = blobs.put_snapshot({"files": rows})
    return KeptWheels(snapshot.id, len(rows), snapshot.size_bytes, without)


def _is_plain(line: str) -> bool:
    """Whether it is a package of an index, or a wheel at a URL."""
    words = line.partition(" ;")[0].replace("\\\n", " ").split()
    if not all(word.startswith("--hash=sha256:") for word in words[1:] if word.startswith("-")):
        return False
    url = re.match(r"[\w.-]+(?:\[[^\]]*\])? @ (\S+)", line, re.ASCII)
    if url is None:
        return "==" in words[0] and "/" not in words[0]
    return bool(re.fullmatch(r"https?://[^\s#?]+\.whl(?:#\S*)?", url[1]))


def _index_options(options: str) -> Iterator[str]:
    """The lines that do nothing but name an index, a page of links or a host."""
    for line in options.splitlines():
        match = _INDEX_OPTION.fullmatch(line.strip())
        if match:
            yield f"{match['option']} {match['value']}\n"


def _own_python() -> str:
    return str(Path(getattr(sys, "_base_executable", "") or sys.executable).resolve())


def pip_wheels(programs: Path) -> Iterator[Path]:
    """The wheels of pip that a Python bundles for `ensurepip`.

    Args:
        programs: the folder that it is in.
    """
    for folder in programs.parent.glob("lib/python3*/ensurepip/_bundled"):
        yield from folder.glob("pip-*.whl")
    if programs == Path("/usr/bin"):
        # Debian keeps the wheels of its own Python elsewhere.
        yield from Path("/usr/share/python-wheels").glob("pip-*.whl")


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
    return {"path": file.name, "sha256": blobs.put_file(file), "size": file.stat().st_size}


def write_note(note: Path, wheels: KeptWheels) -> None:
    """Say beside the lock of an environment which blobs are kept for it."""
    with files.write_atomically(note) as writing:
        writing.write(f"{SNAPSHOT_PREFIX}{wheels.snapshot}\n".encode())


def lay_out(
    note: Path, blobs: Blobs, working: Path, text: str = "", store: Path | None = None
) -> None:
    """Put the kept wheels of an environment into `working`/wheels; nothing where none are kept.

    Args:
        text: the lock of an earlier build, if there was one.
        store: a folder that may have more of them.
    """
    sources = _blobs_by_name(note, blobs)
    if store is not None:
        _, lines = parts(text)
        for wheel in wheel_folder.find(store, lines, lock.pins(text)).values():
            sources.setdefault(wheel.name, wheel)
    if not sources:
        return
    folder = working / FOLDER
    folder.mkdir()
    folder.chmod(0o755)  # the build user reads them
    for name, source in sources.items():
        target = folder / name
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
            target.chmod(0o444)


def _blobs_by_name(note: Path, blobs: Blobs) -> dict[str, Path]:
    """The blobs of the wheels that are kept in the home, by the wheels' names."""
    try:
        snapshot = blobs.snapshot(note.read_text(encoding="utf-8").strip()[len(SNAPSHOT_PREFIX) :])
    except (FileNotFoundError, NotFound):
        return {}
    sources = {file.path: blobs.path(file.sha256) for file in snapshot.files}
    # Without those that its version has given up.
    return {name: source for name, source in sources.items() if source.exists()}


def install(text: str, uv: Uv, working: Path) -> str:
    """Install what is kept of a lock; the lock of the rest, for an index.

    Raises:
        BuildFailed: a wheel is not the one of the lock.
    """
    names = kept_in(working / FOLDER) | kept_in(working / FETCHED)
    options, lines = parts(text)
    wheels = [line for name, line in lines.items() if name in names and "--hash=" in line]
    if not wheels:
        return text
    (working / "kept.txt").write_text("".join(wheels), encoding="utf-8")
    # Without the cache: it would have a second copy of each wheel at each build.
    arguments = ["--no-cache", "--require-hashes", "--requirements", "kept.txt"]
    shown = f"uv pip install --no-index (kept wheels: {len(wheels)})"
    outcome = install_files(arguments, (FOLDER, FETCHED), uv, working, shown)
    if outcome.code != 0:
        raise failure(outcome, "the wheels that were kept can't be installed")
    return options + "".join(line for name, line in lines.items() if line not in wheels)


def kept_in(folder: Path) -> set[str]:
    """The packages whose wheels are in the folder."""
    return {normal(parse_wheel_filename(file.name)[0]) for file in folder.glob("*.whl")}


def install_files(
    arguments: Sequence[str], folders: Sequence[str], uv: Uv, working: Path, shown: str
) -> Outcome:
    """Install into `working`/venv from folders of wheels, whatever the machine's indexes are."""
    links = ",".join(folder for folder in folders if (working / folder).is_dir())
    words = [find_uv(), "pip", "install", "--python", "venv/bin/python", "--break-system-packages"]
    words += ["--no-deps", "--no-config", "--no-index", *arguments]
    return uv.run_program(words, working, shown, {"UV_FIND_LINKS": links})


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
