"""What the stages of a release find out on the server, before and after its jobs.

Owns: resolving, building, comparing label and build, auditing; which environment is validated.
Leaves: the order of the stages to rounds.py, the version's content to candidates.py.
Always: a stage is a function of what is stored, and can be run again after a kill; it writes
nothing but builds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchyard.base.clock import to_text
from torchyard.base.db import Database
from torchyard.base.errors import BuildFailed
from torchyard.data import datastores, remote
from torchyard.environments import contents, version_labels
from torchyard.environments.assembly import Environments
from torchyard.environments.names import curated_environments
from torchyard.environments.types import EnvironmentSpec
from torchyard.environments.version_labels import Answer, Label
from torchyard.jobs.services import FileServices, RecordServices
from torchyard.releases.records import store
from torchyard.releases.records.types import (
    AUDIT,
    BUILD,
    FAILED,
    LABEL,
    PASSED,
    RELEASE,
    RESOLVE,
    VALIDATION,
    Gate,
    Record,
)
from torchyard.releases.running import candidates
from torchyard.releases.vulnerabilities import advisories, locked
from torchyard.releases.vulnerabilities import audit as auditing
from torchyard.shared.plurals import plural

IsCanceled = Callable[[], bool]
Outcome = tuple[Gate, dict[str, Any]]


def resolve(services: FileServices, record: Record, is_canceled: IsCanceled) -> Outcome:
    """Resolve the requested lines again; the candidate's definition, and what moved.

    Raises:
        BuildFailed: no set of packages fits.
        InvalidInput: the environment is not one that can be resolved again.
    """
    environments = services.environments
    base = candidates.base_of(environments, record.workspace, record.base)
    spec = candidates.to_resolve(environments, record.workspace, base, record.job)
    environments.builds.run(spec, is_canceled, lambda: _secrets(services, record.workspace))
    last = environments.records.last(spec.hash)
    assert last is not None
    # Its folder was only the way to the lock: the candidate is built from its own definition.
    environments.folders.remove(spec.hash, lambda connection: False)
    after = {package.name: package.version for package in locked.packages(last.lock, spec.layers)}
    before = candidates.versions_of_base(environments, record.workspace, base)
    moved = candidates.changes(before, after)
    results = {
        "requested": dict(base.requested),
        "candidate": candidates.definition_of(spec, last.lock),
        "changes": moved,
        "is_base_known": bool(before),
        "is_pinned": candidates.is_pinned(spec),
    }
    message = candidates.in_words(moved) if before else f"{record.base} was never built here"
    return Gate(RESOLVE, PASSED, message or "nothing moved"), results


def build(services: FileServices, record: Record, is_canceled: IsCanceled) -> Outcome:
    """Build the candidate from its own definition; its hash and lock.

    Raises:
        BuildFailed: names the package at fault.
    """
    environments = services.environments
    spec = _candidate(services.environments, record)
    environments.builds.run(spec, is_canceled, lambda: _secrets(services, record.workspace))
    last = environments.records.last(spec.hash)
    text = last.lock if last is not None else ""
    unverified = locked.without_hash(text)
    results = {
        "hash": spec.hash,
        "lock": text,
        "platform": spec.platform,
        "layers": list(spec.layers),
        "without_hash": unverified,
        "built_at": to_text(services.clock.now()),
    }
    count = len(locked.packages(text, spec.layers))
    note = f"; no hash is known of {', '.join(unverified[:5])}" if unverified else ""
    return Gate(BUILD, PASSED, f"{count} packages{note}"), results


def label(services: FileServices, record: Record, is_canceled: IsCanceled) -> Outcome:
    """Compare what was built, as it is on the disk, with its label."""
    environments = services.environments
    folder = environments.builds.use(_candidate(services.environments, record))
    if folder is None:
        return Gate(LABEL, FAILED, "the build is gone: release again"), {}
    there = contents.read_files(folder)
    packages = there["packages"]
    on_disk = Answer(packages, there["python"], cuda=there["cuda"])
    wrong = version_labels.differences(label_of(environments, record), on_disk)
    results = {"contents": {key: there[key] for key in ("python", "torch", "cuda", "size_bytes")}}
    if wrong:
        return Gate(LABEL, FAILED, "; ".join(wrong)[:4000]), results
    return Gate(LABEL, PASSED, f"{len(packages)} packages are what the label says"), results


def label_of(environments: Environments, record: Record) -> Label:
    """The label of what a release builds, or a validation runs in."""
    base = candidates.base_of(environments, record.workspace, record.base)
    tags = base.asset.tags if base.asset is not None else {}
    if record.kind == RELEASE:
        spec, text = _candidate(environments, record), str(record.results["lock"])
    else:
        spec = environments.resolver.resolve(base.ref, record.workspace, enforce_policy=False)
        last = environments.records.last(spec.hash)
        text = last.lock if last is not None else ""
        curated = curated_environments.find_by_name(base.name) if base.asset is None else None
        if curated is not None:
            return version_labels.of_curated(curated, version_labels.machine_of(spec))
    spec = replace(spec, python=environments.folders.python_of(spec))
    return version_labels.of_lock(base.name, spec, text, tags)


def audit(services: FileServices, record: Record, is_canceled: IsCanceled) -> Outcome:
    """Look the candidate's packages up in the workspace's advisories."""
    limit = int(record.request.get("max_age_days", auditing.MAX_AGE_DAYS))
    text, layer_names = str(record.results["lock"]), record.results["layers"]
    audited = audit_of(services, record.workspace, text, layer_names, record.request)
    age = audited["advisories"]["age_days"]
    mended = _mended(services, record, audited)
    results = {"audit": {**audited, "mended": mended}}
    if age > limit:
        return Gate(AUDIT, FAILED, f"the advisories are {age} days old, above {limit}"), results
    wrong = auditing.failures(audited)
    if wrong:
        return Gate(AUDIT, FAILED, "; ".join(wrong)[:4000]), results
    count = len(audited["findings"])
    counts = f"{count} {plural('finding', count)}, {audited['excused']} of them excused"
    days = [str(each["days"]) for each in mended if each["days"] is not None]
    after = f"; {len(mended)} mended" + (
        f", {', '.join(days)} days after publication" if days else ""
    )
    return Gate(AUDIT, PASSED, f"{counts}, none fails{after if mended else ''}"), results


def _mended(
    services: FileServices, record: Record, audited: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The vulnerabilities of the base that the candidate has no more."""
    base = candidates.base_of(services.environments, record.workspace, record.base)
    packages = candidates.versions_of_base(services.environments, record.workspace, base)
    before, _ = advisories.vulnerabilities(services.db, record.workspace, packages)
    return auditing.mended(before, audited, services.clock.now())


def audit_of(
    services: RecordServices,
    workspace: str,
    text: str,
    layer_names: Sequence[str],
    request: Mapping[str, Any],
) -> dict[str, Any]:
    """The audit of a lock.

    Raises:
        InvalidInput: the workspace has no advisories.
        InvalidSpec: the request's exceptions are wrong.
    """
    now = services.clock.now()
    locked_packages = locked.packages(text, layer_names)
    packages = {
        package.name: package.version for package in locked_packages if package.source != "conda"
    }
    matches, by = advisories.vulnerabilities(services.db, workspace, packages)
    audited = auditing.audit(
        matches,
        auditing.read_exceptions(request.get("exceptions") or []),
        now,
        int(request.get("max_age_days", auditing.MAX_AGE_DAYS)),
    )
    about = {**advisories.to_json(by), "age_days": advisories.age_days(by, now)}
    return {
        **audited,
        "advisories": about,
        "packages": len(locked_packages),
        "without_hash": locked.without_hash(text),
    }


def keep_wheels(services: FileServices, record: Record, is_canceled: IsCanceled) -> dict[str, Any]:
    """Keep the candidate's wheels: `snapshot`, `count`, `size_bytes`, `without`; or `error`."""
    environments = services.environments
    spec = _candidate(environments, record)
    try:
        environments.builds.run(spec, is_canceled, lambda: _secrets(services, record.workspace))
        wheels = environments.builds.keep_wheels(
            spec, str(record.results["lock"]), is_canceled,
            lambda: _secrets(services, record.workspace),
        )  # fmt: skip
    except BuildFailed as error:
        return {"error": error.message}
    return {**vars(wheels), "without": list(wheels.without)}


def is_over(record: Record, gate: Gate) -> bool:
    """Whether a release ends after its audit: nothing moved, so there is no new version."""
    unchanged = record.results.get("is_base_known") and not record.results.get("changes")
    return record.kind == RELEASE and gate.name == AUDIT and bool(unchanged)


def environment_of(
    environments: Environments, record: Record
) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """What validation jobs name, the requirement lines of the environment, and the names of the
    variables that it sets.
    """
    if record.kind != RELEASE:
        spec = environments.resolver.resolve(record.base, record.workspace)
        return f"azureml:{record.base}", spec.packages, tuple(name for name, _ in spec.variables)
    requested = environments.resolver.resolve(dict(record.results["requested"]), record.workspace)
    return record.results["candidate"], requested.packages, ()


def content_of(environments: Environments, record: Record) -> dict[str, str]:
    """By what a report names the content that was validated: its hash, the digest of its lock."""
    if record.kind == RELEASE:
        text = str(record.results["lock"])
        return {"hash": str(record.results["hash"]), "lock_sha256": locked.digest(text)}
    spec = environments.resolver.resolve(record.base, record.workspace, enforce_policy=False)
    last = environments.records.last(spec.hash)
    lock_sha256 = locked.digest(last.lock) if last is not None and last.lock else ""
    return {"hash": spec.hash, "lock_sha256": lock_sha256}


def last_report(db: Database, record: Record) -> Mapping[str, Any]:
    """The last report of the base: of its own release, or of a validation; empty without one."""
    name, _, version = record.base.rpartition(":")
    with db.read() as connection:
        rows = store.list_in(connection, record.workspace, name)
    for row in rows:
        is_its_own = row.kind == RELEASE and row.version == version
        if row.report and (is_its_own or (row.kind == VALIDATION and row.base == record.base)):
            return row.report
    return {}


def _candidate(environments: Environments, record: Record) -> EnvironmentSpec:
    definition = dict(record.results["candidate"])
    return environments.resolver.resolve(definition, record.workspace)


def _secrets(services: FileServices, workspace: str) -> dict[str, int]:
    """What a build's log must not show."""
    values: dict[str, int] = {}
    for datastore in datastores.list_in(services.db, services.datastores, workspace):
        values |= remote.secrets_of(datastore.options)
    return values
