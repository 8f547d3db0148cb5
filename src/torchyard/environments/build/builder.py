"""Make the folder of one environment.

Owns: the steps of a build: venv, lock, install, hooks, rename; which Python; stale folders.
Leaves: that only one builds to builds.py, resolving to packages/lock.py, compiling modules to
compiling.py, which begins when the folder is there.
Always: the caller holds the environment's lock; the final folder appears complete, by one rename.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from torchyard.base import files
from torchyard.base.blob_folders import BlobFolders
from torchyard.base.blobs import Blobs
from torchyard.base.errors import BuildFailed
from torchyard.environments.build import (
    bytecode,
    kept_wheels,
    sealed,
    shared_wheels,
    torchaudio_operators,
    torchvision_hook,
)
from torchyard.environments.build.kept_wheels import KeptWheels
from torchyard.environments.conda import conda_packages
from torchyard.environments.images import image_folder
from torchyard.environments.packages import layers, lock, python_choice, pythons
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.packages.uv import (
    DISK_FULL,
    Outcome,
    Uv,
    failure,
    is_unreachable,
)
from torchyard.environments.types import BuildCanceled, EnvironmentSpec, platform_python

_PYTHON = re.compile(r"python(3\.\d{1,3})t?")

Fetch = Callable[[str, str, Path, Uv], None]


@dataclass(frozen=True)
class EnvironmentPaths:
    """Where an environment's files are.

    `root` is `<home>/environments`, for what the server alone reads; `built` is where jobs find
    the folder: the same, or that of a node folder apart from the home. `wheel_folder` keeps wheels
    in place of the home's blobs; see wheel_folder.py.
    """

    root: Path
    hash: str
    built: Path
    wheel_folder: Path | None = None

    @property
    def folder(self) -> Path:
        return self.built / self.hash

    @property
    def lock(self) -> Path:
        """What the first build resolved to; every later build installs exactly that."""
        return self.root / f"{self.hash}.lock.txt"

    @property
    def mark(self) -> Path:
        """The `sealed.mark` of the folder when it was built."""
        return self.root / f"{self.hash}.mark"

    @property
    def compiled(self) -> Path:
        """Has the content of `mark` once all modules of that build are compiled."""
        return self.root / f"{self.hash}.compiled"

    @property
    def log(self) -> Path:
        return self.root / f"{self.hash}.log"

    @property
    def mutex(self) -> Path:
        """The file that a builder locks."""
        return self.root / f"{self.hash}.lock"

    @property
    def kept_wheels(self) -> Path:
        """Names the wheels that are kept for it, if a released version has it."""
        return self.root / f"{self.hash}.wheels"

    @property
    def blobs(self) -> Blobs:
        """Where they are kept, unless there is a wheel store."""
        return BlobFolders(self.root.parent / "blobs").of_builds

    def is_whole(self) -> bool:
        # The link is followed: an environment whose Python was removed has to be built again.
        return any(os.path.exists(self.folder / name) for name in ("bin/python", "image.json"))


def run(spec: EnvironmentSpec, paths: EnvironmentPaths, known_lock: str, uv: Uv) -> str:
    """Build into a folder of another name, rename it, return the lock.

    Args:
        known_lock: the lock of an earlier build, or empty to resolve.

    Raises:
        BuildFailed: names the package at fault.
        BuildCanceled: the build was canceled.
    """
    remove_stale_folders(paths)
    working = paths.built / f".building-{spec.hash}-{os.getpid()}"
    working.mkdir()
    try:
        kept_wheels.lay_out(paths.kept_wheels, paths.blobs, working, known_lock, paths.wheel_folder)
        text = make(spec, paths.folder, known_lock, uv, working)
        publish(working, paths, text)
    finally:
        image_folder.remove(working)
    return text


def make(spec: EnvironmentSpec, final: Path, known_lock: str, uv: Uv, working: Path) -> str:
    """Make the environment as `working`/venv, to be moved to `final`; the lock.

    Raises:
        BuildFailed, BuildCanceled: as `run`.
    """
    taken = python_choice.in_lock(known_lock)
    if taken is not None:
        uv.say(taken.notice)
        locked = python_choice.without(known_lock)
        resolved = python_choice.with_python(spec, taken.python)
        return taken.mark + _make_with(resolved, final, locked, uv, working)
    try:
        return _make_with(spec, final, known_lock, uv, working)
    except BuildCanceled:
        raise
    except BuildFailed as error:
        # A lock was installed before, by this Python.
        if known_lock:
            raise
        return _make_with_another(spec, final, error, uv, working)


def _make_with_another(
    spec: EnvironmentSpec, final: Path, error: BuildFailed, uv: Uv, working: Path
) -> str:
    """As `make`, with the newest other Python that has wheels of what the first one lacks.

    Args:
        error: how the build with the first Python failed; raised where no other one would help.
    """
    venv = working / "venv"
    if error.code == DISK_FULL or not (venv / "pyvenv.cfg").exists():
        raise error
    choice = python_choice.choose(spec, error, _python_version(venv), uv, working)
    if choice is None:
        raise error
    others = python_choice.allowed(spec, choice) if python_choice.is_free(spec) else []
    if not others:
        raise python_choice.refusal(spec, choice) from error
    for python in others[: python_choice.TRIED]:
        taken = python_choice.Taken(python, choice.reason)
        uv.say(f"{choice.reason}: trying Python {python}")
        image_folder.remove(venv)
        try:
            resolved = python_choice.with_python(spec, python)
            return taken.mark + _make_with(resolved, final, "", uv, working)
        except BuildCanceled:
            raise
        except BuildFailed as another:
            uv.say(f"Python {python}: {another.message}")
            last = python_choice.exhausted(choice, python, another)
    raise last from error


def _make_with(spec: EnvironmentSpec, final: Path, known_lock: str, uv: Uv, working: Path) -> str:
    """As `make`, with the Python that the spec names."""
    conda = conda_packages.resolve(spec, known_lock, uv, working, final)
    python = "" if conda.has_python else _make_venv(spec, uv, working)
    if conda.records:
        conda_packages.install(spec, conda, uv, working, final)
        python = python or _python_version(working / "venv")
    text = _install_packages(spec, known_lock, python, uv, working)
    conda_packages.set_final_path(working, final, conda)
    return conda.lock + text


def _install_packages(
    spec: EnvironmentSpec, known_lock: str, python: str, uv: Uv, working: Path
) -> str:
    """Install pip's packages, hooks and layers into `working`/venv; their lock."""
    packages = site_packages(working / "venv")
    pip = _pip_wheel(working / "venv")
    wants_pip = "pip" not in {package_name(line) for line in spec.packages} and not any(
        packages.glob("pip-*.dist-info")
    )
    if wants_pip and pip is not None:
        shown = "uv pip install pip (the one that comes with Python)"
        _check(
            kept_wheels.install_files(["--quiet", str(pip)], [str(pip.parent)], uv, working, shown)
        )
    text = conda_packages.without(known_lock)
    extra = ("pip",) if wants_pip and pip is None else ()
    if text:
        _check(_install_lock(kept_wheels.install(text, uv, working), python, uv, working))
    elif spec.packages or extra:
        there = _conda_provided(packages) if spec.conda else ()
        text = _resolve_and_install(spec, extra, python, uv, working, there)
    _fit_to_torch(lock.pins(text), packages, uv)
    if spec.layers:
        uv.say(f"torchyard's layers: {', '.join(spec.layers)}")
        layers.put(spec.layers, packages)
    if spec.variables:
        uv.say(f"variables of its Python: {', '.join(name for name, _ in spec.variables)}")
        _put_variables(spec.variables, packages)
    bytecode.compile_by_time(packages, python, uv, working)
    return text


def _fit_to_torch(pins: Mapping[str, str], packages: Path, uv: Uv) -> None:
    """Let PyPI's torchvision work beside a CPU build of torch, and torchaudio beside another."""
    if torchvision_hook.needed(pins):
        uv.say("torchvision is PyPI's and torch is a CPU build: a hook stands in for its operators")
        torchvision_hook.put(packages)
    if torchaudio_operators.needed(packages):
        uv.say("torchaudio is not built for the CUDA of torch: it runs without compiled operators")
        torchaudio_operators.remove(packages)


def _resolve_and_install(
    spec: EnvironmentSpec,
    extra: tuple[str, ...],
    python: str,
    uv: Uv,
    working: Path,
    there: tuple[str, ...],
) -> str:
    """The lock that is installed; resolved again where a package of it can't be built here."""
    resolve = functools.partial(lock.resolve, spec, extra, python, uv, working, there)
    text = resolve()
    outcome = first = _install_lock(text, python, uv, working)
    wheels_of: tuple[str, ...] = ()
    for attempt in range(lock.TRIED_WHEELS):
        name = lock.unbuilt(outcome) if outcome.code != 0 else ""
        if not name or name in wheels_of:
            break
        uv.say(f"`{name}` can't be built here: trying versions with a wheel")
        others = () if attempt else lock.avoidable_sources(text, uv, working)
        wheels_of = (*wheels_of, name)
        try:
            text, wheels_of = _first_resolved(resolve, [(*wheels_of, *others), wheels_of])
        except BuildFailed:
            break
        outcome = _install_lock(text, python, uv, working)
    _check(outcome if outcome.code == 0 else first)
    return text


def _first_resolved(
    resolve: Callable[[tuple[str, ...]], str], choices: Sequence[tuple[str, ...]]
) -> tuple[str, tuple[str, ...]]:
    """The lock with wheels alone of the first of these choices that can be resolved; the choice.

    Raises:
        BuildFailed: none of them can be resolved.
    """
    *others, last = choices
    for wheels_of in others:
        try:
            return resolve(wheels_of), wheels_of
        except BuildFailed:
            continue
    return resolve(last), last


def _put_variables(variables: Iterable[tuple[str, str]], packages: Path) -> None:
    """In a file of the environment, so that copies keep them; a job's or a user's values win."""
    lines = (
        f"import os; os.environ.setdefault({name!r}, {value!r})\n" for name, value in variables
    )
    (packages / "torchyard_variables.pth").write_text("".join(lines), encoding="utf-8")


def _conda_provided(packages: Path) -> tuple[str, ...]:
    """The packages that conda installed, as requirement lines."""
    packages_found = distributions(path=[str(packages)])
    return tuple(
        sorted(f"{package.metadata['Name']}=={package.version}" for package in packages_found)
    )


def site_packages(venv: Path) -> Path:
    """The folder of a venv's packages."""
    return next((venv / "lib").glob("python3*/site-packages"))


def _make_venv(spec: EnvironmentSpec, uv: Uv, working: Path) -> str:
    """Make `working`/venv; the version of its Python as `3.11`."""
    interpreter = pythons.interpreter(spec.python)
    outcome = uv.run(
        ["venv", "--quiet", "--relocatable", "--no-project", "--python", interpreter, "venv"],
        working,
        f"uv venv --relocatable --python {spec.python}",
    )
    if outcome.code != 0:
        reach = ", which can't be reached from here" if is_unreachable(outcome.words) else ""
        raise BuildFailed(
            f"Python {spec.python} is not on this machine, and uv could not get it{reach}",
            f"use Python {platform_python()}, which is here, or name no version; "
            "the build log has uv's output",
        )
    return _python_version(working / "venv")


def _python_version(venv: Path) -> str:
    return ".".join(_configuration(venv)["version_info"].split(".")[:2])


def _pip_wheel(venv: Path) -> Path | None:
    """The pip wheel that the venv's Python bundles for `ensurepip`."""
    return next(kept_wheels.pip_wheels(Path(_configuration(venv)["home"])), None)


def _configuration(venv: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in (venv / "pyvenv.cfg").read_text("utf-8").splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _install(arguments: list[str], uv: Uv, working: Path, shown: str) -> Outcome:
    # A Python from conda may be marked as externally managed; this copy is torchyard's own.
    words = ["pip", "install", "--python", "venv/bin/python", "--break-system-packages"]
    return uv.run([*words, "--no-deps", *arguments], working, shown)


def _install_lock(text: str, python: str, uv: Uv, working: Path) -> Outcome:
    if not lock.pins(text):
        return Outcome(0, "")
    if uv.shared_wheels is not None:
        text = _install_shared(text, python, uv.shared_wheels, uv, working)
        if not lock.pins(text):
            return Outcome(0, "")
    (working / "install.txt").write_text(text, encoding="utf-8")
    arguments = ["--requirements", "install.txt", *lock.torch_source(text, python, uv, working)]
    return _install(arguments, uv, working, "uv pip install (what the lock says)")


def _install_shared(text: str, python: str, store: Path, uv: Uv, working: Path) -> str:
    """Install the wheels of a lock that the store has, or that can be fetched for it; the rest.

    uv's own downloads can't be shared: it keeps them unpacked, where no hash is compared again.
    """
    options, lines = kept_wheels.parts(text)
    there = kept_wheels.kept_in(working / kept_wheels.FOLDER)
    there |= shared_wheels.lay_out(store, lines, working / kept_wheels.FETCHED)
    rest = options + "".join(line for name, line in lines.items() if name not in there)
    try:
        lacking = kept_wheels.lacking(rest, None)
        if lacking and uv.config.is_known_to_pip:
            kept_wheels.fetch(lacking, python, working, uv)
        return kept_wheels.install(text, uv, working)
    except BuildCanceled:
        raise
    except BuildFailed as error:
        if error.code == DISK_FULL:
            raise
        uv.say(f"{error.message}: uv gets the packages itself")
        return text


def _check(outcome: Outcome) -> None:
    if outcome.code != 0:
        raise failure(outcome, "the packages can't be installed")


def publish(working: Path, paths: EnvironmentPaths, text: str) -> None:
    """Move `working`/venv to where jobs find it, sealed; keep its lock and its mark."""
    if text:
        with files.write_atomically(paths.lock) as writing:
            writing.write(text.encode())
    venv = working / "venv"
    with files.write_atomically(paths.mark) as writing:
        writing.write(sealed.close(venv).encode())
    if paths.folder.exists():
        # Incomplete or changed. Jobs that still run in it find the same packages.
        sealed.exchange(venv, paths.folder)
    else:
        venv.rename(paths.folder)
    paths.folder.chmod(0o555)


def keep_wheels(paths: EnvironmentPaths, text: str, uv: Uv, fetch: Fetch) -> KeptWheels:
    """Keep the wheels of a built environment, so that it can be built without an index.

    Args:
        text: its lock.
        fetch: `kept_wheels.fetch`, or what does the same as another user.

    Raises:
        BuildFailed: they can't be had; nothing is kept.
        BuildCanceled: the build was canceled.
    """
    working = paths.root / f".keeping-{paths.hash}-{os.getpid()}"
    shutil.rmtree(working, ignore_errors=True)
    working.mkdir()
    try:
        lacking = kept_wheels.lacking(text, paths.wheel_folder)
        if lacking:
            fetch(lacking, python_of(paths.folder), working, uv)
        fetched = working / kept_wheels.FETCHED
        wheels = kept_wheels.keep(text, fetched, paths.blobs, paths.wheel_folder)
    finally:
        shutil.rmtree(working, ignore_errors=True)
    if wheels.snapshot:
        kept_wheels.write_note(paths.kept_wheels, wheels)
    return wheels


def python_of(folder: Path) -> str:
    """The version of an environment's Python, as `3.11`, by the folder of its packages.

    Raises:
        BuildFailed: it has none.
    """
    for packages in sorted((folder / "lib").glob("python3*/site-packages")):
        match = _PYTHON.fullmatch(packages.parent.name)
        if match:
            return match[1]
    raise BuildFailed("the environment has no folder of packages", "build it again")


def remove_stale_folders(paths: EnvironmentPaths) -> None:
    for folder in paths.built.glob(f".building-{paths.hash}-*"):
        image_folder.remove(folder)
