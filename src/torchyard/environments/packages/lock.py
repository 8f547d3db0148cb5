"""From requirements to a lock: every package with its version and hashes.

Owns: running the resolver, the choice of torch's build for a machine, excluding GPU packages,
the versions that a package which serves has to take, resolving again with undeclared limits.
Leaves: installing to build/builder.py.
Always: a lock for a machine without a GPU holds no CUDA packages but those requested by name, and
those of PyPI's torch where no other can be reached; it holds versions and hashes, and no index of
the machine's configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from torchyard.base.errors import BuildFailed
from torchyard.environments.packages import accelerators, undeclared_limits
from torchyard.environments.packages.requirements import normal, package_name
from torchyard.environments.packages.uv import Outcome, Uv, failure, is_unreachable
from torchyard.environments.types import EnvironmentSpec

# So many CPU builds are tried, newest first, before PyTorch's own index.
_TRIED_BUILDS = 6
# Of at most so many packages, versions that can't be built are passed over.
TRIED_WHEELS = 4
# Added to environments that exist. Its releases pin what models use too, so its limits give way
# where nothing else fits.
_YIELDS = "azureml-inference-server-http"
_UNBUILT = re.compile(
    r"Failed to (?:build|download and build) `(?P<name>[\w.-]+)==(?P<version>[^`]+)`", re.ASCII
)
_NO_WHEEL = re.compile(r"Because (?:all versions of )?(?P<name>[\w.-]+)(?:==\S+)? (?:has|have) no ")
_PIN = re.compile(r"^(?P<name>[\w.-]+)(?:==| @ )(?P<version>\S+)", re.MULTILINE | re.ASCII)
# The package itself, not one whose name holds its name.
_OF_TORCH = re.compile(r"(?<![\w-])(?:py)?torch(?![\w-])")
_DOING = "the packages can't be resolved"
_NO_OFFER = (
    "let the machine reach PyTorch's own index, or put a CPU build of torch into a folder "
    "of pip's `find-links`"
)


@dataclass(frozen=True)
class _Way:
    """One way to get torch: a pinned build, or uv's name of an index.

    `there` are packages that keep their version, `never` builds of torch for other machines;
    `wheels_of` are packages that are not built, `settled` versions that override all limits,
    `limits` what packages need without saying it.
    """

    pin: str = ""
    backend: str = ""
    never: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    wheels_of: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


def pins(lock: str) -> dict[str, str]:
    """Package names and versions of a lock; for a package from a URL, the URL."""
    return {normal(match["name"]): match["version"] for match in _PIN.finditer(lock)}


def resolve(
    spec: EnvironmentSpec,
    extra: tuple[str, ...],
    python: str,
    uv: Uv,
    folder: Path,
    installed: tuple[str, ...] = (),
    wheels_of: tuple[str, ...] = (),
) -> str:
    """Resolve for the environment in `folder`/venv, whose Python is `python` (`3.11`).

    Args:
        extra: additional requirements of the builder.
        installed: what the environment holds already, kept where it fits.
        wheels_of: packages of which only versions with a wheel count.

    Raises:
        BuildFailed: no set of packages fits; names the package that uv blames.
    """
    lines = (*spec.requirements, *extra)
    (folder / "requirements.in").write_text("\n".join(lines) + "\n", encoding="utf-8")
    plain = [replace(way, wheels_of=wheels_of) for way in _ways(spec, python, uv)]
    ways = [replace(way, there=installed) for way in plain]
    if installed:
        ways += plain
    for way in ways:
        outcome = _compile(way, (), uv, folder)
        if outcome.code == 0:
            return _without_gpu_packages(spec, way, uv, folder)
        if way.there:
            continue
        if _YIELDS in outcome.words and _YIELDS in lines:
            return _with_yielding(spec, way, lines, uv, folder)
        # Another build of torch only helps where torch is what does not fit.
        if not _OF_TORCH.search(outcome.words):
            break
    else:
        pypi = _Way(there=installed, wheels_of=wheels_of)
        if ways[-1].backend == "cpu":
            text = _with_torch_of_pypi(spec, pypi, outcome, python, uv, folder)
            if text:
                return text
    raise _no_lock(outcome, ways)


def _with_yielding(
    spec: EnvironmentSpec, way: _Way, lines: tuple[str, ...], uv: Uv, folder: Path
) -> str:
    """The lock of the other packages, as it would be alone, and of the one that gives way."""
    requirements = folder / "requirements.in"
    text = requirements.read_text(encoding="utf-8")
    others = [line for line in lines if line != _YIELDS]
    requirements.write_text("\n".join(others) + "\n", encoding="utf-8")
    outcome = _compile(way, (), uv, folder)
    if outcome.code != 0:
        raise _no_lock(outcome, [way])
    versions = pins((folder / "lock.txt").read_text(encoding="utf-8"))
    settled = tuple(
        f"{name} @ {version}" if "/" in version else f"{name}=={version}"
        for name, version in versions.items()
    )
    uv.say(f"the limits of `{_YIELDS}` give way to the versions of the others")
    requirements.write_text(text, encoding="utf-8")
    way = replace(way, settled=settled)
    outcome = _compile(way, (), uv, folder)
    if outcome.code != 0:
        raise _no_lock(outcome, [way])
    return _without_gpu_packages(spec, way, uv, folder)


def _with_torch_of_pypi(
    spec: EnvironmentSpec, way: _Way, outcome: Outcome, python: str, uv: Uv, folder: Path
) -> str:
    """The lock with PyPI's own torch, or an empty text; its size is told where it is for a GPU.

    Args:
        outcome: of the last try to get a CPU build.
    """
    if _compile(way, (), uv, folder).code != 0:
        return ""
    lock = (folder / "lock.txt").read_text(encoding="utf-8")
    versions = pins(lock)
    # PyPI's needs none before 1.13.
    gpu = accelerators.gpu_packages(versions)
    if gpu and "torch" not in versions:
        return ""
    if gpu:
        _say_large(versions["torch"], gpu, outcome, python, uv, folder)
    return _with_options(spec, lock)


def _say_large(
    version: str, gpu: list[str], outcome: Outcome, python: str, uv: Uv, folder: Path
) -> None:
    arguments = ["pip", "compile", "requirements.in", "--quiet", "--python", "venv/bin/python"]
    # uv tells this lock's format by the file's name.
    arguments += ["--format", "pylock.toml", "--output-file", "pylock.sizes.toml"]
    sizes = folder / "pylock.sizes.toml"
    size_bytes = 0
    if uv.run(arguments, folder, "uv pip compile --format pylock.toml (sizes)").code == 0:
        text = sizes.read_text(encoding="utf-8")
        size_bytes = accelerators.wheels_bytes(text, {"torch", "triton", *gpu}, python)
    size = f"{size_bytes / 1e9:.1f} GB" if size_bytes else "some gigabytes"
    why = "no CPU build of torch fits"
    if is_unreachable(outcome.words):
        why = "PyTorch's own index can't be reached"
    uv.say(
        f"{why}: torch {version} is PyPI's, which runs without a GPU but needs {len(gpu)} CUDA "
        f"packages; the download is {size}"
    )
    offered = [build.partition("+")[0] for build in accelerators.cpu_torches(uv.config, python)]
    instead = f"request torch {offered[0]}, which this machine offers" if offered else _NO_OFFER
    uv.say(f"for a CPU build, a tenth of that: {instead}, before an environment is built")


def _with_options(spec: EnvironmentSpec, lock: str) -> str:
    return "".join(line + "\n" for line in spec.options) + lock


def torch_source(lock: str, python: str, uv: Uv, folder: Path) -> list[str]:
    """uv's arguments, in `folder`, to install the build of torch that a lock names."""
    version = pins(lock).get("torch", "")
    if version and "+" not in version:
        # `==2.13.0` also means 2.13.0+cpu, which counts as newer.
        builds = accelerators.local_torches(uv.config, python)
        lines = [f"torch!={build}\n" for build in builds if build.partition("+")[0] == version]
        if not lines:
            return []
        (folder / "not-these.txt").write_text("".join(lines), encoding="utf-8")
        return ["--constraint", "not-these.txt"]
    if "+rocm" in version:
        return ["--torch-backend", "auto"]
    if "+cpu" not in version or version in accelerators.cpu_torches(uv.config, python):
        return []
    return ["--torch-backend", "cpu"]


def _ways(spec: EnvironmentSpec, python: str, uv: Uv) -> list[_Way]:
    accelerator = spec.platform.rpartition("-")[2]
    if accelerator != "cpu":
        # A local CPU build, as 2.13.0+cpu, counts as newer than 2.13.0.
        never = tuple(accelerators.foreign_torches(uv.config, python, accelerator))
        return [_Way(backend="auto" if accelerator == "rocm" else "", never=never)]
    offered = accelerators.cpu_torches(uv.config, python)
    return [*(_Way(pin=version) for version in offered[:_TRIED_BUILDS]), _Way(backend="cpu")]


def _compile(way: _Way, left_out: tuple[str, ...], uv: Uv, folder: Path) -> Outcome:
    """Resolve; of a package whose chosen version can't be built, only wheels are taken.

    A resolver goes back to a version so old that it limits nothing, not its Python either. Where
    wheels don't help, the outcome is that of the first try.
    """
    outcome = first = _compile_with(way, left_out, uv, folder)
    while outcome.code != 0 and len(way.wheels_of) < TRIED_WHEELS:
        name = unbuilt(outcome)
        if not name or name in way.wheels_of:
            break
        uv.say(f"`{name}` can't be built here: trying versions with a wheel")
        way = replace(way, wheels_of=(*way.wheels_of, name))
        outcome = _compile_with(way, left_out, uv, folder)
    if outcome.code == 0:
        _keep_undeclared_limits(way, left_out, uv, folder)
    return outcome if outcome.code == 0 else first


def _keep_undeclared_limits(way: _Way, left_out: tuple[str, ...], uv: Uv, folder: Path) -> None:
    """Resolve again where a package would not find what it imports; else keep the lock."""
    output = folder / "lock.txt"
    limits: dict[str, str] = {}
    while True:
        lock = output.read_text(encoding="utf-8")
        # An older version of one package may be one that another can't use.
        broken = undeclared_limits.of(pins(lock))
        more = {limit: reason for limit, reason in broken.items() if limit not in limits}
        if not more:
            return
        limits |= more
        # Building an old version takes minutes, and often fails.
        wheels_of = dict.fromkeys((*way.wheels_of, *(package_name(limit) for limit in limits)))
        limited = replace(way, limits=tuple(limits), wheels_of=tuple(wheels_of))
        is_possible = _compile_with(limited, left_out, uv, folder).code == 0
        for limit, reason in more.items():
            uv.say(
                f"`{limit}` is added: {reason}"
                if is_possible
                else f"`{limit}` can't be added, no versions fit together: {reason}"
            )
        if not is_possible:
            output.write_text(lock, encoding="utf-8")
            return


def unbuilt(outcome: Outcome) -> str:
    """The package that uv could not build in the version that was chosen, or an empty text."""
    match = _UNBUILT.search(" ".join(outcome.words.split()))
    return normal(match["name"]) if match else ""


def avoidable_sources(text: str, uv: Uv, folder: Path) -> tuple[str, ...]:
    """Packages of the lock that have no wheel here, though other versions of them have one.

    A resolver that goes back to a version so old that it limits nothing takes others with it: for
    the newest `numpy` it takes a `shap` that still uses `np.int`, and its `numba` and `llvmlite`.
    """
    versions = pins(text)
    sources: list[str] = []
    while True:
        pinned = [f"{name}=={version}" for name, version in versions.items() if "/" not in version]
        name = _without_wheel(pinned, uv, folder)
        if name not in versions:
            break
        del versions[name]
        sources.append(name)
    return tuple(name for name in sources if not _without_wheel([name], uv, folder))


def _without_wheel(requirements: list[str], uv: Uv, folder: Path) -> str:
    """The first of these that has no wheel for the environment's Python, or an empty text."""
    (folder / "wheels.in").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    arguments = ["pip", "compile", "wheels.in", "--output-file", "wheels.txt", "--quiet"]
    arguments += ["--python", "venv/bin/python", "--no-deps", "--only-binary", ":all:"]
    outcome = uv.run(arguments, folder, "uv pip compile --only-binary :all: (which have no wheel)")
    match = _NO_WHEEL.search(" ".join(outcome.words.split()))
    return normal(match["name"]) if outcome.code != 0 and match else ""


def _compile_with(way: _Way, left_out: tuple[str, ...], uv: Uv, folder: Path) -> Outcome:
    output = folder / "lock.txt"
    output.unlink(missing_ok=True)
    arguments = ["pip", "compile", "requirements.in", "--output-file", output.name]
    arguments += ["--python", "venv/bin/python", "--generate-hashes"]
    arguments += ["--no-header", "--no-annotate"]
    shown = "uv pip compile requirements.in"
    constraints = [f"torch=={way.pin}", *way.there] if way.pin else list(way.there)
    constraints += [f"torch!={version}" for version in way.never]
    constraints += way.limits
    if constraints:
        (folder / "constraints.txt").write_text("\n".join(constraints) + "\n", encoding="utf-8")
        arguments += ["--constraint", "constraints.txt"]
    if way.pin:
        shown += f" (torch, if any, is {way.pin})"
    if way.there:
        shown += " (beside conda's packages, as they are)"
    if way.limits:
        shown += f" (with {', '.join(way.limits)})"
    if way.backend:
        arguments += ["--torch-backend", way.backend]
        shown += f" --torch-backend {way.backend}"
    if left_out or way.settled:
        # A marker that is never true takes the package out of every requirement on it.
        never = [f'{name}; python_version < "0"' for name in left_out]
        text = "".join(line + "\n" for line in (*never, *way.settled))
        (folder / "overrides.txt").write_text(text, encoding="utf-8")
        arguments += ["--override", "overrides.txt"]
    if left_out:
        shown += f" (without {', '.join(left_out)})"
    if way.settled:
        shown += " (with the others' versions as they are)"
    for name in way.wheels_of:
        arguments += ["--only-binary", name]
        shown += f" --only-binary {name}"
    return uv.run(arguments, folder, shown)


def _without_gpu_packages(spec: EnvironmentSpec, way: _Way, uv: Uv, folder: Path) -> str:
    """The lock; resolved again without CUDA packages where the machine has no GPU."""
    requested = {package_name(line) for line in spec.packages}
    left_out: tuple[str, ...] = ()
    while True:
        lock = (folder / "lock.txt").read_text(encoding="utf-8")
        versions = pins(lock)
        gpu = [name for name in accelerators.gpu_packages(versions) if name not in requested]
        if not gpu or not spec.platform.endswith("-cpu"):
            return _with_options(spec, lock)
        torch = versions.get("torch", "")
        if (torch and "cpu" not in torch) or set(gpu) <= set(left_out):
            raise BuildFailed(
                f"package `{'torch' if torch else gpu[0]}` would install CUDA packages "
                f"({', '.join(gpu[:3])}…), and this machine has no GPU",
                "request a CPU build of torch: `torch` without a URL or `+cu…`",
            )
        uv.say(f"skipped, since this machine has no GPU: {', '.join(gpu)}")
        left_out = (*left_out, *gpu)
        outcome = _compile(way, left_out, uv, folder)
        if outcome.code != 0:
            raise failure(outcome, _DOING)


def _no_lock(outcome: Outcome, ways: list[_Way]) -> BuildFailed:
    """The last outcome as an error, with a message of its own where torch has no CPU build."""
    error = failure(outcome, _DOING)
    if ways[-1].backend != "cpu" or not _OF_TORCH.search(outcome.words):
        return error
    offered = ", ".join(way.pin for way in ways if way.pin)
    if is_unreachable(outcome.words):
        reason = "PyTorch's own index can't be reached"
        if offered:
            reason = f"{offered}, which this machine offers, does not fit, and {reason}"
    else:
        reason = error.message.partition(": ")[2]
    return BuildFailed(
        f"package `torch` can't be installed: no CPU build of it fits ({reason})",
        f"request torch {offered.partition('+')[0]}" if offered else _NO_OFFER,
    )
