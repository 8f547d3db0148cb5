"""The JSON of environments over HTTP.

Owns: the JSON of curated ones and of a workspace's own.
Leaves: finding them to assets.py, names/curated_environments.py, builds to build/records.py.
Always: packages are those of a build where there was one, else those of the definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.assets import versions
from torchyard.base.clock import to_text
from torchyard.base.errors import BuildFailed, InvalidSpec, NotFound, TorchyardError
from torchyard.environments import assets, bases
from torchyard.environments.assembly import Environments
from torchyard.environments.conda import conda_packages
from torchyard.environments.names import catalogue, components, curated_environments
from torchyard.environments.names.components import EnvironmentComponent, TestRun
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.packages import layers, lock, pythons
from torchyard.environments.types import EnvironmentAsset, EnvironmentSpec

_NOT_BUILT = "not built"
# The tag by which people name a day of their own.
_DEPRECATED = "deprecated"


def list_json(
    environments: Environments, workspace: str, name: str = "", archived: bool | None = False
) -> list[dict[str, Any]]:
    """Curated ones, then the workspace's own: all that jobs can name, and nothing else.

    Args:
        name: all versions of this one only.
        archived: None lists archived ones, too.
    """
    bodies = [
        curated_to_json(entry) for entry in curated_environments.every() if name in ("", entry.name)
    ]
    owned = assets.list_in(environments.db, workspace, name, archived)
    bodies += [asset_to_json(entry) for entry in owned]
    return [{**body, "build": _build_state(environments, workspace, body)} for body in bodies]


def _build_state(environments: Environments, workspace: str, body: Mapping[str, Any]) -> str:
    ref = f"{body['name']}:{body['version']}"
    try:
        spec = environments.resolver.resolve(ref, workspace, enforce_policy=False)
    except TorchyardError:
        return _NOT_BUILT  # what it is made of is gone
    # One for GPUs that is replaced here is not what is built.
    return _state(environments, spec) if spec.ref == ref else _NOT_BUILT


def _state(environments: Environments, spec: EnvironmentSpec) -> str:
    if environments.folders.find(spec):
        return "ready"
    last = environments.records.last(spec.hash)
    return last.status if last else _NOT_BUILT


def version_to_json(
    environments: Environments, workspace: str, name: str, version: str
) -> dict[str, Any]:
    """
    Raises:
        NotFound: there is none of that name and version, with the nearest.
    """
    curated = curated_environments.find_by_name(name.removeprefix("azureml:"))
    if curated is not None:
        name = curated.name
        owned = assets.owned(environments.db, workspace)(name)
        release = catalogue.release_of(curated, owned) if version == versions.LATEST else None
        version = release.version if release is not None else version
        if version in (versions.LATEST, curated.version):
            spec = environments.resolver.resolve(f"{curated.name}:{curated.version}")
            if spec.ref == f"{curated.name}:{curated.version}":
                build = build_json(environments, spec)
            else:
                # It is for GPUs, and jobs here get another in its place.
                build = {"hash": "", "build": _NOT_BUILT, "notices": list(spec.notices)}
            return {**curated_to_json(curated), **build, **tests_to_json(curated)}
        if not owned:
            raise NotFound(
                f"environment `{name}` has no version `{version}`", f"it has {curated.version}"
            )
    asset = assets.get(environments.db, workspace, name, version)
    spec = _spec_of(environments, workspace, asset)
    supported = pythons.end_of_support(environments.folders.python_of(spec))
    return {
        **asset_to_json(asset),
        "deprecated": asset.tags.get(_DEPRECATED) or supported,
        **build_json(environments, spec),
    }


def resolved_json(environments: Environments, workspace: str, environment: Any) -> dict[str, Any]:
    """The spec and build of a reference or an inline definition.

    `refused` is why no job may use it, `hint` what to do; both are absent where jobs may.
    """
    spec = environments.resolver.resolve(environment, workspace, enforce_policy=False)
    refusal: dict[str, str] = {}
    try:
        environments.resolver.resolve(environment, workspace)
        environments.builds.refuse_impossible(spec)
    except (InvalidSpec, BuildFailed) as error:
        refusal = {"refused": error.message, "hint": error.hint}
    return {
        **refusal,
        "ref": spec.ref,
        "python": environments.folders.python_of(spec),
        "requirements": list(spec.requirements),
        "platform": spec.platform,
        "notices": list(spec.notices),
        **build_json(environments, spec),
    }


def curated_to_json(curated: Curated) -> dict[str, Any]:
    contents = curated.contents
    return {
        "name": curated.name,
        "version": curated.version,
        "description": curated.description,
        "python": contents.get("python") or curated.python,
        "torch": contents.get("torch", ""),
        "cuda": contents.get("cuda", ""),
        "packages": list(curated.packages),
        "size_bytes": contents.get("size_bytes"),
        "status": "curated",
        "archived": False,
        "deprecated": pythons.end_of_support(str(contents.get("python") or curated.python)),
        "tags": {},
    }


def tests_to_json(curated: Curated) -> dict[str, Any]:
    """`components`: what it holds of the documents' list; `tests`: what was tested, and where."""
    runs = components.runs(curated.name)
    body: dict[str, Any] = {"tests": [_run_to_json(run) for run in runs]}
    if components.promises(curated):
        body["components"] = [
            _held_to_json(component, runs) for component in components.components_of(curated)
        ]
    return body


def _run_to_json(run: TestRun) -> dict[str, Any]:
    failed = [name for name, step in run.steps.items() if step.error]
    return {
        "hardware": run.hardware,
        "date": run.date,
        "version": run.version,
        "python": run.python,
        "distributions": run.distributions,
        "modules": run.modules,
        "label_differences": list(run.differences),
        "steps": len(run.steps),
        "failed": failed,
    }


def _held_to_json(component: EnvironmentComponent, runs: Sequence[TestRun]) -> dict[str, Any]:
    name = component.component.name
    return {
        "name": name,
        "state": component.state,
        "package": component.package,
        "version": component.version,
        "reason": component.reason,
        "instead": component.instead,
        "tests": [
            {"hardware": run.hardware, "date": run.date, **vars(run.steps[name])}
            for run in runs
            if name in run.steps
        ],
    }


def asset_to_json(asset: EnvironmentAsset) -> dict[str, Any]:
    fields = {key: value for key, value in vars(asset).items() if key != "definition"}
    return {
        **asset.definition,
        **fields,
        "created_at": to_text(asset.created_at),
        "status": "registered",
    }


def _spec_of(
    environments: Environments, workspace: str, asset: EnvironmentAsset
) -> EnvironmentSpec:
    """The spec of a registered environment, whether or not jobs may use it now."""
    return environments.resolver.resolve(
        f"{asset.name}:{asset.version}", workspace, enforce_policy=False
    )


def build_json(environments: Environments, spec: EnvironmentSpec) -> dict[str, Any]:
    """Its hash, the status of its last build, its locked packages or those of the definition.

    torchyard's layers are among the locked packages, since scripts find them beside the others.
    """
    last = environments.records.last(spec.hash)
    folder = environments.folders.find(spec)
    body: dict[str, Any] = {
        "hash": spec.hash,
        "build": _state(environments, spec),
        "notices": list(spec.notices),
    }
    if last is not None and last.error:
        body["error"] = last.error
    if spec.image:
        body |= environments.images.to_json(spec.image, folder)
    if bases.of(spec):
        body["base"] = bases.one_line(spec)
    pins = lock.pins(last.lock) if last else {}
    if spec.conda:
        conda_versions = conda_packages.versions(last.lock) if last else {}
        written = [f"{name}={version}" for name, version in sorted(conda_versions.items())]
        body["conda_packages"] = written or list(spec.conda)
    if pins:
        body["packages"] = _written(dict(sorted({**pins, **layers.versions(spec.layers)}.items())))
    elif spec.packages:
        body["packages"] = list(spec.packages)
    return body


def _written(pins: Mapping[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in pins.items()]
