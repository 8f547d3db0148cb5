"""Validating, auditing and releasing environments, over HTTP.

Owns: the types of reports, audits, releases and schedules; waiting for them.
Leaves: reading advisories to advisories.py, environments themselves to environments.py.
Always: what was begun goes on when nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client.releases import advisories
from torchyard.client.resources import Json, Listing, Resource
from torchyard.client.times import Deadline

if TYPE_CHECKING:
    from torchyard.client.snapshots.snapshots import Snapshots

_POLL_S = 1.0
_ENDED = ("Completed", "Failed", "Canceled", "deleted")
_WAITING = "it goes on; `environments.get_release` reads it"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WorkloadResult(Resource):
    """What a workload came to; `status` is `passed`, `failed` or `skipped`."""

    name: str
    status: str
    reason: str
    seconds: float
    figures: Mapping[str, Any]

    _shown = ("name", "status", "reason")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Gate(Resource):
    """A gate that a release came to; `status` is `passed`, `failed` or `skipped`."""

    name: str
    status: str
    message: str

    _shown = ("name", "status")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EnvironmentRelease(Resource):
    """A validation or a release of an environment.

    Args:
        job: the name of its job.
        kind: `validation` or `release`.
        base: the version that it began from.
        version: the one that was registered; empty until then, and where a gate refused it.
        status: its job's.
        changes: what moved, a line for each package.
        workloads: what validated it; empty in a list.
    """

    job: str
    kind: str
    environment: str
    base: str
    version: str
    status: str
    stage: str
    gates: tuple[Gate, ...]
    changes: tuple[str, ...]
    workloads: tuple[WorkloadResult, ...]

    _shown = ("job", "environment", "version", "status")

    @property
    def ended(self) -> bool:
        return self.status in _ENDED


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Finding(Resource):
    """A known vulnerability of a package.

    Args:
        ids: all of its names.
        age_days: since it was published; None where that is not known.
        status: `recent`, `too old`, `undated` or `excused`.
        fails: whether it fails the audit.
    """

    package: str
    version: str
    ids: tuple[str, ...]
    age_days: int | None
    status: str
    fails: bool

    _shown = ("package", "version", "status")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EnvironmentAudit(Resource):
    """The packages of a version against known vulnerabilities; `failed` counts what fails."""

    environment: str
    failed: int
    findings: tuple[Finding, ...]

    _shown = ("environment", "failed")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReleaseSchedule(Resource):
    """When an environment is released next; `last_job` is the last release by the schedule."""

    environment: str
    every_s: int
    next_at: str
    last_job: str

    _shown = ("environment", "every_s", "next_at")


class EnvironmentReleases:
    """What `Environments` can do with reports, audits and releases."""

    def __init__(self, transport: Transport, workspace_path: str, snapshots: Snapshots) -> None:
        self._transport = transport
        self._snapshots = snapshots
        self._workspace_path = workspace_path

    def validate(
        self,
        name: str,
        version: str = "",
        *,
        only: Sequence[str] = (),
        compute: str = "",
        workloads: Path | str | None = None,
    ) -> EnvironmentRelease:
        """Run workloads in an environment, by jobs of your own; `wait_for_release` waits for them.

        Args:
            only: names of workloads; all of them when empty.
            compute: the cluster; `local` when empty.
            workloads: a folder of further ones, `<name>.py` with a function `run()` each.

        Raises:
            NotFound: the environment does not exist.
            InvalidSpec: a workload does not exist.
        """
        document = self._request(version, only, compute, workloads)
        return self._begin(name, "validate", document)

    def release(
        self,
        name: str,
        *,
        only: Sequence[str] = (),
        compute: str = "",
        workloads: Path | str | None = None,
        max_age_days: int | None = None,
        exceptions: Sequence[Mapping[str, Any]] = (),
        dry_run: bool = False,
    ) -> EnvironmentRelease:
        """Make the next version: resolve again, build, audit, validate, register.

        Args:
            only, compute, workloads: see `validate`.
            max_age_days: how old a known vulnerability may be; 30 when None.
            exceptions: mappings with `id`, `reason`, `review_by` and maybe `package`.
            dry_run: go through all gates and register nothing.

        Raises:
            NotFound: the environment does not exist.
            Conflict: a release of it goes on.
        """
        document = self._request("", only, compute, workloads)
        document |= _limits(max_age_days, exceptions)
        if dry_run:
            document["dry_run"] = True
        return self._begin(name, "release", document)

    def get_release(self, job: str) -> EnvironmentRelease:
        """A validation or release, by the name of its job.

        Raises:
            NotFound: there is none.
        """
        path = f"{self._workspace_path}/environment-releases/{quote(job, safe='')}"
        return _release(self._transport.get(path))

    def releases(self, name: str = "", *, validations: bool = False) -> Listing[EnvironmentRelease]:
        """Releases, or validations, of one environment or of all; the newest first."""
        kind = "validation" if validations else "release"
        query = {"environment": name or None, "kind": kind}
        response = self._transport.get(f"{self._workspace_path}/environment-releases", query)
        return Listing(_release(row) for row in response["value"])

    def wait_for_release(
        self,
        job: str,
        say: Callable[[EnvironmentRelease], None] = lambda release: None,
        *,
        timeout_s: float | None = None,
    ) -> EnvironmentRelease:
        """Wait for the end of a validation or release.

        Args:
            say: gets it whenever it has come further.

        Raises:
            Timeout: it has not ended in time; it goes on.
        """
        deadline = Deadline(timeout_s, f"`{job}` has not ended", _WAITING)
        before: tuple[Any, ...] = ()
        while True:
            release = self.get_release(job)
            now = (release.stage, release.status, len(release.gates))
            if now != before:
                say(release)
            if release.ended:
                return release
            before = now
            deadline.check()
            time.sleep(_POLL_S)

    def audit(
        self,
        name: str,
        version: str = "",
        *,
        max_age_days: int | None = None,
        exceptions: Sequence[Mapping[str, Any]] = (),
    ) -> EnvironmentAudit:
        """A built version against the advisories that `send_advisories` sent.

        Args:
            max_age_days, exceptions: see `release`.

        Raises:
            InvalidInput: it was never built, or the workspace has no advisories.
        """
        document = _limits(max_age_days, exceptions)
        if version:
            document["version"] = version
        return _audit(self._transport.post(self._verb_path(name, "audit"), document))

    def send_advisories(self, source: Path | str) -> int:
        """Replace the workspace's advisories by those of a file or folder in the OSV format.

        Args:
            source: a JSON file of an entry or a list, a zip file or a folder of JSON files.

        Returns how many there are about packages of PyPI.

        Raises:
            InvalidInput: it holds no such entries.
        """
        path = f"{self._workspace_path}/advisories"
        answer: Json = {}
        for piece in advisories.pieces(Path(source)):
            answer = self._transport.put(path, piece)
            if answer.get("last"):
                break
        return int(answer["count"])

    def bill_of_materials(self, name: str, version: str = "") -> Json:
        """A built version in CycloneDX 1.5, with the hashes of its lock.

        Raises:
            InvalidInput: it was never built.
        """
        query = {"version": version or None}
        document: Json = self._transport.get(self._verb_path(name, "bill-of-materials"), query)
        return document

    def forget_wheels(self, name: str) -> Json:
        """Let `yard gc` remove the wheels that are kept for archived versions.

        Returns `versions` and `size_bytes`, which also counts wheels that other versions share.

        Raises:
            NotFound: the environment does not exist.
        """
        response: Json = self._transport.delete(self._verb_path(name, "wheels"))
        return response

    def schedule_releases(
        self,
        name: str,
        every_s: int,
        *,
        only: Sequence[str] = (),
        compute: str = "",
        workloads: Path | str | None = None,
        max_age_days: int | None = None,
        exceptions: Sequence[Mapping[str, Any]] = (),
        take_over: bool = False,
    ) -> ReleaseSchedule:
        """Release an environment every so many seconds; a second call replaces the first.

        Args:
            only, compute, workloads, max_age_days, exceptions: see `release`.
            take_over: replace another person's schedule, too.

        Raises:
            NotFound: the environment does not exist.
        """
        document = {**self._request("", only, compute, workloads), "every_s": every_s}
        document |= _limits(max_age_days, exceptions)
        document |= {"torchyard": {"take_over": True}} if take_over else {}
        return _schedule(self._transport.put(self._schedule_path(name), document))

    def unschedule_releases(self, name: str) -> None:
        """End the schedule of an environment.

        Raises:
            NotFound: it has none.
        """
        self._transport.delete(self._schedule_path(name))

    def release_schedules(self) -> Listing[ReleaseSchedule]:
        """The schedules of the workspace."""
        response = self._transport.get(f"{self._workspace_path}/release-schedules")
        return Listing(_schedule(row) for row in response["value"])

    def _request(
        self, version: str, only: Sequence[str], compute: str, workloads: Path | str | None
    ) -> dict[str, Any]:
        document: dict[str, Any] = {"version": version, "only": list(only), "compute": compute}
        if workloads is not None:
            snapshot = self._snapshots.take(Path(workloads))
            document["workloads"] = f"snapshot:{self._snapshots.send(snapshot)}"
        return {key: value for key, value in document.items() if value}

    def _begin(self, name: str, verb: str, document: Mapping[str, Any]) -> EnvironmentRelease:
        return _release(self._transport.post(self._verb_path(name, verb), dict(document)))

    def _verb_path(self, name: str, verb: str) -> str:
        return f"{self._workspace_path}/environment-releases/{quote(name, safe='')}/{verb}"

    def _schedule_path(self, name: str) -> str:
        return f"{self._workspace_path}/release-schedules/{quote(name, safe='')}"


def _limits(max_age_days: int | None, exceptions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if max_age_days is not None:
        document["max_age_days"] = max_age_days
    if exceptions:
        document["exceptions"] = [dict(each) for each in exceptions]
    return document


def _release(raw: Json) -> EnvironmentRelease:
    report = raw.get("report") or {}
    return EnvironmentRelease(
        raw=raw,
        job=raw["job"],
        kind=raw["kind"],
        environment=raw["environment"],
        base=raw["base"],
        version=raw["version"],
        status=raw["status"],
        stage=raw["stage"],
        gates=tuple(
            Gate(raw=gate, name=gate["name"], status=gate["status"], message=gate["message"])
            for gate in raw.get("gates", ())
        ),
        changes=tuple(str(raw.get("changelog") or "").splitlines()),
        workloads=tuple(
            WorkloadResult(
                raw=row,
                name=row["name"],
                status=row["status"],
                reason=row["reason"],
                seconds=row["seconds"],
                figures=row["figures"],
            )
            for row in report.get("workloads", ())
        ),
    )


def _audit(raw: Json) -> EnvironmentAudit:
    return EnvironmentAudit(
        raw=raw,
        environment=raw["environment"],
        failed=raw["failed"],
        findings=tuple(
            Finding(
                raw=row,
                package=row["package"],
                version=row["version"],
                ids=tuple(row["ids"]),
                age_days=row["age_days"],
                status=row["status"],
                fails=row["fails"],
            )
            for row in raw["findings"]
        ),
    )


def _schedule(raw: Json) -> ReleaseSchedule:
    return ReleaseSchedule(
        raw=raw,
        environment=raw["environment"],
        every_s=raw["every_s"],
        next_at=raw["next_at"],
        last_job=raw["last_job"],
    )
